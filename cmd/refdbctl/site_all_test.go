package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/exit"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
)

// fleet adds n repositories to a site, copies of team/app: fleet/00 and so on.
func (s *gitSite) fleet(tb testing.TB, n int) (paths []string) {
	tb.Helper()
	root := filepath.Dir(filepath.Dir(s.repo.path))
	if err := os.Mkdir(filepath.Join(root, "fleet"), 0o755); err != nil {
		tb.Fatal(err)
	}
	for i := range n {
		path := filepath.Join(root, fmt.Sprintf("fleet/%02d.git", i))
		if out, err := exec.Command("cp", "-a", s.repo.path, path).CombinedOutput(); err != nil {
			tb.Fatalf("%v: %s", err, out)
		}
		paths = append(paths, path)
	}
	return paths
}

type bulkJSON struct {
	Repositories []struct {
		Result, Project, Detail           string
		Created, Updated, Missing, Failed int
	}
	Total, Reached, Failed                         int
	Guarded, Differ, Imported, Changed, Incomplete int
	Complete                                       bool
	DryRun                                         bool `json:"dry_run"`
}

func TestAllRepositoriesAreEnabledCheckedAndSynced(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	n := 20
	if testing.Short() {
		n = 6
	}
	// In texts, N is the number of repositories, and M is all but one.
	text := func(s string) string {
		return strings.NewReplacer("N*2", fmt.Sprint(2*(n+1)), "M*2", fmt.Sprint(2*n), "N", fmt.Sprint(n+1), "M", fmt.Sprint(n)).Replace(s)
	}
	a := w.newSite(t, "a", mainRef, "refs/tags/v1")
	paths := a.fleet(t, n)
	b := w.newSite(t, "b")
	pathsB := b.fleet(t, n)
	a.serve(t)
	b.serve(t)

	// One repository that can't be enabled stops no other.
	if err := os.WriteFile(filepath.Join(paths[3], "config"), []byte("["), 0o644); err != nil {
		t.Fatal(err)
	}
	r := a.site(t, "enable", "--all", "--new", "--hook", a.hook, "-o", "json")
	r.is(t, exit.Failed, text("N repositories: M guarded, M*2 refs imported, 1 failed"))
	got := decode[bulkJSON](t, r.out)
	if got.Total != n+1 || got.Reached != n+1 || got.Failed != 1 || got.Guarded != n || got.Imported != 2*n || got.Complete ||
		len(got.Repositories) != 1 || got.Repositories[0].Project != "fleet/03" || got.Repositories[0].Result != "failed" {
		t.Errorf("%+v", got)
	}
	check := a.site(t, "check", "--all")
	check.is(t, exit.Failed, text("checked N repositories: 1 finding"))
	if !strings.Contains(check.out, "fleet/03") {
		t.Error(check.out)
	}
	if out, err := exec.Command("cp", filepath.Join(a.repo.path, "config"), filepath.Join(paths[3], "config")).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	// That is of another project, which it says.
	if out, err := exec.Command("git", "config", "--file", filepath.Join(paths[3], "config"), "--unset", "refdb.projectid").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	a.site(t, "enable", "--all", "--new", "--hook", a.hook).is(t, exit.OK, text("N repositories: N guarded, 2 refs imported"))
	a.site(t, "check", "--all").is(t, exit.OK, text("checked N repositories: 0 findings"))

	// At b all is missing that the database has.
	b.site(t, "enable", "--all", "--copy", "--hook", b.hook).is(t, exit.OK, text("N repositories: N guarded, 0 refs imported"))
	from := filepath.Dir(filepath.Dir(a.repo.path)) + "/{project}.git"
	r = b.site(t, "sync", "--all", "--from", from, "--dry-run", "-o", "json")
	r.is(t, exit.OK, text("dry run: N with changes, N*2 created"))
	if got := decode[bulkJSON](t, r.out); got.Changed != n+1 || !got.DryRun || !got.Complete || len(got.Repositories) != n+1 || got.Repositories[0].Created != 2 {
		t.Errorf("%+v", got)
	}
	bad := filepath.Join(pathsB[5], "config")
	if err := os.Rename(bad, bad+".away"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(bad, []byte("["), 0o644); err != nil {
		t.Fatal(err)
	}
	r = b.site(t, "sync", "--all", "--from", from, "--peer", "a", "-o", "json")
	r.is(t, exit.Failed, text("N repositories: M with changes, M*2 created, 0 updated, 0 deleted, 0 locked, 0 moved meanwhile, 1 failed"))
	got = decode[bulkJSON](t, r.out)
	if got.Reached != n+1 || got.Failed != 1 || got.Changed != n || got.Complete {
		t.Errorf("%+v", got)
	}
	for _, row := range got.Repositories {
		if (row.Result == "failed") != (row.Project == "fleet/05") {
			t.Errorf("%+v", row)
		}
	}
	if err := os.Rename(bad+".away", bad); err != nil {
		t.Fatal(err)
	}
	b.site(t, "sync", "--all", "--from", from).is(t, exit.OK, text("N repositories: 1 with changes, 2 created"))
	b.site(t, "sync", "--all", "--from", from).is(t, exit.OK, text("N repositories: 0 with changes"))
	b.site(t, "sync", "--all", "--from", "/nowhere/{project}").is(t, exit.OK, text("fetching from the copies of N repositories failed"))
	b.site(t, "check", "--all").is(t, exit.OK, text("checked N repositories: 0 findings"))
}

func TestAllAndOneRepositoryAreToldApart(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.newSite(t, "a", mainRef)
	s.site(t, "enable").is(t, exit.Misuse, "name one repository, or give --all")
	s.site(t, "enable", "--all", "team/app").is(t, exit.Misuse, "name one repository, or give --all")
	s.site(t, "sync", "--from", "x").is(t, exit.Misuse, "name one repository, or give --all")
	s.site(t, "sync", "--from", "x", "--all").is(t, exit.Misuse, "put {project} where")
	s.site(t, "check", "--all", "team/app").is(t, exit.Misuse, "name repositories, or give --all")
}

// interrupting is a driver that calls arrive when the refs of a project are listed or updated.
type interrupting struct {
	refdb.Driver
	project string
	arrive  func()
	arrived <-chan struct{} // unless nil, what follows the project in order waits for it
}

func (d interrupting) List(ctx context.Context, q driver.RefQuery) (driver.RefPage, error) {
	d.asked(q.Project)
	return d.Driver.List(ctx, q)
}

func (d interrupting) Update(ctx context.Context, r driver.UpdateRequest) error {
	d.asked(r.Project)
	return d.Driver.Update(ctx, r)
}

func (d interrupting) asked(project string) {
	switch {
	case project == d.project:
		d.arrive()
	case d.arrived != nil && project > d.project:
		<-d.arrived
	}
}

// Ctrl-C ends work on many repositories in good order, and says how far it got.
func TestCtrlCInTheMiddleOfAFleet(t *testing.T) {
	t.Parallel()
	for _, command := range []string{"enable --all --hook HOOK", "sync --all --from /nowhere/{project}", "check --all"} {
		t.Run(command, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			s := w.newSite(t, "a", mainRef)
			for _, path := range s.fleet(t, 25) {
				wasGuarded(t, path)
			}
			s.serve(t)
			ctx, cancel := context.WithCancelCause(t.Context())
			asking := *w
			asking.wrap = func(d refdb.Driver) refdb.Driver {
				return interrupting{d, "fleet/05", func() { cancel(&exit.Interrupted{Signal: syscall.SIGINT}) }, ctx.Done()}
			}
			args := strings.Fields(strings.Replace(command, "HOOK", s.hook, 1))
			r := asking.runIn(t, ctx, append([]string{"site", args[0], "--config", s.config, "-o", "json"}, args[1:]...)...)
			r.is(t, exit.BySignal+int(syscall.SIGINT), "not finished: ")
			got := decode[struct {
				Complete, OK bool
				Reached      int
				LookedAt     int `json:"looked_at"`
			}](t, r.out)
			if n := got.Reached + got.LookedAt; got.Complete || got.OK || n > 25 || !strings.Contains(r.err, fmt.Sprintf("%d ", n)) {
				t.Errorf("%+v, %s", got, r.err)
			}
		})
	}
}
