package server_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/globalrefdb/globalrefdb/lease"
	refdbv1 "github.com/globalrefdb/globalrefdb/proto/refdb/v1"
	"github.com/globalrefdb/globalrefdb/proto/refdb/v1/refdbv1connect"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/service/access"
	"github.com/globalrefdb/globalrefdb/service/server"
)

const (
	shared    = refdbv1.LeaseMode_LEASE_MODE_SHARED
	exclusive = refdbv1.LeaseMode_LEASE_MODE_EXCLUSIVE
	leaseName = "nightly: build"
	leaseRef  = "refs/leases/nightly%3A%20build"
)

func leasing(mode refdbv1.LeaseMode) *refdbv1.AcquireRequest {
	return &refdbv1.AcquireRequest{Project: "p", Lease: &refdbv1.Lease{Name: leaseName, Mode: mode}, LeaseTime: durationpb.New(time.Minute)}
}

func release(t *testing.T, c refdbv1connect.RefdbServiceClient, l *refdbv1.Lock) {
	t.Helper()
	got, err := c.Release(t.Context(), connect.NewRequest(&refdbv1.ReleaseRequest{Lock: l}))
	if err != nil || got.Msg.GetReleased() == nil {
		t.Fatalf("%v, %v", got, err)
	}
}

func TestLeasesOfClientsAndOfProcessesAreTheSame(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		for _, subject := range []string{"ci", "other"} {
			r.allow(t, subject, access.Lock, "p", leaseRef)
			r.allow(t, subject, access.Write, "p", "refs/heads/*")
		}
		first, second := r.serve(t, server.DefaultLimits, nil), r.serve(t, server.DefaultLimits, nil)
		ci, other := first.plain("ci"), second.grpc("other")
		process, err := lease.Acquire(t.Context(), r.db, "p", leaseName, lease.Shared)
		if err != nil {
			t.Fatal(err)
		}
		mine := r.acquire(t, ci, leasing(shared)).GetAcquired()
		theirs := r.acquire(t, other, leasing(shared)).GetAcquired()
		if mine == nil || theirs == nil || mine.Lock.Owner == theirs.Lock.Owner {
			t.Fatalf("%v, %v", mine, theirs)
		}
		if l := r.acquire(t, ci, leasing(exclusive)).GetLocked(); l == nil || len(l.Holders) != 3 || l.Holders[0].Ref != process.Ref() || l.Holders[1].Subject != "ci" || l.Ticket != "" {
			t.Errorf("%v", l)
		}
		if err := process.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		if extended, err := second.plain("ci").Extend(t.Context(), connect.NewRequest(&refdbv1.ExtendRequest{Lock: mine.Lock})); err != nil || extended.Msg.GetExtended() == nil {
			t.Errorf("%v, %v", extended, err)
		}
		if _, err := lease.TryAcquire(t.Context(), r.db, "p", leaseName, lease.Exclusive); !errors.Is(err, refdb.ErrLocked) {
			t.Errorf("a process: %v", err)
		}
		if _, err := ci.Release(t.Context(), connect.NewRequest(&refdbv1.ReleaseRequest{Lock: theirs.Lock})); connect.CodeOf(err) != connect.CodePermissionDenied {
			t.Errorf("a lease of another subject: %v", err)
		}
		release(t, second.plain("ci"), mine.Lock)
		release(t, other, theirs.Lock)

		// An update under a lease may move any ref that the subject may write.
		held := r.acquire(t, ci, leasing(exclusive)).GetAcquired()
		if held == nil {
			t.Fatal("the lease is not free")
		}
		u := moving(mainRef, "", one)
		u.Under = held.Lock
		if got := update(t, second.plain("ci"), u); got.GetUpdated() == nil {
			t.Errorf("%v", got)
		}
		u = moving(mainRef, one, two)
		u.Under, u.Release = held.Lock, true
		if got := update(t, ci, u); got.GetUpdated() == nil {
			t.Errorf("%v", got)
		}
		if got := update(t, ci, u); got.GetLost() == nil {
			t.Errorf("after the release: %v", got)
		}
		l, err := lease.TryAcquire(t.Context(), r.db, "p", leaseName, lease.Exclusive)
		if err != nil {
			t.Fatal(err)
		}
		if got := r.acquire(t, ci, leasing(shared)).GetLocked(); got == nil {
			t.Error("a process has the lease exclusively")
		}
		if err := l.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
}

