package site_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/internal/sitetest"
	"github.com/globalrefdb/globalrefdb/site/projects"
	"github.com/globalrefdb/globalrefdb/site/wire"
)

// projectWrites lets a test stand between the daemon and its writes of projects.
type projectWrites struct {
	refdb.Driver
	put func(refdb.Driver, context.Context, driver.ProjectRequest) (driver.Project, error)
}

func (d *projectWrites) Unwrap() refdb.Driver { return d.Driver }

func (d *projectWrites) PutProject(ctx context.Context, r driver.ProjectRequest) (driver.Project, error) {
	return d.put(d.Driver, ctx, r)
}

// A guard that is killed, or gives up, while the row is written has made nothing, and the row is taken back.
func TestACreationThatIsGivenUpWhileItsRowIsWritten(t *testing.T) {
	t.Parallel()
	for _, end := range []string{"killed", "reported", "the session broke"} {
		t.Run(end, func(t *testing.T) {
			t.Parallel()
			g := creating(t, sessionDatabase(t), "eu-1")
			written, goOn := make(chan struct{}), make(chan struct{})
			g.driver = func(d refdb.Driver) refdb.Driver {
				return &projectWrites{d, func(d refdb.Driver, ctx context.Context, r driver.ProjectRequest) (driver.Project, error) {
					row, err := d.PutProject(ctx, r)
					if r.Project == "new/one" && r.Mode == config.Enforce {
						close(written)
						<-goOn
					}
					return row, err
				}}
			}
			g.start()
			j := g.jgitChild().session()
			tx := j.create("new/one")
			<-written
			switch end {
			case "killed":
				j.kill()
			case "reported":
				j.say(wire.Report{TX: tx})
				j.ping()
			case "the session broke":
				j.conn.Close()
				other := g.jgit()
				other.session()
				sitetest.Eventually(t, "the daemon has noticed", func() bool {
					for _, s := range g.status().Sessions {
						if s.PID == j.child.Process.Pid && s.State != "open" {
							return true
						}
					}
					return false
				})
			}
			close(goOn)
			g.nothingLeft("new/one")
			if row := g.projectRow("new/one"); row.Mode != config.Removed {
				t.Errorf("%+v", row)
			}
		})
	}
}

// A write of the row whose reply was lost may come after the creation has failed: then it changes nothing.
func TestARowThatIsWrittenTooLate(t *testing.T) {
	t.Parallel()
	g := creating(t, sessionDatabase(t), "eu-1")
	var late func() error
	g.driver = func(d refdb.Driver) refdb.Driver {
		return &projectWrites{d, func(d refdb.Driver, ctx context.Context, r driver.ProjectRequest) (driver.Project, error) {
			if r.Project == "new/one" && r.Mode == config.Enforce {
				late = func() error { _, err := d.PutProject(context.Background(), r); return err }
				return driver.Project{}, refdb.ErrOutcomeUnknown
			}
			return d.PutProject(ctx, r)
		}}
	}
	g.start()
	j := g.jgit().session()
	if m := j.answer(j.create("new/one")); m != (refusedAs{"final", "database"}) {
		t.Errorf("the daemon said %+v", m)
	}
	g.nothingLeft("new/one")
	if err := late(); !errors.Is(err, refdb.ErrMismatch) {
		t.Errorf("the late write ends with %v", err)
	}
	if row := g.projectRow("new/one"); row.Mode != config.Removed {
		t.Errorf("%+v", row)
	}
}

// A database that is down leaves nothing to undo: the name can be used as soon as it is back.
func TestACreationWithoutADatabase(t *testing.T) {
	t.Parallel()
	g := creating(t, sessionDatabase(t), "eu-1")
	down := atomic.Bool{}
	g.driver = func(d refdb.Driver) refdb.Driver {
		return &projectWrites{d, func(d refdb.Driver, ctx context.Context, r driver.ProjectRequest) (driver.Project, error) {
			if down.Load() {
				return driver.Project{}, errors.New("it is down")
			}
			return d.PutProject(ctx, r)
		}}
	}
	g.start()
	j := g.jgit().session()
	down.Store(true)
	if m := j.answer(j.create("new/one")); m != (refusedAs{"final", "database"}) {
		t.Errorf("the daemon said %+v", m)
	}
	down.Store(false)
	j.createdWhole("new/one")
}

// What another site or an operator has done about the name meanwhile stands.
func TestACreationWhoseProjectWasChangedMeanwhile(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		change func(*testing.T, *guard)
		refuse any
		mode   string
	}{
		{"removed", func(t *testing.T, g *guard) {
			if _, _, err := projects.Remove(t.Context(), g.db, g.projectRow("new/one")); err != nil {
				t.Fatal(err)
			}
		}, refusedAs{"final", "other"}, config.Removed},
		{"of another site by now", func(t *testing.T, g *guard) {
			row := g.projectRow("new/one")
			row.ID = "another"
			if _, err := g.db.Projects().Put(t.Context(), row); err != nil {
				t.Fatal(err)
			}
		}, refusedAs{"final", "exists"}, config.Enforce},
		{"used at another site, which took it for its own", func(t *testing.T, g *guard) {
			if _, err := g.db.Put(t.Context(), "new/one", metaConfig, refdb.Value(g.commit[0])); err != nil {
				t.Fatal(err)
			}
		}, refusedAs{"retry", "behind"}, config.Enforce},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			g := creating(t, sessionDatabase(t), "eu-1", "\tlockWait = 100ms")
			g.start()
			j := g.jgit().session()
			tx := j.mayCreate("new/one")
			a := j.make("new/one")
			c.change(t, g)
			want := g.projectRow("new/one")
			if m := j.answer(j.announce(line(metaConfig, "", a))); m != c.refuse {
				t.Errorf("the daemon said %+v", m)
			}
			j.report(tx)
			if there(g.repo) {
				t.Error("the repository is there")
			}
			if row := g.projectRow("new/one"); row.ID != want.ID || row.Revision != want.Revision || row.Mode != c.mode {
				t.Errorf("%+v, want %+v", row, want)
			}
		})
	}
}

