package gitrepo

import (
	"bytes"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The process that writes git's input may be killed at any byte.
func TestATransactionThatIsCutOffMovesNothing(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "a.git")
	git := func(in []byte, args ...string) (string, error) {
		cmd := exec.CommandContext(t.Context(), "git", append([]string{"-C", dir}, args...)...)
		cmd.Stdin = bytes.NewReader(in)
		out, err := cmd.Output()
		return strings.TrimSpace(string(out)), err
	}
	must := func(args ...string) string {
		t.Helper()
		out, err := git(nil, args...)
		if err != nil {
			t.Fatalf("git %q: %v", args, err)
		}
		return out
	}
	if out, err := exec.CommandContext(t.Context(), "git", "init", "--quiet", "--bare", dir).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	id := must("-c", "user.name=n", "-c", "user.email=e", "commit-tree", "-m", "x", must("hash-object", "-t", "tree", "-w", "/dev/null"))
	whole := transaction([]Move{{Ref: "refs/heads/x", To: id}, {Ref: "refs/heads/y", To: id}}, "commit\x00")
	refs := func() string { return must("for-each-ref", "--format=%(refname)") }
	// Between the commands, and in the middle of an object ID.
	cuts := []int{len(whole) - len("commit\x00"), len(whole) - len("prepare\x00commit\x00"), bytes.Index(whole, []byte(id)) + len(id) + 1, bytes.LastIndex(whole, []byte(id)) + 6}
	for _, cut := range cuts {
		if _, err := git(whole[:cut], "update-ref", "--no-deref", "--stdin", "-z"); refs() != "" {
			t.Errorf("cut off after %d bytes, git moved %s (%v)", cut, refs(), err)
		}
	}
	if _, err := git(whole, "update-ref", "--no-deref", "--stdin", "-z"); err != nil || refs() != "refs/heads/x\nrefs/heads/y" {
		t.Errorf("git moved %s: %v", refs(), err)
	}
}
