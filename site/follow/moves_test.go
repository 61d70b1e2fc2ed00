package follow

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/internal/gitrepo"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/moves"
)

// Pushes to other refs may hold a lock file that every move needs, in turn. A follower that met such
// a file waits for it from then on, as a push does: otherwise it would hardly ever find it free.
func TestAFollowerThatMetALockFileOfAllRefsWaitsForIt(t *testing.T) {
	t.Parallel()
	for name, waits := range map[string]bool{"in the attempt that met it": false, "in the next attempt": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const project = "team/app"
			r, repo := newRepository(t, project, "AN-ID")
			dir := r.Path
			id := git(t, dir, "-c", "user.name=n", "-c", "user.email=e", "commit-tree", "-m", "x", git(t, dir, "hash-object", "-t", "tree", "-w", "/dev/null"))
			git(t, dir, "update-ref", "refs/heads/x", id)
			list := &moves.List{}
			list.Open(t.Context(), t.TempDir(), "boot", filepath.Join(t.TempDir(), "note"), slog.New(slog.DiscardHandler))
			defer list.Close()
			marks := moves.NewMarks()
			f := newFollower(t, driver.Project{Project: project, ID: "AN-ID", Mode: config.Enforce}, Options{
				Moves: list, Marks: &marks, Killed: func(string, []string) { t.Error("git was killed") },
			})
			f.lockWait = 10 * time.Minute
			listed, mark := list.Count(), marks.Mark(dir)
			m := &claimedMoves{Follower: f, r: r, repo: repo, waits: waits}
			// Git needs this file to delete any ref.
			lock := filepath.Join(dir, "packed-refs.lock")
			if err := os.WriteFile(lock, nil, 0o644); err != nil {
				t.Fatal(err)
			}
			deletion := []gitrepo.Move{{Ref: "refs/heads/x", From: id}}
			if !waits {
				err := m.Move(t.Context(), deletion)
				if refused := (*gitrepo.RefusedError)(nil); !errors.As(err, &refused) || !refused.AllLocked || !m.held {
					t.Fatalf("the first move: %v, held: %t", err, m.held)
				}
				if list.Count() != listed || marks.Mark(dir) != mark {
					t.Error("a move that was not made is listed, or has raised the mark")
				}
			}
			moved := make(chan error, 1)
			go func() { moved <- m.Move(context.WithoutCancel(t.Context()), deletion) }()
			// Git locks the ref, and packed-refs next.
			for err := errors.ErrUnsupported; err != nil && len(moved) == 0; time.Sleep(time.Millisecond) {
				_, err = os.Lstat(filepath.Join(dir, "refs/heads/x.lock"))
			}
			if err := os.Remove(lock); err != nil {
				t.Fatal(err)
			}
			if err := <-moved; err != nil {
				t.Error(err)
			}
			if list.Count() != listed+1 || marks.Mark(dir) == mark {
				t.Error("the move is not listed, or has not raised the mark")
			}
		})
	}
}
