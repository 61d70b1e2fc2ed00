//go:build linux

package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/cli"
	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/exit"
	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/locking"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
)

var errRefused = fmt.Errorf("%w: connection refused", refdb.ErrUnavailable)

// outages counts the calls that are still to fail.
type outages struct{ left atomic.Int32 }

func (o *outages) next() error {
	if o.left.Add(-1) >= 0 {
		return errRefused
	}
	return nil
}

func outagesOf(n int32) *outages {
	o := new(outages)
	o.left.Store(n)
	return o
}

func TestTheStatusOfAConflictIsTheCallersToChoose(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	lock, err := w.open(t).TryLock(t.Context(), "p", mainRef)
	if err != nil {
		t.Fatal(err)
	}
	w.run(t, "lock", "p", mainRef, "--try", "--conflict-exit-code=75", "--", "true").is(t, 75, "ref is locked: p "+mainRef+" by "+lock.Owner())
	inBubble(t, func(t *testing.T, w *world) {
		lock, err := w.open(t).TryLock(t.Context(), "p", mainRef)
		if err != nil {
			t.Fatal(err)
		}
		w.run(t, "lock", "p", mainRef, "--wait=1s", "--conflict-exit-code=75", "--", "true").is(t, 75, "ref is locked: p "+mainRef+" by "+lock.Owner())
	})
	// Only of a conflict.
	w.run(t, "lock", "p", "refs/heads/other", "--conflict-exit-code=75", "--", "sh", "-c", "exit 3").is(t, 3, "")
}

func TestALockIsNotTakenAgainUnderItself(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t)
	for name, script := range map[string]string{
		"by the command itself":   `"$0" lock p ` + mainRef + ` ` + patientLock + ` -- touch "$1"`,
		"below a lock in between": `"$0" lock p refs/heads/b ` + patientLock + ` -- "$0" lock p ` + mainRef + ` -- touch "$1"`,
		"with others of its refs": `"$0" lock p refs/heads/c ` + mainRef + ` ` + patientLock + ` -- touch "$1"`,
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "done")
			cmd := w.program(t, "lock", "p", mainRef, "--", "sh", "-c", script, self, file)
			var messages strings.Builder
			cmd.Stderr = &messages
			stop := time.AfterFunc(patience, func() { cmd.Process.Kill() })
			defer stop.Stop()
			cmd.Run()
			r := result{code: cmd.ProcessState.ExitCode(), err: messages.String()}
			r.is(t, exit.Locked, "already runs under the lock on p "+mainRef)
			r.isOneLine(t)
			if _, err := os.Stat(file); err == nil {
				t.Error("the command ran")
			}
		})
	}
}

func TestADatabaseThatIsDownIsWaitedForWithinWait(t *testing.T) {
	t.Parallel()
	t.Run("when it is opened", func(t *testing.T) {
		w := newWorld(t)
		w.down = outagesOf(2).next
		r := w.run(t, "lock", "p", mainRef, "--wait=10m", "--", "echo", "done")
		r.is(t, exit.OK, "waiting: database unavailable")
		if r.out != "done\n" || strings.Count(r.err, "\n") != 1 {
			t.Errorf("%+v", r)
		}
	})
	t.Run("when it is asked", func(t *testing.T) {
		w := newWorld(t)
		faults := outagesOf(6) // more than the library tries by itself
		w.wrap = func(d refdb.Driver) refdb.Driver { return unacquirable{d, faults} }
		if r := w.run(t, "lock", "p", mainRef, "--wait=10m", "--", "echo", "done"); r.code != exit.OK || r.out != "done\n" {
			t.Errorf("%+v", r)
		}
	})
	t.Run("and no longer", func(t *testing.T) {
		inBubble(t, func(t *testing.T, w *world) {
			w.down = func() error { return errRefused }
			start := time.Now()
			r := w.run(t, "lock", "p", mainRef, "--wait=50s", "--", "true")
			r.is(t, exit.Failed, "not within --wait 50s: database unavailable")
			r.isTwoLines(t, "waiting: ")
			if took := time.Since(start); took != 50*time.Second {
				t.Errorf("it waited for %s", took)
			}
		})
	})
	t.Run("only with it", func(t *testing.T) {
		w := newWorld(t)
		w.down = func() error { return errRefused }
		r := w.run(t, "lock", "p", mainRef, "--", "true")
		r.is(t, exit.Failed, "connection refused")
		r.isOneLine(t)
	})
}

// unacquirable is a driver whose database is down for a while.
type unacquirable struct {
	refdb.Driver
	faults *outages
}

func (d unacquirable) Acquire(ctx context.Context, r driver.AcquireRequest) (driver.Acquired, error) {
	if err := d.faults.next(); err != nil {
		return driver.Acquired{}, err
	}
	return d.Driver.Acquire(ctx, r)
}

