package refdbtest

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
)

// open returns a DB on a driver of its own, as one process has it. It is closed
// when the row ends.
func (e *env) open(o refdb.Options) *refdb.DB {
	e.Helper()
	return e.openOn(e.db.Open(e), o)
}

// openTapped is open, with a tap between the DB and its driver.
func (e *env) openTapped(o refdb.Options) (*refdb.DB, *tap) {
	e.Helper()
	t := e.tapped()
	return e.openOn(t, o), t
}

func (e *env) openOn(d refdb.Driver, o refdb.Options) *refdb.DB {
	e.Helper()
	if o.Site == "" {
		o.Site = "site-x"
	}
	db, err := refdb.New(d, o)
	e.must(err)
	e.Cleanup(func() {
		if err := db.Close(); err != nil {
			e.Errorf("Close: %v", err)
		}
	})
	return db
}

// quick are the options of a process that beats often, and whose locks don't grow stale.
func quick() refdb.Options {
	return refdb.Options{Heartbeat: 20 * time.Millisecond, StaleAfter: time.Hour}
}

// hold has db take locks that are free, or stale.
func (e *env) hold(db *refdb.DB, refs ...string) *refdb.Lock {
	e.Helper()
	l, err := db.TryLock(e.Context(), e.project, refs...)
	e.must(err)
	return l
}

// lockOf is l as drivers know it.
func lockOf(l *refdb.Lock) lock {
	return lock{
		refdb.AcquireRequest{Project: l.Project(), Refs: l.Refs(), Owner: l.Owner()},
		refdb.Acquired{Token: l.Token()},
	}
}

// seize takes a lock from its living holder, whose beats would make it fresh again.
func (e *env) seize(l *refdb.Lock, refs ...string) lock {
	e.Helper()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		for _, ref := range refs {
			e.db.Age(e, e.project, ref, 2*time.Hour)
		}
		if got, err := e.tryAcquire(e.b, refs...); !e.refusal(err) {
			return got
		}
	}
	e.Fatal("the lock could not be seized")
	return lock{}
}

// wantClass checks what a caller may do about an error.
func (e *env) wantClass(err error, sentinel error, class refdb.Class) {
	e.Helper()
	if !errors.Is(err, sentinel) || refdb.ClassOf(err) != class {
		e.Errorf("got %v of class %v, want %v of class %v", err, refdb.ClassOf(err), sentinel, class)
	}
}

// patience is how long to wait for what must come at some time.
const patience = 20 * time.Second

// receive returns what comes out of a channel, or that it was closed.
func receive[T any](e *env, c <-chan T, what string) (v T) {
	e.Helper()
	select {
	case v = <-c:
	case <-time.After(patience):
		e.Fatalf("it never came to this: %s", what)
	}
	return v
}

// wantEnd waits until the lock's holder is told that it ended, for a reason.
func (e *env) wantEnd(l *refdb.Lock, reason error) {
	e.Helper()
	receive(e, l.Done(), "the holder is told")
	if err := l.Err(); !errors.Is(err, reason) {
		e.Errorf("Err is %v, want %v", err, reason)
	}
}

// wantCause waits until a lock's context ends, for a reason.
func (e *env) wantCause(ctx context.Context, reason error) {
	e.Helper()
	receive(e, ctx.Done(), "the lock's context ends")
	if cause := context.Cause(ctx); !errors.Is(cause, reason) {
		e.Errorf("the context's cause is %v, want %v", cause, reason)
	}
}

// wantHeld checks that the lock still stands, in the holder's view too.
func (e *env) wantHeld(l *refdb.Lock) {
	e.Helper()
	if err := l.Err(); err != nil {
		e.Errorf("Err is %v, want nil", err)
	}
	select {
	case <-l.Done():
		e.Error("Done is closed")
	default:
	}
	e.wantLock(lockOf(l))
}

// eventually polls until ok, for what happens in the background.
func (e *env) eventually(what string, ok func() bool) {
	e.Helper()
	for deadline := time.Now().Add(patience); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			e.Fatalf("it never came to this: %s", what)
		}
	}
}

// free reports whether no lock stands on the refs.
func (e *env) free(refs ...string) bool {
	e.Helper()
	return !slices.ContainsFunc(refs, func(ref string) bool {
		_, ok := e.db.RowLock(e, e.project, ref)
		return ok
	})
}
