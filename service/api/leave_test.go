package api_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	refdbv1 "github.com/globalrefdb/globalrefdb/proto/refdb/v1"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/memory"
	"github.com/globalrefdb/globalrefdb/service/access"
	"github.com/globalrefdb/globalrefdb/service/api"
)

// A hanging driver answers no acquisition until it is told to.
type hanging struct {
	refdb.Driver
	answer      chan struct{}
	onlyWaiters bool // it answers acquisitions that name no waiter
}

func (d *hanging) Acquire(ctx context.Context, r driver.AcquireRequest) (driver.Acquired, error) {
	if r.Waiter.ID != "" || !d.onlyWaiters {
		<-d.answer
	}
	return d.Driver.Acquire(ctx, r)
}

// Get hangs for one ref.
func (d *hanging) Get(ctx context.Context, project string, refs []string) ([]driver.Ref, error) {
	if refs[0] == slowRef {
		<-d.answer
	}
	return d.Driver.Get(ctx, project, refs)
}

const slowRef = "refs/heads/slow"

// A caller makes calls of one subject.
type caller struct {
	service *api.Service
	ctx     context.Context
}

func (c caller) acquire(ref string) (*refdbv1.AcquireResponse, error) {
	r, err := c.service.Acquire(c.ctx, connect.NewRequest(&refdbv1.AcquireRequest{Project: "p", Refs: []string{ref}, LeaseTime: durationpb.New(time.Hour)}))
	if err != nil {
		return nil, err
	}
	return r.Msg, nil
}

// A rig is a service whose database answers no acquisition until it is told to.
type rig struct {
	d       *hanging
	db      *refdb.DB
	cache   *access.Cache
	service *api.Service
}

// whileAcquisitionsHang runs a test in a bubble, with so many turns.
func whileAcquisitionsHang(t *testing.T, requests int, test func(t *testing.T, r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		d := &hanging{Driver: memory.New().Open(), answer: make(chan struct{})}
		db, err := refdb.New(d, refdb.Options{Site: "server"})
		if err != nil {
			t.Fatal(err)
		}
		log := slog.New(slog.DiscardHandler)
		r := &rig{d, db, access.NewCache(db, log), api.New(db, log, requests)}
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { r.cache.Run(ctx) })
		defer func() {
			db.Close()
			cancel()
			running.Wait()
		}()
		test(t, r)
	})
}

// as returns the calls of a subject that may lock everything.
func (r *rig) as(t *testing.T, subject string) (caller, access.Rule) {
	t.Helper()
	text, _, err := access.CreateToken(t.Context(), r.db, subject, time.Hour, "")
	if err != nil {
		t.Fatal(err)
	}
	rule, _, err := access.AddRule(t.Context(), r.db, access.Rule{Subject: subject, Projects: access.All, Refs: access.All, Right: access.Lock})
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(access.ValidFor)
	identity, err := r.cache.Authenticate(text)
	if err != nil {
		t.Fatal(err)
	}
	return caller{r.service, api.WithCaller(t.Context(), identity)}, rule
}

func TestACallLeavesAnAcquisitionThatHangs(t *testing.T) {
	whileAcquisitionsHang(t, 16, func(t *testing.T, r *rig) {
		ci, _ := r.as(t, "ci")
		other, _ := r.as(t, "other")
		var kept atomic.Int64
		keep := func() func() {
			kept.Add(1)
			return func() { kept.Add(-1) }
		}
		ci.ctx, other.ctx = api.WithKeep(ci.ctx, keep), api.WithKeep(other.ctx, keep)

		const calls, left = 128, 3 // of a subject
		var unknown, refused atomic.Int64
		var acquiring sync.WaitGroup
		for i := range calls {
			acquiring.Go(func() {
				got, err := ci.acquire(fmt.Sprintf("refs/locks/%d", i))
				switch {
				case got.GetUnknown() != nil:
					unknown.Add(1)
				case connect.CodeOf(err) == connect.CodeUnavailable && strings.Contains(err.Error(), "nothing was done"):
					refused.Add(1)
				default:
					t.Errorf("%v, %v", got, err)
				}
			})
		}
		synctest.Wait()
		for _, c := range []caller{ci, other} {
			began := time.Now()
			if _, err := c.service.Get(c.ctx, connect.NewRequest(&refdbv1.GetRequest{Project: "p", Refs: []string{"refs/heads/main"}})); err != nil || time.Since(began) > 0 {
				t.Errorf("reading meanwhile: %v after %s", err, time.Since(began))
			}
		}
		if got, err := other.acquire("refs/locks/other"); err != nil || got.GetUnknown() == nil {
			t.Errorf("another subject: %v, %v", got, err)
		}
		acquiring.Wait()
		if unknown.Load() != left || refused.Load() != calls-left {
			t.Errorf("%d acquisitions were left, %d refused", unknown.Load(), refused.Load())
		}
		if _, err := ci.acquire("refs/locks/more"); connect.CodeOf(err) != connect.CodeUnavailable || !strings.Contains(err.Error(), "nothing was done") {
			t.Errorf("one more: %v", err)
		}
		if n := kept.Load(); n != left+1 {
			t.Errorf("%d requests keep what their calls used", n)
		}
		r.service.Wait() // not for what was left
		if _, err := other.acquire("refs/locks/late"); connect.CodeOf(err) != connect.CodeUnavailable {
			t.Errorf("after the end: %v", err)
		}
		close(r.d.answer)
		synctest.Wait()
		n := 0
		for _, err := range r.db.Locks(t.Context(), refdb.LockFilter{}) {
			if err != nil {
				t.Fatal(err)
			}
			n++
		}
		if n != left+1 {
			t.Errorf("%d of the requests were carried out", n)
		}
		if n := kept.Load(); n != 0 {
			t.Errorf("%d requests have ended, and keep what their calls used", n)
		}
	})
}