func TestARequestForALeaseIsRepeatedThroughAnyServer(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		for _, subject := range []string{"ci", "other"} {
			r.allow(t, subject, access.Lock, "p", "refs/leases/*")
		}
		first, second := r.serve(t, server.DefaultLimits, nil), r.serve(t, server.DefaultLimits, nil)
		a := leasing(exclusive)
		a.RequestId = "f3a1e0c2-0000-4000-8000-000000000011"
		got := r.acquire(t, first.plain("ci"), a).GetAcquired()
		again := r.acquire(t, second.plain("ci"), a).GetAcquired()
		if got == nil || again == nil || got.RepeatedRequest || !again.RepeatedRequest || again.Lock.Token != got.Lock.Token {
			t.Fatalf("%v, then %v", got, again)
		}
		if l := r.acquire(t, second.plain("other"), a).GetLocked(); l == nil {
			t.Error("another subject repeats the request")
		}
		otherMode := leasing(shared)
		otherMode.RequestId = a.RequestId
		if l := r.acquire(t, second.plain("ci"), otherMode).GetLocked(); l == nil {
			t.Error("a request for another mode is taken for a repeat")
		}
		release(t, first.plain("ci"), got.Lock)
	})
}

// Each waits at two servers in turn. The first one gets what it waits for before the second one.
func TestWaitersKeepTheirPlaceBetweenCalls(t *testing.T) {
	t.Parallel()
	for name, request := range map[string]func() *refdbv1.AcquireRequest{
		"a lock":             func() *refdbv1.AcquireRequest { return locking(mainRef) },
		"locks":              func() *refdbv1.AcquireRequest { return locking(mainRef, nextRef) },
		"an exclusive lease": func() *refdbv1.AcquireRequest { return leasing(exclusive) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onEach(t, func(t *testing.T, r *rig) {
				for _, subject := range []string{"ci", "early", "late"} {
					r.allow(t, subject, access.Lock, access.All, access.All)
				}
				q := &queueing{r: r, servers: [2]*serving{r.serve(t, server.DefaultLimits, nil), r.serve(t, server.DefaultLimits, nil)}, request: request}
				for began, project := time.Now(), 0; !q.inOrder(t, fmt.Sprint("p", project)); project++ {
					if time.Since(began) > patience {
						t.Fatalf("the machine was too busy for %s to look within the time that a place is kept", patience)
					}
				}
			})
		})
	}
}

// A queueing has two subjects that wait for what a third one holds.
type queueing struct {
	r       *rig
	servers [2]*serving
	request func() *refdbv1.AcquireRequest
	project string
	polls   int
}

// poll waits for a moment, at another server than the last call.
func (q *queueing) poll(t *testing.T, subject string) *refdbv1.Acquired {
	t.Helper()
	a := q.request()
	a.Project, a.Wait, a.Ticket = q.project, durationpb.New(time.Millisecond), "the-ticket-of-"+subject
	q.polls++
	got := q.r.acquire(t, q.servers[q.polls%2].plain(subject), a)
	if l := got.GetLocked(); l != nil && l.Ticket != a.Ticket {
		t.Fatalf("the ticket %q, not %q", l.Ticket, a.Ticket)
	}
	return got.GetAcquired()
}

