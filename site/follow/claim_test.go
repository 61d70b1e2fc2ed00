package follow_test

import (
	"context"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"github.com/globalrefdb/globalrefdb/internal/gitrepo"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/memory"
	"github.com/globalrefdb/globalrefdb/site/claims"
	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/follow"
	"github.com/globalrefdb/globalrefdb/site/internal/sitetest"
	"github.com/globalrefdb/globalrefdb/site/modes"
	"github.com/globalrefdb/globalrefdb/site/mover"
	"github.com/globalrefdb/globalrefdb/site/policy"
	"github.com/globalrefdb/globalrefdb/site/projects"
	"github.com/globalrefdb/globalrefdb/site/serving"
	"github.com/globalrefdb/globalrefdb/site/wire"
	"github.com/globalrefdb/globalrefdb/site/witness"
)

// A follower's git runs no hooks, so the daemon refuses what they would have refused.
func TestAFollowerMovesNothingThatHooksWouldRefuse(t *testing.T) {
	t.Parallel()
	const project, ref = "team/app", "refs/heads/main"
	for name, c := range map[string]struct {
		row  refdb.Project
		id   string // that the repository has
		want string // "" if refs may move
	}{
		"its project's copy":               {refdb.Project{ID: "AN-ID", Mode: config.Enforce}, "AN-ID", ""},
		"a copy of another project":        {refdb.Project{ID: "AN-ID", Mode: config.Enforce}, "ANOTHER", "not a copy of the project " + project},
		"refs are compared before enforce": {refdb.Project{ID: "AN-ID", Mode: config.Comparing}, "AN-ID", wire.Comparing(project)},
		"a removed project":                {refdb.Project{ID: "AN-ID", Mode: config.Removed}, "AN-ID", wire.RemovedProject(project)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root := t.TempDir()
			r := config.Repository{Project: project, Path: filepath.Join(root, project+".git")}
			sitetest.GitIn(t, root, "init", "--quiet", "--bare", r.Path)
			db, err := refdb.New(memory.New().Open(), refdb.Options{Site: "b"})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { db.Close() })
			c.row.Project, c.row.Rules = project, "ref *"
			if _, err := db.PutProject(t.Context(), c.row); err != nil {
				t.Fatal(err)
			}
			if err := projects.RecordID(t.Context(), r, c.id); err != nil {
				t.Fatal(err)
			}
			repo, err := gitrepo.OpenDir(r.Path)
			if err != nil {
				t.Fatal(err)
			}
			state := serving.New(sitetest.SiteConfig(t, root, ""), nil)
			state.Inherit()
			state.Start()
			logged, held := modes.NewLogged(), &claims.Claims{}
			cache := &projects.Cache{}
			f := follow.New(db, follow.Options{
				State: state, Projects: cache, Claims: held, Mover: &mover.Mover{}, Witness: &witness.Witness{},
				Policy:  policy.New(policy.Policy{State: state, DB: db, Projects: cache, Logged: &logged, Logger: slog.New(slog.DiscardHandler)}),
				Changed: func(string, ...string) {},
			})
			release, _, err := f.Mover(r, repo).Claim(t.Context(), []string{ref})
			if err == nil {
				release()
			}
			if (c.want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("the claim: %v", err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			if again, others := held.Follow(ctx, project, []string{ref}); len(others) > 0 {
				t.Errorf("a claim is left: %v", others)
			} else {
				held.Release(again)
			}
		})
	}
}