// Neither its own calls nor those of others can keep a subject from extending its locks.
func TestASubjectWhoseCallsHangStillExtendsItsLocks(t *testing.T) {
	for _, requests := range []int{4, 7, 8} {
		whileAcquisitionsHang(t, requests, func(t *testing.T, r *rig) {
			ci, _ := r.as(t, "ci")
			other, _ := r.as(t, "other")
			var hanging sync.WaitGroup
			for i := range 100 {
				for _, c := range []caller{ci, other} {
					hanging.Go(func() { c.acquire(fmt.Sprintf("refs/locks/%d", i)) })
					hanging.Go(func() {
						c.service.Get(c.ctx, connect.NewRequest(&refdbv1.GetRequest{Project: "p", Refs: []string{slowRef}}))
					})
				}
			}
			synctest.Wait()
			for subject, c := range map[string]caller{"ci": ci, "other": other} {
				began := time.Now()
				lock := &refdbv1.Lock{Project: "p", Refs: []string{"refs/locks/own"}, Owner: access.Owner(subject, "x"), Token: 1}
				got, err := c.service.Extend(c.ctx, connect.NewRequest(&refdbv1.ExtendRequest{Lock: lock}))
				if err != nil || got.Msg.GetLost() == nil || time.Since(began) > 0 {
					t.Errorf("%d turns: %s: %v, %v after %s", requests, subject, got, err, time.Since(began))
				}
			}
			close(r.d.answer)
			hanging.Wait()
		})
	}
}

func TestARuleThatIsRemovedEndsTheWaitForATurn(t *testing.T) {
	whileAcquisitionsHang(t, 16, func(t *testing.T, r *rig) {
		ci, rule := r.as(t, "ci")
		var hanging sync.WaitGroup
		for i := range 3 {
			hanging.Go(func() { ci.acquire(fmt.Sprintf("refs/locks/%d", i)) })
		}
		synctest.Wait()
		failed := make(chan error, 1)
		go func() {
			_, err := ci.acquire("refs/locks/late")
			failed <- err
		}()
		synctest.Wait()
		if err := access.RemoveRule(t.Context(), r.db, rule.ID); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second) // for the cache
		close(r.d.answer)
		if err := <-failed; connect.CodeOf(err) != connect.CodePermissionDenied {
			t.Error(err)
		}
		hanging.Wait()
	})
}

// A request for a place may be carried out after its call was answered.
func TestACallThatLeavesARequestForAPlaceKeepsNone(t *testing.T) {
	for _, row := range []struct {
		what, ticket string
		released     bool // the lock that is waited for, before the request is carried out
		places       int
	}{
		{"nobody can go on in the place", "", false, 0},
		{"the caller may repeat the request", "the-ticket-of-a-caller", false, 1},
		{"the lock is free by then", "", true, 0},
	} {
		whileAcquisitionsHang(t, 4, func(t *testing.T, r *rig) {
			r.d.onlyWaiters = true
			ci, _ := r.as(t, "ci")
			const ref = "refs/locks/main"
			held, err := r.db.Grants().Acquire(t.Context(), "other", time.Hour, "p", ref)
			if err != nil {
				t.Fatal(err)
			}
			got, err := ci.service.Acquire(ci.ctx, connect.NewRequest(&refdbv1.AcquireRequest{
				Project: "p", Refs: []string{ref}, LeaseTime: durationpb.New(time.Hour), Wait: durationpb.New(time.Second), Ticket: row.ticket,
			}))
			if err != nil || got.Msg.GetUnknown() == nil {
				t.Fatalf("%s: %v, %v", row.what, got, err)
			}
			if row.released {
				if err := r.db.Grants().Release(t.Context(), held.Grant); err != nil {
					t.Fatal(err)
				}
			}
			close(r.d.answer)
			synctest.Wait()
			locks := 0
			for l, err := range r.db.Locks(t.Context(), refdb.LockFilter{Project: "p"}) {
				if err != nil || l.Waiters != row.places {
					t.Errorf("%s: %d places, %v", row.what, l.Waiters, err)
				}
				if locks++; (l.Owner != "other") != row.released {
					t.Errorf("%s: the lock is %s's", row.what, l.Owner)
				}
			}
			if locks != 1 {
				t.Errorf("%s: there are %d locks", row.what, locks)
			}
		})
	}
}
