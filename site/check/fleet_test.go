package check_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/globalrefdb/globalrefdb/internal/testprogram"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/site/check"
	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/internal/sitetest"
)

// newFleet puts n repositories of one ref each under guard: team/0000 and so on.
func newFleet(tb testing.TB, n int) (*sitetest.Replicas, []config.Repository) {
	tb.Helper()
	r := sitetest.NewReplicas(tb)
	commit := r.B.Commit(tb, "c")
	r.B.Quietly(tb, "update-ref", sitetest.MainRef, commit)
	r.Serve(tb)
	if _, err := r.Enable(tb, sitetest.HookFile(tb, "")); err != nil {
		tb.Fatal(err)
	}
	root := filepath.Dir(filepath.Dir(r.B.Dir))
	var all []config.Repository
	for i := range n {
		name := fmt.Sprintf("team/%04d", i)
		dir := filepath.Join(root, name+".git")
		if out, err := exec.Command("cp", "-a", r.B.Dir, dir).CombinedOutput(); err != nil {
			tb.Fatalf("%v: %s", err, out)
		}
		if err := r.DB.Update(tb.Context(), name, []refdb.Update{{Ref: sitetest.MainRef, New: refdb.Value(commit)}}); err != nil {
			tb.Fatal(err)
		}
		all = append(all, config.Repository{Project: name, Path: dir})
	}
	return r, all
}

// fleetDriver counts what a check asks the database for.
type fleetDriver struct {
	refdb.Driver
	lists, intents, others atomic.Int64
	// failAfter, unless 0, is how many lists are answered.
	failAfter int64
	// waitFrom, unless "", is the first project that is not answered before its request's context ends.
	waitFrom string
}

func (d *fleetDriver) List(ctx context.Context, q driver.RefQuery) (driver.RefPage, error) {
	if n := d.lists.Add(1); d.failAfter > 0 && n > d.failAfter {
		return driver.RefPage{}, fmt.Errorf("gone: %w", context.DeadlineExceeded)
	}
	if d.waitFrom != "" && q.Project >= d.waitFrom {
		<-ctx.Done()
		return driver.RefPage{}, context.Cause(ctx)
	}
	return d.Driver.List(ctx, q)
}

func (d *fleetDriver) Intents(ctx context.Context, q driver.IntentQuery) (driver.IntentPage, error) {
	d.intents.Add(1)
	return d.Driver.Intents(ctx, q)
}

func (d *fleetDriver) States(ctx context.Context, project string, refs []string) ([]driver.State, error) {
	d.others.Add(1)
	return d.Driver.States(ctx, project, refs)
}

func (d *fleetDriver) Get(ctx context.Context, project string, refs []string) ([]refdb.Ref, error) {
	d.others.Add(1)
	return d.Driver.Get(ctx, project, refs)
}

// countGit has each start of git leave a byte in a file, and returns how many there were.
func countGit(t *testing.T) (starts func() int) {
	t.Helper()
	git, err := exec.LookPath("git")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	log := filepath.Join(dir, "starts")
	script := fmt.Sprintf("#!/bin/sh\nprintf x >>%s\nexec %s \"$@\"\n", log, git)
	if err := testprogram.Write(filepath.Join(dir, "git"), []byte(script)); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	return func() int {
		text, err := os.ReadFile(log)
		if err != nil {
			t.Fatal(err)
		}
		return len(text)
	}
}

// A check of many repositories is as long as what it starts and asks for each.
func TestACheckStartsTwoGitsAndAsksOnceForARepository(t *testing.T) {
	const n = 30
	r, repositories := newFleet(t, n)
	driver := &fleetDriver{Driver: r.Open(t)}
	db := r.OpenDB(t, driver)
	starts := countGit(t)
	var seen []int
	o := check.Options{Hook: sitetest.HookFile(t, ""), Progress: func(done, total int) {
		if seen = append(seen, done); total != n {
			t.Errorf("of %d", total)
		}
	}}
	if err := check.Run(t.Context(), r.Config, db, repositories, o, func(f check.Finding) { t.Errorf("%+v", f) }); err != nil {
		t.Fatal(err)
	}
	if got := starts(); got != 2*n {
		t.Errorf("git was started %d times, want %d", got, 2*n)
	}
	if l, i, o := driver.lists.Load(), driver.intents.Load(), driver.others.Load(); l != n || i != 2 || o != 0 {
		t.Errorf("%d lists, %d requests for intents, %d others; want %d, 2, 0", l, i, o, n)
	}
	if len(seen) != n || !slices.IsSorted(seen) || seen[n-1] != n {
		t.Errorf("progress: %v", seen)
	}
}