// inOrder returns false if it took too long to tell.
func (q *queueing) inOrder(t *testing.T, project string) bool {
	t.Helper()
	q.project = project
	plain := q.request()
	plain.Project = project
	held := q.r.acquire(t, q.servers[0].plain("ci"), plain).GetAcquired()
	for range 3 {
		for _, subject := range []string{"early", "late"} {
			if got := q.poll(t, subject); got != nil {
				t.Fatalf("%s: %v", subject, got)
			}
		}
	}
	began := time.Now()
	release(t, q.servers[1].plain("ci"), held.Lock)
	late := q.poll(t, "late")
	without := q.r.acquire(t, q.servers[0].plain("ci"), plain).GetAcquired()
	early := q.poll(t, "early")
	if time.Since(began) > 4*time.Second {
		return false
	}
	if late != nil || without != nil || early == nil {
		t.Fatalf("the later one got %v, one without a ticket %v, the earlier one %v", late, without, early)
	}
	if got := q.poll(t, "late"); got != nil {
		t.Fatalf("the later one, meanwhile: %v", got)
	}
	release(t, q.servers[0].plain("early"), early.Lock)
	if got := q.poll(t, "late"); got == nil {
		t.Fatal("the later one waits still")
	}
	return true
}

// waiting returns how many wait for locks or leases of "p", of which one is held.
func waiting(t *testing.T, r *rig, held *refdbv1.Lock) (n int) {
	t.Helper()
	for l, err := range r.db.Locks(t.Context(), refdb.LockFilter{Project: "p"}) {
		if err != nil {
			t.Fatal(err)
		}
		if n += l.Waiters; strings.Contains(l.Ref, "/exclusive-") && l.ID().Token != refdb.Token(held.Token) {
			n++
		}
	}
	return n
}

// onLockAndLease runs a test with requests for either.
func onLockAndLease(t *testing.T, test func(t *testing.T, r *rig, request func() *refdbv1.AcquireRequest)) {
	for name, request := range map[string]func() *refdbv1.AcquireRequest{
		"a lock":  func() *refdbv1.AcquireRequest { return locking(mainRef) },
		"a lease": func() *refdbv1.AcquireRequest { return leasing(exclusive) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onEach(t, func(t *testing.T, r *rig) {
				r.allow(t, "ci", access.Lock, "p", access.All)
				test(t, r, request)
			})
		})
	}
}

// Nobody can go on in a place without a name: it would only keep others waiting, the caller's next call too.
func TestACallThatIsCanceledGivesItsPlaceUp(t *testing.T) {
	t.Parallel()
	onLockAndLease(t, func(t *testing.T, r *rig, request func() *refdbv1.AcquireRequest) {
		s := r.serve(t, server.DefaultLimits, nil)
		held := r.acquire(t, s.plain("ci"), request()).GetAcquired()
		ctx, cancel := context.WithCancel(t.Context())
		var call sync.WaitGroup
		call.Go(func() {
			a := request()
			a.Wait = durationpb.New(30 * time.Second)
			if got, err := s.plain("ci").Acquire(ctx, connect.NewRequest(a)); err == nil {
				t.Errorf("%v", got)
			}
		})
		eventually(t, "it waits", func() bool { return waiting(t, r, held.Lock) == 1 })
		cancel()
		call.Wait()
		eventually(t, "its place is gone", func() bool { return waiting(t, r, held.Lock) == 0 })
	})
}

func TestACallThatWaitedWithoutATicketGivesItsPlaceUp(t *testing.T) {
	t.Parallel()
	onLockAndLease(t, func(t *testing.T, r *rig, request func() *refdbv1.AcquireRequest) {
		s := r.serve(t, server.DefaultLimits, nil)
		held := r.acquire(t, s.plain("ci"), request()).GetAcquired()
		a := request()
		a.Wait = durationpb.New(time.Millisecond)
		for range 3 {
			if l := r.acquire(t, s.plain("ci"), a).GetLocked(); l == nil || l.Ticket != "" || len(l.Holders) != 1 {
				t.Errorf("%v", l)
			}
		}
		if n := waiting(t, r, held.Lock); n != 0 {
			t.Errorf("%d wait", n)
		}
		release(t, s.plain("ci"), held.Lock)
		if got := r.acquire(t, s.plain("ci"), a); got.GetAcquired() == nil {
			t.Errorf("the next call: %v", got)
		}
	})
}

