package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// repo is a real Git repository. Its refs all point to one commit unless set otherwise.
type repo struct {
	path   string
	commit string
}

func newRepo(tb testing.TB, refs ...string) *repo {
	tb.Helper()
	r := &repo{path: filepath.Join(tb.TempDir(), "r.git")}
	git(tb, "", "init", "--quiet", "--bare", "--template=", r.path)
	git(tb, r.path, "symbolic-ref", "HEAD", mainRef)
	tree := git(tb, r.path, "hash-object", "-t", "tree", "-w", "/dev/null")
	r.commit = git(tb, r.path, "-c", "user.name=n", "-c", "user.email=e", "commit-tree", "-m", "x", tree)
	r.pack(tb, refs)
	return r
}

// pack writes many refs in one file.
func (r *repo) pack(tb testing.TB, refs []string) {
	tb.Helper()
	var b strings.Builder
	b.WriteString("# pack-refs with: peeled fully-peeled sorted \n")
	for _, ref := range slices.Sorted(slices.Values(refs)) {
		fmt.Fprintf(&b, "%s %s\n", r.commit, ref)
	}
	if err := os.WriteFile(filepath.Join(r.path, "packed-refs"), []byte(b.String()), 0o644); err != nil {
		tb.Fatal(err)
	}
}

// set points a ref to a new commit, which it returns.
func (r *repo) set(tb testing.TB, ref string) string {
	tb.Helper()
	tree := git(tb, r.path, "rev-parse", r.commit+"^{tree}")
	commit := git(tb, r.path, "-c", "user.name=n", "-c", "user.email=e", "commit-tree", "-m", ref, tree)
	git(tb, r.path, "update-ref", ref, commit)
	return commit
}

func git(tb testing.TB, dir string, args ...string) string {
	tb.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		tb.Fatalf("git %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}

func branches(n int) []string {
	refs := make([]string, n)
	for i := range refs {
		refs[i] = fmt.Sprintf("refs/heads/b%05d", i)
	}
	return refs
}
