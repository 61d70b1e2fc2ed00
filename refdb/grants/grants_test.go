package grants_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/grants"
	"github.com/globalrefdb/globalrefdb/refdb/memory"
	"github.com/globalrefdb/globalrefdb/test/dbtest/local"
)

func TestMain(m *testing.M) { local.Main(m) }

const (
	mainRef = "refs/heads/main"
	nextRef = "refs/heads/next"
)

// onEach runs test on memory and on SQLite, with two processes of a service, which share nothing
// but the database.
func onEach(t *testing.T, test func(t *testing.T, one, other *refdb.DB)) {
	process := func(t *testing.T, d driver.Driver) *refdb.DB {
		db, err := refdb.New(d, refdb.Options{Site: "service"})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { db.Close() })
		return db
	}
	t.Run("memory", func(t *testing.T) {
		m := memory.New()
		test(t, process(t, m.Open()), process(t, m.Open()))
	})
	t.Run("SQLite", func(t *testing.T) {
		kind, url := local.SQLiteKind(), local.SQLite(t).URL()
		open := func() driver.Driver {
			d, err := kind.Driver(context.WithoutCancel(t.Context()), url)
			if err != nil {
				t.Fatal(err)
			}
			return d
		}
		test(t, process(t, open()), process(t, open()))
	})
}

func TestAnyProcessExtendsAGrantWritesUnderItAndReleasesIt(t *testing.T) {
	onEach(t, func(t *testing.T, one, other *refdb.DB) {
		ctx := t.Context()
		if err := one.Update(ctx, "p", []refdb.Update{{Ref: mainRef, New: "1"}, {Ref: nextRef, New: "1"}}); err != nil {
			t.Fatal(err)
		}
		got, err := one.Grants().Acquire(ctx, "client", time.Hour, "p", nextRef, mainRef)
		if err != nil {
			t.Fatal(err)
		}
		if got.Owner != "client" || got.Token == 0 || got.Reclaimed != 0 || !slices.Equal(got.Refs, []string{mainRef, nextRef}) {
			t.Errorf("acquired %+v", got)
		}
		if len(got.Values) != 2 || got.Values[0].Name != mainRef || got.Values[1].Name != nextRef || got.Values[1].Value != "1" {
			t.Errorf("the refs held %+v", got.Values)
		}
		if _, err := other.Grants().Acquire(ctx, "client", time.Hour, "p", mainRef); !errors.Is(err, driver.ErrLocked) {
			t.Errorf("acquired again: %v, want ErrLocked", err)
		}
		if err := other.Grants().Extend(ctx, got.Grant); err != nil {
			t.Errorf("extended by another process: %v", err)
		}
		moves := []refdb.Update{{Ref: mainRef, Old: "1", New: "2"}}
		if err := other.Update(ctx, "p", moves); !errors.Is(err, driver.ErrLocked) {
			t.Errorf("moved without the grant: %v, want ErrLocked", err)
		}
		if err := other.Update(ctx, "p", moves, refdb.Under(got.Owner, got.Token, got.Refs...)); err != nil {
			t.Errorf("moved under the grant: %v", err)
		}
		if err := other.Grants().Release(ctx, got.Grant); err != nil {
			t.Errorf("released by another process: %v", err)
		}
		if _, err := one.TryLock(ctx, "p", mainRef, nextRef); err != nil {
			t.Errorf("locked after the release: %v", err)
		}
	})
}

func TestExtendingAGrantRenewsIt(t *testing.T) {
	onEach(t, func(t *testing.T, one, other *refdb.DB) {
		ctx := t.Context()
		got, err := one.Grants().Acquire(ctx, "client", time.Hour, "p", mainRef)
		if err != nil {
			t.Fatal(err)
		}
		beat := func() (last time.Time) {
			for l, err := range one.Locks(ctx, refdb.LockFilter{Project: "p"}) {
				if err != nil || l.Owner != "client" || l.StaleAfter != time.Hour {
					t.Fatalf("listed %+v, %v", l, err)
				}
				last = l.Heartbeat
			}
			return last
		}
		first := beat()
		for !beat().After(first) { // the database's clock may not have moved on since
			if err := other.Grants().Extend(ctx, got.Grant); err != nil {
				t.Fatal(err)
			}
		}
	})
}

