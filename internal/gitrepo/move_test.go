package gitrepo_test

import (
	"os/exec"
	"testing"

	"github.com/globalrefdb/globalrefdb/internal/gitrepo"
)

func TestAMoveIsMadeFromItsOldValueOnly(t *testing.T) {
	t.Parallel()
	const ref = "refs/heads/moved"
	for _, format := range []string{"sha1", "sha256"} {
		t.Run(format, func(t *testing.T) {
			t.Parallel()
			dir, first := newRepo(t, "--object-format="+format)
			tree := git(t, dir, "rev-parse", first+"^{tree}")
			second := git(t, dir, "-c", "user.name=n", "-c", "user.email=e", "commit-tree", "-m", "y", "-p", first, tree)
			repo := openDir(t, dir)
			for _, step := range []struct {
				name      string
				move      gitrepo.Move
				refused   bool
				holdsThen string
			}{
				{"create", gitrepo.Move{Ref: ref, To: first}, false, first},
				{"create again", gitrepo.Move{Ref: ref, To: second}, true, first},
				{"from another value", gitrepo.Move{Ref: ref, From: second, To: first}, true, first},
				{"move", gitrepo.Move{Ref: ref, From: first, To: second}, false, second},
				{"delete from another value", gitrepo.Move{Ref: ref, From: first}, true, second},
				{"delete", gitrepo.Move{Ref: ref, From: second}, false, ""},
			} {
				if err := repo.MoveWithoutHooks(t.Context(), step.move, "test"); (err != nil) != step.refused {
					t.Fatalf("%s: %v", step.name, err)
				}
				cmd := exec.Command("git", "rev-parse", "--quiet", "--verify", ref)
				cmd.Dir = dir
				out, _ := cmd.Output()
				if got := string(out); got != step.holdsThen && got != step.holdsThen+"\n" {
					t.Fatalf("%s: the ref holds %q, want %q", step.name, got, step.holdsThen)
				}
			}
		})
	}
}