// One bad repository, whatever it is, stops no other.
func TestACheckOfManyRepositoriesGoesOnAfterABadOne(t *testing.T) {
	t.Parallel()
	r, repositories := newFleet(t, 20)
	spoil := func(i int, file, text string) {
		if err := os.WriteFile(filepath.Join(repositories[i].Path, file), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	spoil(3, "config", "[")
	if err := os.RemoveAll(repositories[7].Path); err != nil {
		t.Fatal(err)
	}
	spoil(11, "packed-refs", "rubbish\n")
	if err := os.Remove(filepath.Join(repositories[19].Path, "refdb/socket")); err != nil {
		t.Fatal(err)
	}
	var got []string
	err := check.Run(t.Context(), r.Config, r.DB, repositories, check.Options{Hook: sitetest.HookFile(t, "")}, func(f check.Finding) {
		got = append(got, f.Project+" "+f.Code)
	})
	want := []string{"team/0003 repository", "team/0007 repository", "team/0011 repository", "team/0019 socket"}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%v\ngot  %q\nwant %q", err, got, want)
	}
}

func TestACheckGoesOnWithoutADatabaseThatDoesNotAnswerAnyMore(t *testing.T) {
	t.Parallel()
	r, repositories := newFleet(t, 40)
	if err := os.Remove(filepath.Join(repositories[39].Path, "refdb/socket")); err != nil {
		t.Fatal(err)
	}
	driver := &fleetDriver{Driver: r.Open(t), failAfter: 5}
	var got []check.Finding
	err := check.Run(t.Context(), r.Config, r.OpenDB(t, driver), repositories, check.Options{}, func(f check.Finding) { got = append(got, f) })
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "35 of 40 repositories were not compared") ||
		len(got) != 1 || got[0].Code != check.SocketLink {
		t.Errorf("%v, %+v", err, got)
	}
	if n := driver.lists.Load(); n > 5+16 {
		t.Errorf("it was asked %d times", n)
	}
}

func TestACheckThatIsInterruptedTellsWhatItFound(t *testing.T) {
	t.Parallel()
	r, repositories := newFleet(t, 40)
	// So at most 10 and those that are checked at the same time can be reached, however slow the machine is.
	db := r.OpenDB(t, &fleetDriver{Driver: r.Open(t), waitFrom: repositories[10].Project})
	ctx, cancel := context.WithCancelCause(t.Context())
	stop := errors.New("stop")
	reached := 0
	err := check.Run(ctx, r.Config, db, repositories, check.Options{Progress: func(done, _ int) {
		if reached = done; done == 3 {
			cancel(stop)
		}
	}}, func(check.Finding) {})
	if !errors.Is(err, stop) || reached < 3 || reached > 10+16 {
		t.Errorf("%v after %d", err, reached)
	}
}

func TestRepositoriesAreDealtWithInParallelAndToldOfInOrder(t *testing.T) {
	t.Parallel()
	repositories := make([]config.Repository, 50)
	for i := range repositories {
		repositories[i].Project = fmt.Sprint(i)
	}
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var running, most atomic.Int64
		var order []string
		start := time.Now()
		config.InParallel(ctx, repositories, 8, func(_ context.Context, r config.Repository) string {
			most.Store(max(most.Load(), running.Add(1)))
			defer running.Add(-1)
			if r.Project == "4" {
				time.Sleep(time.Second) // the slow one holds up no other
			}
			time.Sleep(time.Millisecond)
			return r.Project
		}, func(r config.Repository, project string) {
			if order = append(order, project); r.Project != project {
				t.Errorf("%s for %s", project, r.Project)
			}
			if project == "40" {
				cancel()
			}
		})
		if took := time.Since(start); took > time.Second+10*time.Millisecond {
			t.Errorf("it took %s", took)
		}
		if len(order) != 50 || order[49] != "49" || most.Load() != 8 {
			t.Errorf("%d at a time; %v", most.Load(), order)
		}
		begun := 0
		config.InParallel(ctx, repositories, 8, func(context.Context, config.Repository) int { begun++; return 0 }, func(config.Repository, int) {})
		if begun != 0 {
			t.Errorf("%d begun after the end", begun)
		}
	})
}
