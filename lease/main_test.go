package lease_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/lease"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/test/dbtest"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

const (
	project = "company/product"
	name    = "docs: deploy/prod" // no ref has such a name
	mainRef = "refs/heads/main"
	value   = refdb.Value("1111111111111111111111111111111111111111")

	staleAfter = time.Hour // nothing becomes stale by itself
	stale      = staleAfter + time.Minute
)

// patience is how long a row may take: only who waits for what never comes takes longer.
const patience = 5 * time.Minute

// An env is one database of a test, with two processes on it.
type env struct {
	*testing.T
	limited  context.Context
	database *dbtest.Database
	a, b     *refdb.DB
}

// Context returns one that ends with the test, or when it has taken too long.
func (e *env) Context() context.Context { return e.limited }

// onEach runs test on a new database of each kind.
func onEach(t *testing.T, test func(e *env)) {
	t.Helper()
	for _, kind := range dbtest.All() {
		t.Run(string(kind.Dialect), func(t *testing.T) {
			t.Parallel()
			limited, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			e := &env{T: t, limited: limited, database: kind.New(t)}
			e.a, e.b = e.open(), e.open()
			test(e)
		})
	}
}

// open opens a DB as another process would have it.
func (e *env) open() *refdb.DB {
	e.Helper()
	return e.openOn(e.database.Open(e), nil)
}

// openOn opens a DB on a driver.
func (e *env) openOn(d refdb.Driver, observe func(refdb.Event)) *refdb.DB {
	e.Helper()
	db, err := refdb.New(d, refdb.Options{Site: "eu", StaleAfter: staleAfter, Observe: observe})
	if err != nil {
		e.Fatal(err)
	}
	e.Cleanup(func() { db.Close() })
	return db
}

func (e *env) must(err error) {
	e.Helper()
	if err != nil {
		e.Fatal(err)
	}
}

func (e *env) wantIs(err error, targets ...error) {
	e.Helper()
	for _, target := range targets {
		if !errors.Is(err, target) {
			e.Errorf("got %v, want one that is %v", err, target)
		}
	}
}

// wantBlockedBy checks that err is a refusal that names these leases.
func (e *env) wantBlockedBy(err error, leases ...*lease.Lease) {
	e.Helper()
	var locked *refdb.LockedError
	if !errors.As(err, &locked) {
		e.Errorf("got %v, want a refusal", err)
		return
	}
	var got, want []string
	for _, h := range locked.Holders {
		got = append(got, h.Ref)
	}
	for _, l := range leases {
		want = append(want, l.Ref())
	}
	if !slices.Equal(got, want) {
		e.Errorf("it names %q, want %q", got, want)
	}
}

func (e *env) acquire(db *refdb.DB, mode lease.Mode) *lease.Lease {
	e.Helper()
	l, err := lease.Acquire(e.Context(), db, project, name, mode)
	e.must(err)
	return l
}

type ask = func(ctx context.Context, db *refdb.DB, project, name string, mode lease.Mode) (*lease.Lease, error)

func asks() map[string]ask {
	return map[string]ask{"Acquire": lease.Acquire, "TryAcquire": tryAcquire}
}

// tryAcquire is lease.TryAcquire. It asks again if a busy database took longer than that waits for the entry lock, and
// while a request that went on after that has this lock.
func tryAcquire(ctx context.Context, db *refdb.DB, project, name string, mode lease.Mode) (*lease.Lease, error) {
	for {
		l, err := lease.TryAcquire(ctx, db, project, name, mode)
		var locked *refdb.LockedError
		own := errors.As(err, &locked) && slices.ContainsFunc(locked.Holders, func(h refdb.LockInfo) bool {
			return strings.HasSuffix(h.Ref, "/turn") && strings.HasPrefix(h.Owner, db.Owner())
		})
		if !own && !errors.Is(err, refdb.ErrUnavailable) || ctx.Err() != nil {
			return l, err
		}
	}
}

// An acquisition goes on in the background.
type acquisition struct {
	lease *lease.Lease
	err   error
}

// waiter asks for a lease that it does not get at once. It returns when the waiter has had the entry lock.
func (e *env) waiter(ctx context.Context, db *refdb.DB, mode lease.Mode) <-chan acquisition {
	e.Helper()
	before := len(e.rows())
	done := make(chan acquisition, 1)
	go func() {
		l, err := lease.Acquire(ctx, db, project, name, mode)
		done <- acquisition{l, err}
	}()
	e.eventually(func() bool { return len(e.rows()) > before && !e.turnIsTaken() })
	return done
}

// eventually polls until ok.
func (e *env) eventually(ok func() bool) {
	e.Helper()
	for !ok() {
		e.must(e.Context().Err())
		time.Sleep(10 * time.Millisecond)
	}
}

// turnIsTaken reports whether somebody asks for the lease.
func (e *env) turnIsTaken() bool {
	e.Helper()
	taken := false
	for l, err := range e.b.Locks(e.Context(), refdb.LockFilter{Project: project}) {
		e.must(err)
		taken = taken || strings.HasSuffix(l.Ref, "/turn") && !l.Stale()
	}
	return taken
}

// receive waits for an acquisition that succeeds.
func (e *env) receive(done <-chan acquisition) *lease.Lease {
	e.Helper()
	select {
	case a := <-done:
		e.must(a.err)
		return a.lease
	case <-e.Context().Done():
		e.Fatalf("nobody gets the lease within %s", patience)
		return nil
	}
}

func (e *env) rows() []lease.Row {
	e.Helper()
	rows, err := lease.Rows(e.Context(), e.b, project, name)
	e.must(err)
	return rows
}

// wantRows checks who holds the lease and who waits for it, in the order of their tickets.
func (e *env) wantRows(want ...string) {
	e.Helper()
	var got []string
	for _, r := range e.rows() {
		state := " holds"
		if r.Waits {
			state = " waits"
		}
		got = append(got, r.Mode.String()+state)
	}
	if !slices.Equal(got, want) {
		e.Errorf("the rows are %q, want %q", got, want)
	}
}

// wantNoLocks checks that no lock is left in the project. What is kept for a waiter that gave up is none.
func (e *env) wantNoLocks() {
	e.Helper()
	for l, err := range e.b.Locks(e.Context(), refdb.LockFilter{Project: project}) {
		e.must(err)
		if l.Reserved() {
			continue
		}
		e.Errorf("left over: %s by %s", l.Ref, l.Owner)
	}
}

// entryLockOf is the ref of the entry lock of the lease of l.
func entryLockOf(l *lease.Lease) string {
	return l.Ref()[:strings.LastIndexByte(l.Ref(), '/')] + "/turn"
}
