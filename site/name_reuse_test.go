package site_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/internal/sitetest"
	"github.com/globalrefdb/globalrefdb/site/projects"
	"github.com/globalrefdb/globalrefdb/test/dbtest/local"
)

// Whoever gets a name that was another project's must not get its refs.
func TestARepositoryBecomesACopyOfAKnownProjectOnlyIfThatIsSaid(t *testing.T) {
	t.Parallel()
	const (
		known    = "the project team/app already exists in the database"
		empty    = "this repository is empty and records no project"
		noSuch   = "so this repository can't be its copy"
		needsNew = "run the command with --new"
		recorded = ""
	)
	for name, row := range map[string]struct {
		unknown, refs, own bool      // the database does not know the project; the repository has refs; it records the project's ID
		want               [4]string // of no claim, --new, --copy, and a name that is right
	}{
		"an empty repository":                           {want: [4]string{empty, known, recorded, empty}},
		"one with refs of the project":                  {refs: true, want: [4]string{recorded, known, recorded, recorded}},
		"the project's own":                             {refs: true, own: true, want: [4]string{recorded, recorded, recorded, recorded}},
		"the project's own, empty":                      {own: true, want: [4]string{recorded, recorded, recorded, recorded}},
		"an empty repository of a name that nobody had": {unknown: true, want: [4]string{recorded, recorded, noSuch, recorded}},
		"one with refs, under a name that nobody had":   {unknown: true, refs: true, want: [4]string{needsNew, recorded, noSuch, recorded}},
	} {
		for claim, want := range row.want {
			t.Run(name+"/"+[4]string{"no claim", "new", "copy", "named"}[claim], func(t *testing.T) {
				t.Parallel()
				for _, store := range []string{config.StoreAll, ""} {
					g := idleGuard(t, local.SQLite(t), "eu-1")
					project := g.project()
					project.Store = store
					_, err := g.db.Projects().Put(t.Context(), project)
					if err == nil && !row.unknown {
						_, err = g.db.Put(t.Context(), "team/app", "refs/heads/secret", refdb.Value(g.commit[0]))
					}
					if err != nil {
						t.Fatal(err)
					}
					if row.unknown {
						g.shared.Exec(t, `DELETE FROM projects`)
					}
					if !row.own {
						g.git("config", "--unset", "refdb.projectid")
					}
					if row.refs {
						g.loose("refs/heads/secret", g.commit[0])
					}
					c, err := config.Load(t.Context(), g.config)
					if err != nil {
						t.Fatal(err)
					}
					r, err := c.Repository("team/app")
					if err != nil {
						t.Fatal(err)
					}
					did, err := projects.Register(t.Context(), c, g.db, r, projects.Claim(claim))
					if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
						t.Errorf("%q, %v, want %q", did, err, want)
					}
					id, _ := exec.Command("git", "--git-dir="+g.repo, "config", "refdb.projectid").Output()
					if (len(id) > 0) != (row.own || err == nil) {
						t.Errorf("after %v it records %q", err, id)
					}
				}
			})
		}
	}
}

// A repository with hooks from the beginning, such as from git's init.templateDir, is put under guard by its first push.
func TestAPushMakesNoCopyOfAProjectThatHadTheNameBefore(t *testing.T) {
	t.Parallel()
	g := idleGuard(t, local.SQLite(t), "eu-1")
	if _, err := g.db.Put(t.Context(), "team/app", "refs/heads/secret", refdb.Value(g.commit[0])); err != nil {
		t.Fatal(err)
	}
	g.git("config", "--unset", "refdb.projectid")
	g.start()
	said := g.fails("update-ref", "refs/heads/x", g.commit[1])
	sitetest.Contains(t, said, "records no project")
	sitetest.Contains(t, said, "refdbctl site enable --copy team/app")
	if v, err := g.db.Get(t.Context(), "team/app", "refs/heads/x"); err != nil || v != refdb.Unknown {
		t.Errorf("the database has %q, %v", v, err)
	}
	if _, err := os.Stat(filepath.Join(g.repo, "refs/heads/secret")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("it has the earlier project's ref: %v", err)
	}
}
