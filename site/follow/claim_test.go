package follow

import (
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"github.com/globalrefdb/globalrefdb/internal/gitrepo"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/moves"
	"github.com/globalrefdb/globalrefdb/site/wire"
)

// A follower's git runs no hooks, so the daemon refuses what they would have refused: before it reads
// refs, and again before it moves them.
func TestAFollowerMovesNothingThatHooksWouldRefuse(t *testing.T) {
	t.Parallel()
	const project, ref = "team/app", "refs/heads/main"
	for name, c := range map[string]struct {
		mode string
		id   string // that the repository has
		want string // "" if refs may move
	}{
		"its project's copy":               {config.Enforce, "AN-ID", ""},
		"a copy of another project":        {config.Enforce, "ANOTHER", "not a copy of the project " + project},
		"refs are compared before enforce": {config.Comparing, "AN-ID", wire.Comparing(project)},
		"a removed project":                {config.Removed, "AN-ID", wire.RemovedProject(project)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, repo := newRepository(t, project, c.id)
			list := &moves.List{}
			list.Open(t.Context(), t.TempDir(), "boot", filepath.Join(t.TempDir(), "note"), slog.New(slog.DiscardHandler))
			defer list.Close()
			marks := moves.NewMarks()
			f := newFollower(t, driver.Project{Project: project, ID: "AN-ID", Mode: c.mode}, Options{
				Moves: list, Marks: &marks, Killed: func(string, []string) { t.Error("git was killed") },
			})
			check := func(what string, err error) {
				t.Helper()
				if (c.want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), c.want) {
					t.Errorf("%s: %v", what, err)
				}
			}
			m := f.Mover(r, repo)
			release, _, err := m.Claim(t.Context(), []string{ref})
			if check("the claim", err); err == nil {
				release()
			}
			if f.o.Claims.Followed(project) {
				t.Error("a claim is left")
			}
			id := git(t, r.Path, "-c", "user.name=n", "-c", "user.email=e", "commit-tree", "-m", "x", git(t, r.Path, "hash-object", "-t", "tree", "-w", "/dev/null"))
			listed := list.Count()
			check("the move", m.Move(t.Context(), []gitrepo.Move{{Ref: ref, To: id}}))
			if moved := git(t, r.Path, "for-each-ref") != ""; moved != (c.want == "") || moved != (list.Count() > listed) {
				t.Errorf("moved: %t, listed: %t", moved, list.Count() > listed)
			}
		})
	}
}
