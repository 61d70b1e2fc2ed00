package api_test

import (
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/globalrefdb/globalrefdb/lease"
	refdbv1 "github.com/globalrefdb/globalrefdb/proto/refdb/v1"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/service/access"
)

// places returns how many places waiters have in "p": in queues, and as rows of leases.
func (b *bubble) places(t *testing.T) (n int) {
	t.Helper()
	for l, err := range b.rules.Locks(t.Context(), refdb.LockFilter{Project: "p"}) {
		if err != nil {
			t.Fatal(err)
		}
		if n += l.Waiters; strings.Contains(l.Ref, "/exclusive-") && strings.HasPrefix(l.Owner, "/ci/") {
			n++
		}
	}
	return n
}

// A call that has a place does not say that nothing was done.
func TestAWaitThatIsInterrupted(t *testing.T) {
	const ticket = "the-ticket-of-a-caller"
	outage := func(t *testing.T, b *bubble) { b.d.locksDown.Store(true) }
	withdrawn := func(t *testing.T, b *bubble) {
		if err := access.RemoveRule(t.Context(), b.rules, b.rule.ID); err != nil {
			t.Fatal(err)
		}
	}
	for _, row := range []struct {
		what, ticket string
		interrupt    func(t *testing.T, b *bubble)
		code         connect.Code   // 0 for locked
		places       map[string]int // afterwards, by kind
	}{
		{"an outage, and a ticket to go on with", ticket, outage, 0, map[string]int{"a lock": 1, "a lease": 1}},
		{"an outage", "", outage, 0, nil},
		// Another server may have answered that the row is the lease.
		{"the right is withdrawn, with a ticket", ticket, withdrawn, connect.CodePermissionDenied, map[string]int{"a lease": 1}},
		{"the right is withdrawn", "", withdrawn, connect.CodePermissionDenied, nil},
	} {
		for kind, request := range map[string]*refdbv1.AcquireRequest{
			"a lock":  {Refs: []string{"refs/heads/main"}},
			"a lease": {Lease: &refdbv1.Lease{Name: "build", Mode: refdbv1.LeaseMode_LEASE_MODE_EXCLUSIVE}},
		} {
			inBubble(t, func(t *testing.T, b *bubble) {
				if _, err := b.rules.Grants().Acquire(t.Context(), "other", time.Hour, "p", "refs/heads/main"); err != nil {
					t.Fatal(err)
				}
				held, err := lease.Acquire(t.Context(), b.rules, "p", "build", lease.Shared)
				if err != nil {
					t.Fatal(err)
				}
				request.Project, request.Ticket = "p", row.ticket
				request.LeaseTime, request.Wait = durationpb.New(time.Minute), durationpb.New(30*time.Second)
				type answer struct {
					locked *refdbv1.Locked
					err    error
				}
				answered := make(chan answer, 1)
				go func() {
					got, err := b.service.Acquire(b.ctx, connect.NewRequest(request))
					if err != nil {
						answered <- answer{nil, err}
						return
					}
					answered <- answer{got.Msg.GetLocked(), nil}
				}()
				time.Sleep(5 * time.Second)
				if n := b.places(t); n != 1 {
					t.Errorf("%s, %s: %d places", kind, row.what, n)
				}
				row.interrupt(t, b)
				got := <-answered
				failed := row.code != 0 && connect.CodeOf(got.err) == row.code
				locked := row.code == 0 && got.locked != nil && got.locked.Ticket == row.ticket
				if !failed && !locked {
					t.Errorf("%s, %s: %v, %v", kind, row.what, got.locked, got.err)
				}
				if n := b.places(t); n != row.places[kind] {
					t.Errorf("%s, %s: %d places are left", kind, row.what, n)
				}
				if err := held.Release(t.Context()); err != nil {
					t.Fatal(err)
				}
			})
		}
	}
}

// On PostgreSQL, the requests of many callers who name no waiter are one statement.
func TestACallThatMayWaitNamesNoWaiterForAFreeLock(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		acquire := func() *refdbv1.AcquireResponse {
			t.Helper()
			got, err := b.service.Acquire(b.ctx, connect.NewRequest(&refdbv1.AcquireRequest{
				Project: "p", Refs: []string{"refs/heads/main"}, LeaseTime: durationpb.New(time.Minute), Wait: durationpb.New(time.Second),
			}))
			if err != nil {
				t.Fatal(err)
			}
			return got.Msg
		}
		if got := acquire(); got.GetAcquired() == nil || b.d.waiters.Load() != 0 {
			t.Errorf("%v, with %d waiters", got, b.d.waiters.Load())
		}
		if got := acquire(); got.GetLocked() == nil || b.d.waiters.Load() == 0 {
			t.Errorf("%v, with %d waiters", got, b.d.waiters.Load())
		}
	})
}

// A request ID names a place for requests with a wait alone. A repeat without one is another request of the same
// owner: it neither uses the place nor gives it up.
func TestARepeatWithoutAWaitLeavesThePlaceAlone(t *testing.T) {
	for kind, request := range map[string]*refdbv1.AcquireRequest{
		"a lock":  {Refs: []string{"refs/heads/main"}},
		"a lease": {Lease: &refdbv1.Lease{Name: "build", Mode: refdbv1.LeaseMode_LEASE_MODE_EXCLUSIVE}},
	} {
		inBubble(t, func(t *testing.T, b *bubble) {
			if _, err := b.rules.Grants().Acquire(t.Context(), "other", time.Hour, "p", "refs/heads/main"); err != nil {
				t.Fatal(err)
			}
			held, err := lease.Acquire(t.Context(), b.rules, "p", "build", lease.Shared)
			if err != nil {
				t.Fatal(err)
			}
			request.Project, request.RequestId, request.LeaseTime = "p", "the-id-of-a-request", durationpb.New(time.Minute)
			for _, row := range []struct {
				wait   time.Duration
				ticket string
			}{{time.Second, request.RequestId}, {0, ""}, {time.Second, request.RequestId}} {
				request.Wait = durationpb.New(row.wait)
				got, err := b.service.Acquire(b.ctx, connect.NewRequest(request))
				if err != nil || got.Msg.GetLocked() == nil || got.Msg.GetLocked().Ticket != row.ticket {
					t.Errorf("%s, with a wait of %s: %v, %v", kind, row.wait, got, err)
				}
				if n := b.places(t); n != 1 {
					t.Errorf("%s, with a wait of %s: %d places", kind, row.wait, n)
				}
			}
			if err := held.Release(t.Context()); err != nil {
				t.Fatal(err)
			}
		})
	}
}
