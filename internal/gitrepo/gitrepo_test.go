package gitrepo_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/globalrefdb/globalrefdb/internal/gitrepo"
)

// newRepo makes a repository with one commit and returns its path and that commit.
func newRepo(tb testing.TB, args ...string) (dir, commit string) {
	tb.Helper()
	dir = filepath.Join(tb.TempDir(), "r")
	git(tb, "", append(append([]string{"init", "--quiet"}, args...), dir)...)
	tree := git(tb, dir, "hash-object", "-t", "tree", "-w", "/dev/null")
	commit = git(tb, dir, "-c", "user.name=n", "-c", "user.email=e", "commit-tree", "-m", "x", tree)
	git(tb, dir, "update-ref", "refs/heads/main", commit)
	git(tb, dir, "symbolic-ref", "HEAD", "refs/heads/main")
	return dir, commit
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

func write(tb testing.TB, text string, path ...string) {
	tb.Helper()
	file := filepath.Join(path...)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		tb.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		tb.Fatal(err)
	}
}

func refsOf(tb testing.TB, dir string) (refs []gitrepo.Ref, warnings []string) {
	tb.Helper()
	repo, err := gitrepo.Open(tb.Context(), dir)
	if err != nil {
		tb.Fatal(err)
	}
	for ref, err := range repo.Refs(tb.Context(), func(line string) { warnings = append(warnings, line) }) {
		if err != nil {
			tb.Fatal(err)
		}
		refs = append(refs, ref)
	}
	return refs, warnings
}

func TestRefsComeInByteOrderWithTheirValues(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{nil, {"--bare"}, {"--object-format=sha256"}} {
		t.Run(fmt.Sprint(args), func(t *testing.T) {
			dir, commit := newRepo(t, args...)
			names := []string{"refs/heads/main", "refs/heads/o'brien", "refs/heads/größe", "refs/heads/Z", "refs/tags/v1", "refs/heads/a/b",
				"refs/changes/01/1/meta", "refs/heads/not-utf8-\xff", "refs/x/" + strings.Repeat("deep/", 40) + "end"}
			for _, name := range names {
				git(t, dir, "update-ref", name, commit)
			}
			git(t, dir, "symbolic-ref", "refs/remotes/origin/HEAD", "refs/heads/main")
			want := []gitrepo.Ref{{Name: "refs/remotes/origin/HEAD", Value: "ref: refs/heads/main"}}
			for _, name := range names {
				want = append(want, gitrepo.Ref{Name: name, Value: commit})
			}
			slices.SortFunc(want, func(a, b gitrepo.Ref) int { return strings.Compare(a.Name, b.Name) })
			got, warnings := refsOf(t, dir)
			if !slices.Equal(got, want) {
				t.Errorf("got  %q\nwant %q", got, want)
			}
			if len(warnings) != 0 {
				t.Errorf("warnings: %q", warnings)
			}
		})
	}
}

func TestWhatGitRefusesIsReported(t *testing.T) {
	t.Parallel()
	dir, commit := newRepo(t)
	write(t, "garbage\n", dir, ".git/refs/heads/broken")
	write(t, commit+"\n", dir, ".git/refs/heads/two..dots")
	refs, warnings := refsOf(t, dir)
	if len(refs) != 1 {
		t.Errorf("refs: %q", refs)
	}
	for _, name := range []string{"refs/heads/broken", "refs/heads/two..dots"} {
		if !slices.ContainsFunc(warnings, func(w string) bool { return strings.HasSuffix(w, name) }) {
			t.Errorf("nothing about %s in %q", name, warnings)
		}
	}
}

func TestAnEmptyRepositoryHasNoRefs(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	git(t, dir, "init", "--quiet")
	if refs, _ := refsOf(t, dir); len(refs) != 0 {
		t.Errorf("got %q", refs)
	}
}

