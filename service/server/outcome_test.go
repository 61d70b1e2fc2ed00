package server_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"

	"connectrpc.com/connect"

	refdbv1 "github.com/globalrefdb/globalrefdb/proto/refdb/v1"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/service/access"
	"github.com/globalrefdb/globalrefdb/service/server"
)

// lossy is a driver that carries out writes and loses the replies.
type lossy struct {
	refdb.Driver
	lose atomic.Bool
}

func (d *lossy) Update(ctx context.Context, r driver.UpdateRequest) error {
	err := d.Driver.Update(ctx, r)
	if d.lose.Load() && err == nil {
		return driver.ErrUnconfirmed
	}
	return err
}

func (d *lossy) Acquire(ctx context.Context, r driver.AcquireRequest) (driver.Acquired, error) {
	a, err := d.Driver.Acquire(ctx, r)
	if d.lose.Load() && err == nil {
		return driver.Acquired{}, driver.ErrOutcomeUnknown
	}
	return a, err
}

func (d *lossy) Beat(ctx context.Context, l []driver.LockID) ([]driver.BeatResult, error) {
	results, err := d.Driver.Beat(ctx, l)
	if d.lose.Load() && err == nil {
		return nil, driver.ErrOutcomeUnknown
	}
	return results, err
}

func (d *lossy) Release(ctx context.Context, r driver.ReleaseRequest) (driver.Released, error) {
	released, err := d.Driver.Release(ctx, r)
	if d.lose.Load() && err == nil {
		return driver.Released{}, driver.ErrOutcomeUnknown
	}
	return released, err
}

// confirming is a driver that counts the acquisitions of locks, which it commits with its standby.
type confirming struct {
	refdb.Driver
	commits atomic.Int64
}

func (d *confirming) Acquire(ctx context.Context, r driver.AcquireRequest) (driver.Acquired, error) {
	a, err := d.Driver.Acquire(ctx, r)
	if err == nil {
		d.commits.Add(1)
	}
	return a, err
}

func TestAnUnknownOutcomeIsAnAnswerOfItsOwnAndARepeatResolvesIt(t *testing.T) {
	t.Parallel()
	r := inMemory(t)
	r.allow(t, "ci", access.Administer, "p", access.All)
	d, counted := &lossy{Driver: r.open()}, &confirming{Driver: r.open()}
	broken, whole := r.serve(t, server.DefaultLimits, d), r.serve(t, server.DefaultLimits, counted)
	d.lose.Store(true)

	u := moving(mainRef, "", one)
	u.RequestId = "f3a1e0c2-0000-4000-8000-000000000003"
	if got := update(t, broken.plain("ci"), u).GetUnknown(); got == nil || !strings.Contains(got.Advice, "same request ID") {
		t.Errorf("Update: %v", got)
	}
	// The ref has the value, but a failover may still lose it: no standby has confirmed anything since.
	if got := update(t, broken.plain("ci"), u); got.GetUnknown() == nil {
		t.Errorf("Update, repeated without a standby: %v", got)
	}
	if got := update(t, whole.plain("ci"), u).GetUpdated(); got == nil || !got.RepeatedRequest || counted.commits.Load() == 0 {
		t.Errorf("Update, repeated: %v after %d commits", got, counted.commits.Load())
	}
	extend := func(s *serving, l *refdbv1.Lock) *refdbv1.ExtendResponse {
		e, err := s.plain("ci").Extend(t.Context(), connect.NewRequest(&refdbv1.ExtendRequest{Lock: l}))
		if err != nil {
			t.Fatal(err)
		}
		return e.Msg
	}
	release := func(s *serving, l *refdbv1.Lock) *refdbv1.ReleaseResponse {
		e, err := s.plain("ci").Release(t.Context(), connect.NewRequest(&refdbv1.ReleaseRequest{Lock: l}))
		if err != nil {
			t.Fatal(err)
		}
		return e.Msg
	}
	held := r.acquire(t, whole.plain("ci"), locking(nextRef)).GetAcquired()
	if got := extend(broken, held.Lock); got.GetUnknown() == nil {
		t.Errorf("Extend: %v", got)
	}
	if got := extend(whole, held.Lock); got.GetExtended() == nil {
		t.Errorf("Extend, repeated: %v", got)
	}
	if got := release(broken, held.Lock); got.GetUnknown() == nil {
		t.Errorf("Release: %v", got)
	}
	a := locking(mainRef)
	a.RequestId = "f3a1e0c2-0000-4000-8000-000000000004"
	if got := r.acquire(t, broken.plain("ci"), a); got.GetUnknown() == nil {
		t.Errorf("Acquire: %v", got)
	}
	if got := r.acquire(t, whole.plain("ci"), a).GetAcquired(); got == nil || !got.RepeatedRequest {
		t.Errorf("Acquire, repeated: %v", got)
	}
}

// away is a driver of a database that does not answer writes.
type away struct{ refdb.Driver }

func (away) Update(context.Context, driver.UpdateRequest) error { return driver.ErrUnavailable }
func (away) Acquire(context.Context, driver.AcquireRequest) (driver.Acquired, error) {
	return driver.Acquired{}, driver.ErrUnavailable
}

func TestUnavailableSaysThatNothingWasDone(t *testing.T) {
	t.Parallel()
	r := inMemory(t)
	r.allow(t, "ci", access.Administer, "p", access.All)
	s := r.serve(t, server.DefaultLimits, away{r.open()})
	_, err := s.plain("ci").Update(t.Context(), connect.NewRequest(moving(mainRef, "", one)))
	if connect.CodeOf(err) != connect.CodeUnavailable || !strings.Contains(err.Error(), "nothing was done") {
		t.Errorf("Update: %v", err)
	}
	_, err = s.plain("ci").Acquire(t.Context(), connect.NewRequest(locking(mainRef)))
	if connect.CodeOf(err) != connect.CodeUnavailable {
		t.Errorf("Acquire: %v", err)
	}
}