// released returns what becomes of a lock whose release fails with each of these faults, within --timeout.
func released(t *testing.T, w *world, faults *outages, timeout time.Duration) error {
	t.Helper()
	w.wrap = func(d refdb.Driver) refdb.Driver { return unreachable{d, faults} }
	l := &lockRun{app: w.app(cli.Streams{Err: io.Discard}), options: refdb.Options{StaleAfter: time.Hour}, request: locking.Locks{Project: "p", Refs: []string{mainRef}}}
	l.Site, l.Timeout = "here", timeout
	db, err := l.openWaiting(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	lock, err := l.acquire(t.Context(), db)
	if err != nil {
		t.Fatal(err)
	}
	releaseErr, closeErr := l.releaseAndClose(t.Context(), lock, db)
	if closeErr != nil {
		t.Error(closeErr)
	}
	return releaseErr
}

func TestAReleaseTriesAsLongAsItMay(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		faults  int32
		timeout time.Duration
	}{
		"longer than the library waits when it is closed": {100, 10 * time.Minute},
		// The command's time for the release is over before the database is back.
		"at the last moment": {7, 100 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				if err := released(t, w, outagesOf(c.faults), c.timeout); err != nil {
					t.Error(err)
				}
				for l, err := range w.open(t).Locks(t.Context(), refdb.LockFilter{}) {
					t.Errorf("locked by %s, %v", l.Owner, err)
				}
			})
		})
	}
	t.Run("but no longer", func(t *testing.T) {
		inBubble(t, func(t *testing.T, w *world) {
			start := time.Now()
			if err := released(t, w, outagesOf(1_000_000), 10*time.Minute); refdb.ClassOf(err) != refdb.Retryable {
				t.Errorf("got %v", err)
			}
			if took := time.Since(start); took < 10*time.Minute || took > 11*time.Minute {
				t.Errorf("it tried for %s", took)
			}
		})
	})
}

// unreachable is a driver whose database can't be reached for releases for a while.
type unreachable struct {
	refdb.Driver
	faults *outages
}

func (d unreachable) Release(ctx context.Context, r driver.ReleaseRequest) (driver.Released, error) {
	if err := d.faults.next(); err != nil {
		return driver.Released{}, err
	}
	return d.Driver.Release(ctx, r)
}

func TestTheDatabaseIsPassedOn(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	delete(w.env, "REFDB_URL")
	show := []string{"lock", "p", mainRef, "--db", w.URL(), "--", "sh", "-c", `echo "<$REFDB_URL>"`}
	if out := w.do(t, show...); out != "<>\n" {
		t.Errorf("unasked: %s", out)
	}
	if out := w.do(t, append([]string{"lock", "--pass-db"}, show[1:]...)...); out != "<"+w.URL()+">\n" {
		t.Errorf("asked: %s", out)
	}
}

func TestManyRefsAreInAFile(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	args := []string{"lock", "p"}
	for i := range refdb.MaxLockRefs {
		args = append(args, fmt.Sprintf("refs/heads/%s/%04d", strings.Repeat("x", 20), i))
	}
	r := w.run(t, append(args, "--", "sh", "-c", `echo "${REFDB_REFS-unset} $REFDB_REFS_FILE"; cat "$REFDB_REFS_FILE"`)...)
	r.is(t, exit.OK, "")
	head, refs, _ := strings.Cut(r.out, "\n")
	file, ok := strings.CutPrefix(head, "unset ")
	if want := strings.Join(args[2:], "\n") + "\n"; !ok || refs != want {
		t.Errorf("head %q, %d bytes of refs, want %d", head, len(refs), len(want))
	}
	if _, err := os.Stat(file); err == nil {
		t.Errorf("%s is left", file)
	}
}

// restarting is a driver whose database can't be listed for a while.
type restarting struct {
	refdb.Driver
	faults *outages
}

func (d restarting) Locks(ctx context.Context, q driver.LockQuery) (driver.LockPage, error) {
	if err := d.faults.next(); err != nil {
		return driver.LockPage{}, err
	}
	return d.Driver.Locks(ctx, q)
}

func TestWatchSurvivesARestartOfTheDatabase(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	faults := new(outages)
	w.wrap = func(d refdb.Driver) refdb.Driver { return restarting{d, faults} }
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	var out screen
	a := w.app(cli.Streams{Out: &out, Err: &out})
	code := make(chan int)
	go func() { code <- a.Report(a.run(ctx, patient([]string{"locks", "list", "--watch=10ms"}))) }()
	eventually(t, "a round", func() bool { return strings.Contains(out.String(), "# ") })
	faults.left.Store(12)
	eventually(t, "the outage is told", func() bool { return strings.Contains(out.String(), "database unavailable") })
	w.InsertLock(t, refdb.LockInfo{Project: "z", Ref: mainRef, Owner: "o", Age: time.Hour})
	eventually(t, "the new lock", func() bool { return strings.Contains(out.String(), "z ") })
	cancel(&exit.Interrupted{Signal: os.Interrupt})
	if got := <-code; got != exit.OK {
		t.Errorf("status %d: %s", got, out.String())
	}
}