func TestARequestForALeaseMayNotContradictItself(t *testing.T) {
	t.Parallel()
	r := inMemory(t)
	r.allow(t, "ci", access.Lock, "p", "refs/leases/build")
	r.allow(t, "ci", access.Lock, "p", "refs/heads/*")
	s := r.serve(t, server.DefaultLimits, nil)
	for body, want := range map[string]int{
		`{"project":"p","lease":{"name":"build","mode":"LEASE_MODE_SHARED"},"leaseTime":"30s"}`:                                 http.StatusOK,
		`{"project":"p","lease":{"name":"build"},"leaseTime":"30s"}`:                                                            http.StatusBadRequest,
		`{"project":"p","lease":{"name":"build","mode":"LEASE_MODE_SHARED"},"leaseTime":"300s"}`:                                http.StatusBadRequest,
		`{"project":"p","lease":{"name":"build","mode":"LEASE_MODE_SHARED"},"leaseTime":"1s"}`:                                  http.StatusBadRequest,
		`{"project":"p","lease":{"name":"build","mode":"LEASE_MODE_SHARED"},"leaseTime":"30s","refs":["refs/heads/x"]}`:         http.StatusBadRequest,
		`{"project":"p","lease":{"name":"build","mode":"LEASE_MODE_SHARED"},"leaseTime":"30s","ticket":"short"}`:                http.StatusBadRequest,
		`{"project":"p","lease":{"name":"buildings","mode":"LEASE_MODE_SHARED"},"leaseTime":"30s"}`:                             http.StatusForbidden,
		`{"project":"p","lease":{"name":"","mode":"LEASE_MODE_SHARED"},"leaseTime":"30s"}`:                                      http.StatusForbidden,
		`{"project":"p","lease":{"name":"build/turn","mode":"LEASE_MODE_SHARED"},"leaseTime":"30s"}`:                            http.StatusForbidden,
		`{"project":"q","lease":{"name":"build","mode":"LEASE_MODE_EXCLUSIVE"},"leaseTime":"30s"}`:                              http.StatusForbidden,
		`{"project":"p","lease":{"name":"build","mode":"LEASE_MODE_SHARED"},"leaseTime":"30s","requestId":"x","refs":["HEAD"]}`: http.StatusBadRequest,
	} {
		if status, text := s.post(t, r.tokens["ci"], "Acquire", body); status != want {
			t.Errorf("%s: %d %s", body, status, text)
		}
	}
}

// A freeing driver releases a lock once it has refused one.
type freeing struct {
	refdb.Driver
	release func()
}

func (d *freeing) Acquire(ctx context.Context, r driver.AcquireRequest) (driver.Acquired, error) {
	a, err := d.Driver.Acquire(ctx, r)
	if errors.Is(err, refdb.ErrLocked) {
		d.release()
	}
	return a, err
}

func TestARequestForALeaseIsNotRefusedBecauseAnotherOneIsBeingDecided(t *testing.T) {
	t.Parallel()
	r := inMemory(t)
	r.allow(t, "ci", access.Lock, "p", access.All)
	entry, err := r.db.TryLock(t.Context(), "p", leaseRef+"/turn")
	if err != nil {
		t.Fatal(err)
	}
	s := r.serve(t, server.DefaultLimits, &freeing{r.open(), sync.OnceFunc(func() {
		if err := entry.Release(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})})
	began := time.Now()
	got := r.acquire(t, s.plain("ci"), leasing(shared))
	if got.GetAcquired() == nil && time.Since(began) < time.Second { // it tries for longer than that
		t.Errorf("%v", got)
	}
}