// A repository that is at the path of a creation that has failed is removed only if it was made for that, and has no ref.
func TestWhatIsNotOfTheCreationStays(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*jgit){
		"a ref, moved past the guard": func(j *jgit) { j.move(line("refs/heads/theirs", "", j.make("new/one"))) },
		"a packed one": func(j *jgit) {
			j.move(line("refs/heads/theirs", "", j.make("new/one")))
			j.g.git("-c", "core.hooksPath=/dev/null", "pack-refs", "--all")
		},
		"a copy of another project": func(j *jgit) { j.make("new/one"); j.g.git("config", "refdb.projectid", "another") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := created(t)
			j := g.jgit().session()
			tx := j.mayCreate("new/one")
			change(j)
			j.report(tx)
			if !there(filepath.Join(g.path("new/one"), "HEAD")) || g.noted("creations") != 0 {
				t.Errorf("it is gone, or %d creations are noted", g.noted("creations"))
			}
		})
	}
}

// Other sites have nothing of a project before it has a ref, and then all.
func TestAProjectIsClonedOnceItHasARef(t *testing.T) {
	t.Parallel()
	shared := sessionDatabase(t)
	g := creating(t, shared, "eu-1")
	g.start()
	other := creating(t, shared, "us-1", "	autoClone = true")
	other.start()
	m := other.reader()
	j := g.jgit().session()
	tx := j.mayCreate("new/one")
	a := j.make("new/one")
	other.repo = other.path("new/one")
	if err := other.daemon.CloneNow(t.Context(), "new/one"); err == nil || there(other.repo) {
		t.Errorf("it was cloned without a ref: %v", err)
	}
	move := line(metaConfig, "", a)
	first := j.granted(move)
	j.move(move)
	j.report(first)
	j.report(tx)
	sitetest.Eventually(t, "the other site has it", func() bool { return other.local(metaConfig) == a })
	m.waits("-")
	for _, b := range other.status().Behind {
		t.Errorf("the status says %+v", b)
	}
}

// A repository in which a transaction is open is not looked at: it may get a ref.
func TestACreationThatIsReportedWhileATransactionIsOpen(t *testing.T) {
	t.Parallel()
	g := created(t)
	j, other := g.jgit().session(), g.jgitChild().session()
	tx := j.mayCreate("new/one")
	move := line(metaConfig, "", j.make("new/one"))
	first := other.granted(move)
	j.report(tx)
	g.reconciled()
	if !there(g.repo) {
		t.Fatal("the repository is gone")
	}
	other.move(move)
	other.report(first)
	g.reload()
	sitetest.Eventually(t, "it is complete", func() bool { return g.noted("creations") == 0 })
	if row := g.projectRow("new/one"); row.Mode != config.Enforce || g.local(metaConfig) != move.New {
		t.Errorf("%+v, the repository has %q", row, g.local(metaConfig))
	}
}

// A daemon that was killed between the rename of a repository and the last look at it has lost nothing.
func TestARepositoryThatWasRenamedIsLookedAtOnceMore(t *testing.T) {
	t.Parallel()
	for _, hasRef := range []bool{true, false} {
		t.Run(fmt.Sprintf("has a ref %v", hasRef), func(t *testing.T) {
			t.Parallel()
			g := created(t)
			j := g.jgitChild().session()
			j.mayCreate("new/one")
			a := j.make("new/one")
			if hasRef {
				j.move(line(metaConfig, "", a))
			}
			m := g.reader()
			g.halt()
			j.kill()
			aside := filepath.Join(g.dir, "git/new", config.Unfinished+"creation-"+g.projectRow("new/one").ID)
			if err := os.Rename(g.repo, aside); err != nil {
				t.Fatal(err)
			}
			g.start()
			m.connect()
			m.waits("-") // also if it came back: a Gerrit may have looked meanwhile
			if !hasRef {
				g.nothingLeft("new/one")
				return
			}
			sitetest.Eventually(t, "it is complete", func() bool { return g.noted("creations") == 0 })
			if g.local(metaConfig) != a || there(aside) || g.projectRow("new/one").Mode != config.Enforce {
				t.Errorf("%+v, the repository has %q", g.projectRow("new/one"), g.local(metaConfig))
			}
		})
	}
}

// What begins to work in a repository meanwhile has it first.
func TestACreationIsUndoneWhileNothingElseWorksThere(t *testing.T) {
	t.Parallel()
	g := created(t)
	j := g.jgit().session()
	tx := j.mayCreate("new/one")
	move := line(metaConfig, "", j.make("new/one"))
	release, err := g.daemon.Share(t.Context(), g.repo)
	if err != nil {
		t.Fatal(err)
	}
	j.say(wire.Report{TX: tx})
	sitetest.Eventually(t, "the daemon waits", func() bool { return g.daemon.AwaitedAlone(g.repo) })
	j.move(move)
	release()
	j.settled(tx)
	if row := g.projectRow("new/one"); row.Mode != config.Enforce || g.local(metaConfig) != move.New {
		t.Errorf("%+v, the repository has %q", row, g.local(metaConfig))
	}
}