func TestAGrantThatIsNotHeldIsLost(t *testing.T) {
	onEach(t, func(t *testing.T, one, other *refdb.DB) {
		ctx := t.Context()
		got, err := one.Grants().Acquire(ctx, "client", time.Hour, "p", mainRef, nextRef)
		if err != nil {
			t.Fatal(err)
		}
		stolen, older := got.Grant, got.Grant
		stolen.Owner = "thief"
		older.Token--
		for name, g := range map[string]grants.Grant{"another owner": stolen, "another token": older} {
			if err := other.Grants().Extend(ctx, g); !errors.Is(err, driver.ErrLockLost) {
				t.Errorf("%s, extended: %v, want ErrLockLost", name, err)
			}
			if err := other.Grants().Release(ctx, g); !errors.Is(err, driver.ErrLockLost) {
				t.Errorf("%s, released: %v, want ErrLockLost", name, err)
			}
		}
		if err := one.Grants().Release(ctx, got.Grant); err != nil {
			t.Fatalf("released by its owner: %v", err)
		}
		var lost *driver.LostError
		if err := other.Grants().Extend(ctx, got.Grant); !errors.As(err, &lost) || len(lost.Refs) != 2 {
			t.Errorf("extended after the release: %v", err)
		}
		if err := other.Grants().Release(ctx, got.Grant); !errors.As(err, &lost) || len(lost.Refs) != 2 {
			t.Errorf("released twice: %v", err)
		}
		under := refdb.Under(got.Owner, got.Token, got.Refs...)
		if err := other.Update(ctx, "p", []refdb.Update{{Ref: mainRef, New: "1"}}, under); !errors.Is(err, driver.ErrLockLost) {
			t.Errorf("moved under it: %v, want ErrLockLost", err)
		}
	})
}

func TestAnInvalidGrantIsRefused(t *testing.T) {
	onEach(t, func(t *testing.T, one, _ *refdb.DB) {
		h := one.Grants()
		acquire := func(owner string, staleAfter time.Duration, refs ...string) error {
			_, err := h.Acquire(t.Context(), owner, staleAfter, "p", refs...)
			return err
		}
		for name, err := range map[string]error{
			"without an owner":     acquire("", time.Hour, mainRef),
			"for no time":          acquire("client", 0, mainRef),
			"without refs":         acquire("client", time.Hour),
			"extended, of nobody":  h.Extend(t.Context(), grants.Grant{Project: "p", Refs: []string{mainRef}}),
			"released, on nothing": h.Release(t.Context(), grants.Grant{Project: "p", Owner: "client"}),
		} {
			if !errors.Is(err, driver.ErrInvalid) {
				t.Errorf("%s: %v, want ErrInvalid", name, err)
			}
		}
	})
}

// A flaky driver answers beats without having renewed the locks, or loses the replies to releases.
type flaky struct {
	driver.Driver
	beats, replies int // how many more fail
}

func (d *flaky) Beat(ctx context.Context, locks []driver.LockID) ([]driver.BeatResult, error) {
	if d.beats > 0 {
		d.beats--
		return make([]driver.BeatResult, len(locks)), nil // BeatUnknown
	}
	return d.Driver.Beat(ctx, locks)
}

func (d *flaky) Release(ctx context.Context, r driver.ReleaseRequest) (driver.Released, error) {
	released, err := d.Driver.Release(ctx, r)
	if err == nil && d.replies > 0 {
		d.replies--
		return driver.Released{}, driver.ErrOutcomeUnknown
	}
	return released, err
}

func TestAnUnresponsiveDatabaseDoesNotEndAGrant(t *testing.T) {
	d := &flaky{Driver: memory.New().Open()}
	db, err := refdb.New(d, refdb.Options{Site: "service"})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	got, err := db.Grants().Acquire(t.Context(), "client", time.Hour, "p", mainRef)
	if err != nil {
		t.Fatal(err)
	}
	d.beats = 1
	if err := db.Grants().Extend(t.Context(), got.Grant); !errors.Is(err, driver.ErrUnavailable) || errors.Is(err, driver.ErrLockLost) {
		t.Errorf("not renewed: %v, want ErrUnavailable", err)
	}
	if err := db.Grants().Extend(t.Context(), got.Grant); err != nil {
		t.Errorf("renewed: %v", err)
	}
	d.replies = 1
	if err := db.Grants().Release(t.Context(), got.Grant); !errors.Is(err, driver.ErrOutcomeUnknown) || errors.Is(err, driver.ErrLockLost) {
		t.Errorf("released, and the reply lost: %v, want ErrOutcomeUnknown", err)
	}
}
