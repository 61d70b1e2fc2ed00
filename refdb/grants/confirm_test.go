package grants_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/memory"
)

// An asynchronous driver commits without its standby while that is away, and records what is looked up.
type asynchronous struct {
	driver.Driver
	away bool

	mu      sync.Mutex
	commits int
	looked  []string // operations
}

func (d *asynchronous) Acquire(ctx context.Context, r driver.AcquireRequest) (driver.Acquired, error) {
	a, err := d.Driver.Acquire(ctx, r)
	if err != nil {
		return a, err
	}
	if d.away {
		return driver.Acquired{}, driver.ErrUnconfirmed
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.commits++
	return a, nil
}

func (d *asynchronous) Look(ctx context.Context, witness string, known []driver.Known) (driver.Looked, error) {
	d.mu.Lock()
	for _, k := range known {
		d.looked = append(d.looked, k.Op)
	}
	d.mu.Unlock()
	return d.Driver.Look(ctx, witness, known)
}

func TestAnUpdateIsConfirmedByACommitAfterIt(t *testing.T) {
	ctx := t.Context()
	m := memory.New()
	d := &asynchronous{Driver: m.Open(), away: true}
	open := func(d driver.Driver) *refdb.DB {
		db, err := refdb.New(d, refdb.Options{Site: "service"})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { db.Close() })
		return db
	}
	db, other := open(d), open(m.Open())
	r := driver.UpdateRequest{Project: "p", Origin: driver.Origin{ID: "request-1"}, Updates: []refdb.Update{{Ref: nextRef, New: "1"}, {Ref: mainRef, New: "1"}}}
	confirm := func() error {
		return db.Grants().Confirm(ctx, r, time.Now(), "records", "refs/confirmations/")
	}
	d.away = false
	if err := confirm(); !errors.Is(err, driver.ErrOutcomeUnknown) {
		t.Errorf("an update that was not made: %v", err)
	}
	if err := other.Update(ctx, "p", r.Updates, func(u *driver.UpdateRequest) { u.Origin.ID = r.ID }); err != nil {
		t.Fatal(err)
	}
	d.away = true
	if err := confirm(); !errors.Is(err, driver.ErrOutcomeUnknown) {
		t.Errorf("a commit that no standby has: %v", err)
	}
	d.away, d.commits = false, 0
	if err := confirm(); err != nil || d.commits != 1 {
		t.Errorf("%d commits, %v", d.commits, err)
	}
	// The process compares a new server with what it has confirmed.
	d.looked = nil
	if _, err := db.Recovery().Compare(ctx); err != nil || len(d.looked) != 2 || d.looked[0] != "request-1" {
		t.Errorf("compared %q, %v", d.looked, err)
	}
	db.Close() // what goes on in the background has ended
	for l, err := range other.Locks(ctx, refdb.LockFilter{}) {
		t.Errorf("a lock is left: %+v, %v", l, err)
	}
}

// A losing driver carries out acquisitions, and loses the next reply.
type losing struct {
	driver.Driver
	err      error
	requests []driver.AcquireRequest
}

func (d *losing) Acquire(ctx context.Context, r driver.AcquireRequest) (driver.Acquired, error) {
	d.requests = append(d.requests, r)
	a, err := d.Driver.Acquire(ctx, r)
	if lost := d.err; lost != nil {
		d.err = nil
		return driver.Acquired{}, lost
	}
	return a, err
}

// The request that was carried out may lack a standby. Another one would find its rows, and commit nothing.
func TestAnAcquisitionWithALostReplyConfirmsNothing(t *testing.T) {
	for _, test := range []struct {
		err       error
		requests  int
		confirmed bool
	}{
		{driver.ErrOutcomeUnknown, 1, false},
		{driver.ErrUnconfirmed, 1, false},
		{driver.ErrUnavailable, 2, true}, // not carried out, for all the driver says
	} {
		d := &losing{Driver: memory.New().Open(), err: test.err}
		db, err := refdb.New(d, refdb.Options{Site: "service"})
		if err != nil {
			t.Fatal(err)
		}
		r := driver.UpdateRequest{Project: "p", Origin: driver.Origin{ID: "request-1"}, Updates: []refdb.Update{{Ref: mainRef, New: "1"}}}
		if err := db.Update(t.Context(), "p", r.Updates, func(u *driver.UpdateRequest) { u.Origin.ID = r.ID }); err != nil {
			t.Fatal(err)
		}
		err = db.Grants().Confirm(t.Context(), r, time.Now(), "records", "refs/confirmations/")
		if (err == nil) != test.confirmed || err != nil && !errors.Is(err, driver.ErrOutcomeUnknown) {
			t.Errorf("%v: %v", test.err, err)
		}
		if n := len(d.requests); n != test.requests || n > 1 && (d.requests[0].Refs[0] == d.requests[1].Refs[0] || d.requests[0].Nonce == d.requests[1].Nonce) {
			t.Errorf("%v: %+v", test.err, d.requests)
		}
		db.Close()
	}
}

// A switching driver calls functions around an acquisition.
type switching struct {
	driver.Driver
	before, after func()
}

func (d *switching) Acquire(ctx context.Context, r driver.AcquireRequest) (driver.Acquired, error) {
	d.before()
	a, err := d.Driver.Acquire(ctx, r)
	if err == nil {
		d.after()
	}
	return a, err
}

func TestACommitConfirmsOnlyUpdatesOfItsServer(t *testing.T) {
	m := memory.New()
	nothing := func() {}
	once := func() func() { return sync.OnceFunc(m.Restart) }
	d := &switching{m.Open(), nothing, nothing}
	db, err := refdb.New(d, refdb.Options{Site: "service"})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	r := driver.UpdateRequest{Project: "p", Origin: driver.Origin{ID: "request-1"}, Updates: []refdb.Update{{Ref: mainRef, New: "1"}}}
	if err := db.Update(t.Context(), "p", r.Updates, func(u *driver.UpdateRequest) { u.Origin.ID = r.ID }); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name                   string
		earlier, before, after func()
		confirmed              bool
	}{
		{"between reading and committing", nothing, once(), nothing, false},
		{"after the commit", nothing, nothing, once(), false},
		{"earlier", once(), nothing, nothing, true},
	} {
		test.earlier()
		d.before, d.after = test.before, test.after
		err := db.Grants().Confirm(t.Context(), r, time.Now(), "records", "refs/confirmations/")
		if (err == nil) != test.confirmed || err != nil && !errors.Is(err, driver.ErrOutcomeUnknown) {
			t.Errorf("another server %s: %v", test.name, err)
		}
	}
}
