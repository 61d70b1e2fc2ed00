package follow

import (
	"log/slog"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/internal/gitrepo"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/memory"
	"github.com/globalrefdb/globalrefdb/site/claims"
	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/modes"
	"github.com/globalrefdb/globalrefdb/site/mover"
	"github.com/globalrefdb/globalrefdb/site/policy"
	"github.com/globalrefdb/globalrefdb/site/projects"
	"github.com/globalrefdb/globalrefdb/site/serving"
	"github.com/globalrefdb/globalrefdb/site/witness"
)

// git runs git in a repository, and returns its output.
func git(t *testing.T, dir string, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "git", append([]string{"-C", dir}, args...)...).CombinedOutput()
	if err != nil {
		t.Fatalf("git %q: %v\n%s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

// newRepository makes an empty repository that says that it is a copy of the project with an ID.
func newRepository(t *testing.T, project, id string) (config.Repository, *gitrepo.Repo) {
	t.Helper()
	r := config.Repository{Project: project, Path: t.TempDir()}
	git(t, r.Path, "init", "--quiet", "--bare")
	if err := projects.RecordID(t.Context(), r, id); err != nil {
		t.Fatal(err)
	}
	repo, err := gitrepo.OpenDir(r.Path)
	if err != nil {
		t.Fatal(err)
	}
	return r, repo
}

// newFollower returns a follower of a site whose database has one project.
func newFollower(t *testing.T, row driver.Project, o Options) *Follower {
	t.Helper()
	db, err := refdb.New(memory.New().Open(), refdb.Options{Site: "b"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	row.Rules = "ref *"
	if _, err := db.Projects().Put(t.Context(), row); err != nil {
		t.Fatal(err)
	}
	o.State = serving.New(&config.Config{Site: "b", Timeout: time.Minute}, nil)
	o.State.Inherit()
	o.State.Start()
	logged := modes.NewLogged()
	o.Projects, o.Claims, o.Mover, o.Witness = &projects.Cache{}, &claims.Claims{}, &mover.Mover{}, &witness.Witness{}
	o.Policy = policy.New(policy.Policy{State: o.State, DB: db, Projects: o.Projects, Logged: &logged, Logger: slog.New(slog.DiscardHandler)})
	o.Changed = func(string, ...string) {}
	return New(db, o)
}
