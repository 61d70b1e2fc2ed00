package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/cli"
	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/exit"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/drivers"
	"github.com/globalrefdb/globalrefdb/refdb/memory"
	"github.com/globalrefdb/globalrefdb/test/dbtest"
)

// asProgram makes the test binary run as refdbctl, for tests that need a process of
// its own: signals, terminals, kill -9.
const asProgram = "REFDBCTL_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == childArgument {
		os.Exit(childMain(os.Args[2]))
	}
	if path := os.Getenv(asGerrit); path != "" {
		os.Exit(gerritMain(path, os.Getenv(asGerritOf)))
	}
	if os.Getenv(asProgram) != "" {
		main()
	}
	// The first call starts a goroutine that lasts. A bubble of testing/synctest would wait for its end.
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGCONT)
	signal.Stop(signals)
	// Most tests wait for processes, or for what a daemon does by and by.
	flag.Parse()
	if n := flag.Lookup("test.parallel"); n.Value.String() == n.DefValue {
		n.Value.Set(strconv.Itoa(4 * runtime.GOMAXPROCS(0)))
	}
	// Hooks and daemons wait for each other as long as tests do.
	os.Setenv("REFDB_HOOK_TIMEOUT", patience.String())
	code := m.Run()
	dbtest.Stop()
	// The Spanner client starts this goroutine, and nothing ends it.
	census := goleak.IgnoreTopFunction("go.opencensus.io/stats/view.(*worker).start")
	if err := dbtest.Leaks(census); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// world is a database, and the environment of the runs of refdbctl in a test.
type world struct {
	*dbtest.Database
	memory *memory.Database // in its place, in a bubble
	env    map[string]string
	// daemonPatience, unless zero, is how long commands wait for the site's daemon.
	daemonPatience time.Duration
	// settle, unless zero, is how long sites may use earlier rules of a project.
	settle time.Duration
	// wrap, unless nil, wraps the program's driver.
	wrap func(refdb.Driver) refdb.Driver
	// down, unless nil, returns the error that opening the database fails with.
	down func() error
}

func newWorld(tb testing.TB) *world {
	tb.Helper()
	db := dbtest.SQLite(tb)
	return &world{Database: db, env: map[string]string{"REFDB_URL": db.URL(), "REFDB_SITE": "here"}}
}

// inBubble runs a test on a database in memory in a bubble of testing/synctest: there a limit ends what waits, and
// nothing that takes long. A command can't run under a lock: its end is told by a signal, from outside.
func inBubble(t *testing.T, test func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		test(t, &world{memory: memory.New(), env: map[string]string{"REFDB_URL": "sqlite:unused", "REFDB_SITE": "here"}})
	})
}

// result is the exit status and the output of a run.
type result struct {
	code     int
	out, err string
}

func (w *world) run(tb testing.TB, args ...string) result {
	tb.Helper()
	return w.runIn(tb, tb.Context(), args...)
}

func (w *world) runIn(tb testing.TB, ctx context.Context, args ...string) result {
	tb.Helper()
	var out, messages bytes.Buffer
	a := w.app(cli.Streams{In: strings.NewReader(""), Out: &out, Err: &messages})
	code := a.Report(a.run(ctx, patient(args)))
	return result{code, out.String(), messages.String()}
}

// app returns a run of the program in this world.
func (w *world) app(s cli.Streams) *app {
	s.Env = func(name string) string { return w.env[name] }
	a := newApp(s)
	a.DaemonPatience, a.Settle = cmp.Or(w.daemonPatience, patience), w.settle
	a.OpenDriver = func(ctx context.Context, url string) (refdb.Driver, error) {
		if w.down != nil {
			if err := w.down(); err != nil {
				return nil, err
			}
		}
		open := drivers.Open
		if w.memory != nil {
			open = func(context.Context, string) (refdb.Driver, error) { return w.memory.Open(), nil }
		}
		d, err := open(ctx, url)
		if err != nil || w.wrap == nil {
			return d, err
		}
		return w.wrap(d), nil
	}
	return a
}

// patient returns the command line with limits that only a hang reaches, unless it names others.
func patient(args []string) []string {
	if len(args) == 0 || strings.HasPrefix(args[0], "__") { // completion
		return args
	}
	if args[0] == "lock" {
		args = slices.Insert(slices.Clone(args), 1, patientLock)
	}
	return append([]string{"--timeout=" + patience.String()}, args...)
}

const (
	// patience is how long tests wait for what must happen: only a hang takes as long.
	patience = 5 * time.Minute
	// patientLock keeps a lock fresh however slow the machine is.
	patientLock = "--stale-after=1h"
)