func TestHead(t *testing.T) {
	t.Parallel()
	dir, commit := newRepo(t)
	check := func(want gitrepo.Ref) {
		t.Helper()
		repo, err := gitrepo.Open(t.Context(), dir)
		if err != nil {
			t.Fatal(err)
		}
		got, err := repo.Head(t.Context())
		if err != nil || got != want {
			t.Errorf("got %q, %v, want %q", got, err, want)
		}
	}
	check(gitrepo.Ref{Name: "HEAD", Value: "ref: refs/heads/main"})
	git(t, dir, "symbolic-ref", "HEAD", "refs/heads/unborn")
	check(gitrepo.Ref{Name: "HEAD", Value: "ref: refs/heads/unborn"})
	// Git also reads what it would not write.
	git(t, dir, "symbolic-ref", "refs/heads/other", "refs/heads/main")
	for _, text := range []string{"ref: refs/heads/other\n", "ref:refs/heads/main\n", "ref: refs/heads/main", "ref:  refs/heads/main \r\n"} {
		write(t, text, dir, ".git/HEAD")
		check(gitrepo.Ref{Name: "HEAD", Value: "ref: refs/heads/main"})
	}
	if err := errors.Join(os.Remove(filepath.Join(dir, ".git/HEAD")), os.Symlink("refs/heads/main", filepath.Join(dir, ".git/HEAD"))); err != nil {
		t.Fatal(err)
	}
	check(gitrepo.Ref{Name: "HEAD", Value: "ref: refs/heads/main"})
	git(t, dir, "update-ref", "--no-deref", "HEAD", commit)
	check(gitrepo.Ref{Name: "HEAD", Value: commit})
}

func TestOpenTakesExactlyTheNamedRepository(t *testing.T) {
	t.Parallel()
	dir, _ := newRepo(t)
	write(t, "x", dir, "sub/file")
	file := filepath.Join(dir, "sub/file")
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	broken := t.TempDir()
	write(t, "garbage", broken, ".git/HEAD")
	for _, c := range []struct {
		name, path, says string
	}{
		{"a work tree's top", dir, ""},
		{"its .git", filepath.Join(dir, ".git"), ""},
		{"a symbolic link", link, ""},
		{"a directory inside a work tree", filepath.Join(dir, "sub"), "not a git repository"},
		{"a directory that is none", t.TempDir(), "not a git repository"},
		{"a broken repository", broken, "not a git repository"},
		{"a file", file, "not a directory"},
		{"a path that does not exist", filepath.Join(dir, "nowhere"), "no such file or directory"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := gitrepo.Open(t.Context(), c.path)
			switch {
			case c.says == "" && err != nil:
				t.Error(err)
			case c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "\n")):
				t.Errorf("got %v, want one line with %q", err, c.says)
			}
		})
	}
}

func TestAHooksEnvironmentDoesNotRedirectGit(t *testing.T) {
	dir, _ := newRepo(t)
	other, _ := newRepo(t)
	git(t, other, "update-ref", "refs/heads/other", "refs/heads/main")
	t.Setenv("GIT_DIR", filepath.Join(other, ".git"))
	if refs, _ := refsOf(t, dir); len(refs) != 1 {
		t.Errorf("got %q", refs)
	}
}

func TestStoppingEarlyAndCancelling(t *testing.T) {
	t.Parallel()
	dir, commit := newRepo(t)
	packed := "# pack-refs with: peeled fully-peeled sorted \n"
	for i := range 5000 {
		packed += fmt.Sprintf("%s refs/heads/b%04d\n", commit, i)
	}
	write(t, packed, dir, ".git/packed-refs")
	repo, err := gitrepo.Open(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, err := range repo.Refs(t.Context(), func(string) {}) {
		if err != nil {
			t.Fatal(err)
		}
		if n++; n == 3 {
			break
		}
	}
	cause := errors.New("interrupted by the test")
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	for _, err = range repo.Refs(ctx, func(string) {}) {
		cancel(cause)
	}
	if !errors.Is(err, cause) {
		t.Errorf("got %v, want the context's cause", err)
	}
}

func TestWithoutGitTheErrorSaysSo(t *testing.T) {
	dir, _ := newRepo(t)
	t.Setenv("PATH", t.TempDir())
	if _, err := gitrepo.Open(t.Context(), dir); err == nil || !strings.Contains(err.Error(), "install git") {
		t.Errorf("got %v", err)
	}
}
