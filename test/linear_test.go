package test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/migrations"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/test/dbtest"
	"github.com/globalrefdb/globalrefdb/test/linearizability"
)

const (
	// seedVariable repeats the random choices of a run.
	seedVariable = "REFDB_TEST_SEED"

	// undecided limits a check. It usually takes less than a second, but minutes if many calls are unresolved.
	undecided = 10 * time.Minute
)

func TestGetUpdateLockAndReleaseAreLinearizable(t *testing.T) {
	onEach(t, func(t *testing.T, d *dbtest.Database) {
		r := newRun(t, d, false)
		all := []*process{r.start(t), r.start(t), r.start(t)}
		length := 2 * time.Second
		if testing.Short() {
			length = time.Second
		}
		r.last(t, length)
		r.stop(t, all)
		r.check(t)
	})
}

func TestTheyAreWhileConnectionsBreakAndProcessesDieAndFreeze(t *testing.T) {
	onEach(t, func(t *testing.T, d *dbtest.Database) {
		if testing.Short() && d.Kind().Dialect == migrations.Spanner {
			t.Skip("left out by -short: faults on the Spanner emulator, a quarter of a minute; make test-all runs it")
		}
		r := newRun(t, d, true)
		killed, frozen, other := r.start(t), r.start(t), r.start(t)
		r.last(t, time.Second)
		for _, p := range []*process{killed, frozen} {
			r.hold(t, p)
		}
		signal(t, killed, syscall.SIGKILL)
		signal(t, frozen, syscall.SIGSTOP)
		restarted := r.start(t)
		r.last(t, 3*r.stale)
		signal(t, frozen, syscall.SIGCONT)
		if got := frozen.ask(t, "use"); got == "ok" {
			t.Error("a process that was frozen past stale-after did what its lock guards")
		}
		// An update may be what ends a lock that is stale: then another holder dies.
		for deadline := time.Now().Add(patience); tally(r.read(t))["reclaimed"] == 0 && time.Now().Before(deadline); {
			another := r.start(t)
			r.hold(t, another)
			signal(t, another, syscall.SIGKILL)
			time.Sleep(3 * r.stale)
		}
		r.last(t, time.Second, "reclaimed", "unresolved")
		r.stop(t, []*process{frozen, other, restarted})
		r.check(t)
	})
}

func signal(t *testing.T, p *process, s syscall.Signal) {
	t.Helper()
	if err := p.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
}

// A run is some processes that record their calls on a database.
type run struct {
	database *dbtest.Database
	faults   bool
	env      []string
	seed     uint64
	stale    time.Duration // the longest lease so far
	dir      string
	files    []string
	follower *linearizability.Follower
}

func newRun(t *testing.T, d *dbtest.Database, faults bool) *run {
	t.Helper()
	r := &run{database: d, faults: faults, seed: rand.Uint64(), stale: historyStale, dir: t.TempDir()}
	if given := os.Getenv(seedVariable); given != "" {
		var err error
		if r.seed, err = strconv.ParseUint(given, 10, 64); err != nil {
			t.Fatalf("%s: %v", seedVariable, err)
		}
	}
	t.Logf("%s=%d repeats the random choices", seedVariable, r.seed)
	db, err := refdb.New(d.Open(t), refdb.Options{Site: "follower"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	begin, err := db.HistoryEnd(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	r.follower = linearizability.Follow(t.Context(), db, begin)
	if faults {
		r.env = cuttingProxy(t, d, rand.New(rand.NewPCG(r.seed, 0)))
	}
	return r
}

func (r *run) start(t *testing.T) *process {
	t.Helper()
	file := filepath.Join(r.dir, fmt.Sprint(len(r.files)+1, ".jsonl"))
	r.files = append(r.files, file)
	return startIn(t, r.env, r.database, "historian", file, fmt.Sprint(r.seed), fmt.Sprint(len(r.files)), fmt.Sprint(r.faults), r.stale.String())
}

// hold makes a process take locks that it keeps. Processes that start from then on have leases as long as that process needs.
func (r *run) hold(t *testing.T, p *process) {
	t.Helper()
	got := p.ask(t, "hold")
	stale, ok := strings.CutPrefix(got, "ok ")
	if !ok {
		t.Fatal(got)
	}
	lease, err := time.ParseDuration(stale)
	if err != nil {
		t.Fatal(err)
	}
	r.stale = max(r.stale, lease)
}

func (r *run) stop(t *testing.T, all []*process) {
	t.Helper()
	for _, p := range all {
		if got := p.ask(t, "stop"); got != "ok" {
			t.Error(got)
		}
		p.in.Close()
		if err := p.Wait(); err != nil {
			t.Error(err)
		}
	}
}

// last lets the processes work for that long, and until the history is worth
// checking.
func (r *run) last(t *testing.T, atLeast time.Duration, want ...string) {
	t.Helper()
	for _, result := range []linearizability.Result{linearizability.Done, linearizability.Locked, linearizability.Mismatch, linearizability.Lost} {
		want = append(want, string(result))
	}
	time.Sleep(atLeast)
	deadline := time.Now().Add(patience)
	for {
		seen := tally(r.read(t))
		missing := slices.DeleteFunc(slices.Clone(want), func(what string) bool { return seen[what] > 0 })
		if len(missing) == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("no call was %v: %v", missing, seen)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// read reads what the processes recorded so far.
func (r *run) read(t *testing.T) []linearizability.Op {
	t.Helper()
	var files []io.Reader
	for _, name := range r.files {
		f, err := os.Open(name)
		if errors.Is(err, os.ErrNotExist) {
			continue // not yet
		}
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		files = append(files, f)
	}
	ops, err := linearizability.Read(files...)
	if err != nil {
		t.Fatal(err)
	}
	return ops
}

// check checks what the processes recorded.
func (r *run) check(t *testing.T) {
	t.Helper()
	ops := r.read(t)
	start := time.Now()
	report := linearizability.Check(ops, undecided)
	t.Logf("%d calls, %v, leases of up to %s; checked in %s", len(ops), tally(ops), r.stale, time.Since(start).Round(time.Millisecond))
	if err := report.Err(); err != nil {
		t.Errorf("%v\n%s", err, r.keep(t, report))
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var projects []string
	for _, p := range report.Projects {
		projects = append(projects, p.Name)
	}
	n, err := r.follower.Check(ctx, projects)
	if err != nil || n == 0 {
		t.Errorf("the history of %d changes: %v", n, err)
	}
	t.Logf("the history has %d changes", n)
}

// tally counts the results of calls.
func tally(ops []linearizability.Op) map[string]int {
	n := make(map[string]int)
	for _, op := range ops {
		n[string(op.Output.Result)]++
		if op.Output.Unresolved || op.Output.Result == linearizability.Unknown {
			n["unresolved"]++
		}
		if len(op.Output.Reclaimed) > 0 {
			n["reclaimed"]++
		}
	}
	return n
}

// keep keeps the records of a failed run, with a picture of each project that is not linearizable.
func (r *run) keep(t *testing.T, report linearizability.Report) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "refdb-history-")
	if err == nil {
		err = os.CopyFS(dir, os.DirFS(r.dir))
	}
	for i, p := range report.Projects {
		if p.Verdict != linearizability.Illegal || err != nil {
			continue
		}
		var page *os.File
		if page, err = os.Create(filepath.Join(dir, fmt.Sprint(i, ".html"))); err == nil {
			err = p.Visualize(page)
			page.Close()
		}
	}
	if err != nil {
		return err.Error()
	}
	return "the records, and pictures of them, are in " + dir
}