// do is run for commands that must succeed. It returns the output.
func (w *world) do(tb testing.TB, args ...string) string {
	tb.Helper()
	r := w.run(tb, args...)
	r.is(tb, exit.OK, "")
	return r.out
}

// is checks the status, and that the messages contain says, but nothing that looks
// like a stack trace or a usage text.
func (r result) is(tb testing.TB, code int, says string) {
	tb.Helper()
	if r.code != code || !strings.Contains(r.err, says) {
		tb.Errorf("status %d, want %d with %q; stderr:\n%s\nstdout:\n%s", r.code, code, says, r.err, r.out)
	}
	if strings.Contains(r.err, "goroutine ") || strings.Contains(r.err, "Usage:") {
		tb.Errorf("stderr is not for people:\n%s", r.err)
	}
}

// isOneLine checks that an error is reported in one line.
func (r result) isOneLine(tb testing.TB) {
	tb.Helper()
	if !strings.HasPrefix(r.err, "refdbctl: ") || strings.Count(r.err, "\n") != 1 {
		tb.Errorf("not one line: %q", r.err)
	}
}

// isTwoLines checks that an error is reported in one line after another that begins
// with first.
func (r result) isTwoLines(tb testing.TB, first string) {
	tb.Helper()
	one, two, _ := strings.Cut(r.err, "\n")
	if !strings.HasPrefix(one, "refdbctl: "+first) {
		tb.Errorf("the first line is %q, not %q", one, first)
	}
	result{r.code, r.out, two}.isOneLine(tb)
}

// decode reads JSON output.
func decode[T any](tb testing.TB, text string) T {
	tb.Helper()
	var v T
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		tb.Fatalf("%v in %q", err, text)
	}
	return v
}

// program returns refdbctl as a process of its own, not yet started.
func (w *world) program(tb testing.TB, args ...string) *exec.Cmd {
	tb.Helper()
	self, err := os.Executable()
	if err != nil {
		tb.Fatal(err)
	}
	cmd := exec.CommandContext(tb.Context(), self, patient(args)...)
	cmd.WaitDelay = patience
	// By default the race detector sleeps for a second at the end of each process.
	cmd.Env = append(os.Environ(), asProgram+"=1", "GORACE=atexit_sleep_ms=0")
	for name, value := range w.env {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	return cmd
}

// ignored are the signals that this process was told to ignore, as by nohup or in the background of a script.
var ignored = slices.DeleteFunc([]os.Signal{syscall.SIGINT, syscall.SIGHUP}, func(s os.Signal) bool { return !signal.Ignored(s) })

// startForeground starts a program that heeds signals, as a shell does in the foreground. It would inherit those that
// are ignored here, and refdbctl keeps to that; but not those that are caught.
func startForeground(cmd *exec.Cmd) error {
	if len(ignored) > 0 {
		caught := make(chan os.Signal, 1)
		signal.Notify(caught, ignored...)
		defer signal.Stop(caught)
	}
	return cmd.Start()
}

// within returns the result of a run that a limit ends, once its messages have all of says. On a machine that is too slow to
// come so far, the limit is doubled.
func within(limit time.Duration, run func(limit string) result, says ...string) result {
	for ; ; limit *= 2 {
		r := run(limit.String())
		lacks := func(text string) bool { return !strings.Contains(r.err, text) }
		if limit > patience || !slices.ContainsFunc(says, lacks) {
			return r
		}
	}
}

// eventually waits until ok returns true.
func eventually(tb testing.TB, what string, ok func() bool) {
	tb.Helper()
	for deadline, pause := time.Now().Add(patience), 5*time.Millisecond; !ok(); time.Sleep(pause) {
		if time.Now().After(deadline) {
			tb.Fatalf("not within %s: %s", patience, what)
		}
		pause = min(2*pause, 100*time.Millisecond)
	}
}

// open returns the library on the same database, as another site.
func (w *world) open(tb testing.TB) *refdb.DB {
	tb.Helper()
	var driver refdb.Driver
	if w.memory != nil {
		driver = w.memory.Open() // DB.Close closes it
	} else {
		driver = w.Open(tb)
	}
	db, err := refdb.New(driver, refdb.Options{Site: "there", StaleAfter: time.Hour})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { db.Close() })
	return db
}

func (w *world) isFree(tb testing.TB, refs ...string) {
	tb.Helper()
	for _, ref := range refs {
		if l, ok := w.RowLock(tb, "p", ref); ok {
			tb.Errorf("%s is locked by %s", ref, l.Owner)
		}
	}
}

func id(digit string) string { return strings.Repeat(digit, 40) }

const mainRef = "refs/heads/main"
