package api_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
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

// A polled driver counts requests for changes, and how many there are at a time, each of which takes
// some time.
type polled struct {
	refdb.Driver
	requests, now, most atomic.Int64
	down                atomic.Bool
	locksDown           atomic.Bool  // acquisitions fail
	waiters             atomic.Int64 // acquisitions that name a waiter
}

func (d *polled) Acquire(ctx context.Context, r driver.AcquireRequest) (driver.Acquired, error) {
	if d.locksDown.Load() {
		return driver.Acquired{}, driver.ErrUnavailable
	}
	if r.Waiter.ID != "" {
		d.waiters.Add(1)
	}
	return d.Driver.Acquire(ctx, r)
}

func (d *polled) Changes(ctx context.Context, r driver.ChangesRequest) (driver.ChangesPage, error) {
	d.requests.Add(1)
	now := d.now.Add(1)
	for most := d.most.Load(); now > most && !d.most.CompareAndSwap(most, now); most = d.most.Load() {
	}
	defer d.now.Add(-1)
	time.Sleep(time.Millisecond)
	if d.down.Load() {
		return driver.ChangesPage{}, driver.ErrUnavailable
	}
	return d.Driver.Changes(ctx, r)
}

// A stream notes what it is sent.
type stream struct {
	mu         sync.Mutex
	changes    int
	heartbeats int
	last       time.Time
	longest    time.Duration // between two responses
	ended      error
}

func (s *stream) send(m *refdbv1.WatchResponse) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.changes += len(m.Changes); len(m.Changes) == 0 {
		s.heartbeats++
	}
	if !s.last.IsZero() {
		s.longest = max(s.longest, time.Since(s.last))
	}
	s.last = time.Now()
	return nil
}

// A bubble has a database with a service, and the rules of the service.
type bubble struct {
	d       *polled
	db      *refdb.DB // of the service
	rules   *refdb.DB
	cache   *access.Cache
	service *api.Service
	token   access.Token
	rule    access.Rule
	ctx     context.Context // of calls of the subject "ci", which may read and lock in "p"
}

// streaming runs a test in a bubble, with a database, a service, and an identity that may read "p".
func streaming(t *testing.T, test func(t *testing.T, d *polled, db *refdb.DB, s *api.Service, ctx context.Context)) {
	t.Helper()
	inBubble(t, func(t *testing.T, b *bubble) { test(t, b.d, b.db, b.service, b.ctx) })
}

func inBubble(t *testing.T, test func(t *testing.T, b *bubble)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		m := memory.New()
		d := &polled{Driver: m.Open()}
		open := func(d refdb.Driver) *refdb.DB {
			db, err := refdb.New(d, refdb.Options{Site: "server"})
			if err != nil {
				t.Fatal(err)
			}
			return db
		}
		db, rules := open(d), open(m.Open())
		log := slog.New(slog.DiscardHandler)
		cache := access.NewCache(rules, log)
		text, token, err := access.CreateToken(t.Context(), rules, "ci", time.Hour, "")
		if err != nil {
			t.Fatal(err)
		}
		rule, _, err := access.AddRule(t.Context(), rules, access.Rule{Subject: "ci", Projects: "p", Refs: access.All, Right: access.Lock})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { cache.Run(ctx) })
		time.Sleep(access.ValidFor)
		identity, err := cache.Authenticate(text)
		if err != nil {
			t.Fatal(err)
		}
		test(t, &bubble{d, db, rules, cache, api.New(db, log, 16), token, rule, api.WithCaller(ctx, identity)})
		cancel()
		running.Wait()
		db.Close()
		rules.Close()
	})
}

func TestStreamsAreOneReaderToTheDatabase(t *testing.T) {
	streaming(t, func(t *testing.T, d *polled, db *refdb.DB, s *api.Service, ctx context.Context) {
		const streams = 300
		all := make([]*stream, streams)
		var open sync.WaitGroup
		for i := range all {
			all[i] = &stream{}
			open.Go(func() {
				err := s.Stream(ctx, &refdbv1.WatchRequest{Project: "p", Cursor: "begin"}, all[i].send)
				all[i].mu.Lock()
				defer all[i].mu.Unlock()
				all[i].ended = err
			})
		}
		time.Sleep(time.Minute)
		if n := d.most.Load(); n > 5 { // 4, and the feed
			t.Errorf("%d streams read at a time", n)
		}
		before := d.requests.Load()
		time.Sleep(time.Minute)
		if _, err := db.Put(ctx, "p", "refs/heads/main", "1"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if n := d.requests.Load() - before; n > 5000 { // one reader, every 30 ms or less often
			t.Errorf("%d requests of all streams in two minutes", n)
		}
		d.down.Store(true)
		time.Sleep(time.Minute)
		d.down.Store(false)
		time.Sleep(time.Minute)
		if _, err := db.Put(ctx, "p", "refs/heads/main", "2"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if n := d.most.Load(); n > 5 {
			t.Errorf("%d streams read at a time after an outage", n)
		}
		s.Drain()
		open.Wait()
		for i, one := range all {
			if one.changes != 2 || one.longest > 10*time.Second || one.heartbeats < 50 || connect.CodeOf(one.ended) != connect.CodeUnavailable {
				t.Fatalf("stream %d: %d changes, %d heartbeats, the longest pause is %s; %v", i, one.changes, one.heartbeats, one.longest, one.ended)
			}
		}
	})
}

// A response has at most 100 changes, and the database is not read on before it was sent.
func TestASlowClientHoldsOnePage(t *testing.T) {
	streaming(t, func(t *testing.T, d *polled, db *refdb.DB, s *api.Service, ctx context.Context) {
		var updates []refdb.Update
		for n := range 1000 {
			updates = append(updates, refdb.Update{Ref: fmt.Sprintf("refs/heads/%d", n), New: "1"})
		}
		if err := db.Update(ctx, "p", updates); err != nil {
			t.Fatal(err)
		}
		sizes := make(chan int)
		ctx, cancel := context.WithCancel(ctx)
		var open sync.WaitGroup
		open.Go(func() {
			_ = s.Stream(ctx, &refdbv1.WatchRequest{Project: "p", Cursor: "begin"}, func(m *refdbv1.WatchResponse) error {
				sizes <- len(m.Changes)
				return nil
			})
		})
		for range 10 {
			time.Sleep(time.Minute)
			before := d.requests.Load()
			if n := <-sizes; n != 100 {
				t.Errorf("%d changes at a time", n)
			}
			synctest.Wait()
			if n := d.requests.Load() - before; n > 1 {
				t.Errorf("%d requests", n)
			}
		}
		cancel()
		open.Wait()
	})
}

func TestAStreamThatCanNotBeSentEnds(t *testing.T) {
	for _, test := range []struct {
		err  error
		code connect.Code
		text string
	}{
		{fmt.Errorf("writing: %w", os.ErrDeadlineExceeded), connect.CodeResourceExhausted, "cursor"},
		{errors.New("broken pipe"), connect.CodeCanceled, "closed"},
	} {
		streaming(t, func(t *testing.T, _ *polled, _ *refdb.DB, s *api.Service, ctx context.Context) {
			err := s.Stream(ctx, &refdbv1.WatchRequest{Project: "p"}, func(*refdbv1.WatchResponse) error { return test.err })
			if connect.CodeOf(err) != test.code || !strings.Contains(err.Error(), test.text) {
				t.Errorf("%v: %v", test.err, err)
			}
		})
	}
}

// The token is valid for an hour, of which some seconds have passed. There are no changes to check the right for,
// and not even progress.
func TestAnOpenStreamEndsWithItsToken(t *testing.T) {
	streaming(t, func(t *testing.T, d *polled, _ *refdb.DB, s *api.Service, ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, time.Hour+10*time.Second)
		defer cancel()
		began := time.Now()
		defer time.AfterFunc(time.Minute, func() { d.down.Store(true) }).Stop()
		err := s.Stream(ctx, &refdbv1.WatchRequest{Project: "p"}, func(*refdbv1.WatchResponse) error { return nil })
		if connect.CodeOf(err) != connect.CodeUnauthenticated || time.Since(began) < time.Hour-time.Minute {
			t.Errorf("after %s: %v", time.Since(began), err)
		}
	})
}

// JWTs and certificates are identities that the database does not have.
func TestStreamsAndWaitsEndWithinSecondsOfTheirCredential(t *testing.T) {
	for _, row := range []struct {
		what       string
		identified bool // without a token of the database
		end        func(t *testing.T, b *bubble, valid *atomic.Bool) error
		code       connect.Code
	}{
		{"a token is revoked", false, func(t *testing.T, b *bubble, _ *atomic.Bool) error {
			return access.RevokeToken(t.Context(), b.rules, b.token.ID)
		}, connect.CodeUnauthenticated},
		{"a rule is removed", false, func(t *testing.T, b *bubble, _ *atomic.Bool) error {
			return access.RemoveRule(t.Context(), b.rules, b.rule.ID)
		}, connect.CodePermissionDenied},
		{"a JWT expires, or a certificate is not valid any more", true, func(_ *testing.T, _ *bubble, valid *atomic.Bool) error {
			valid.Store(false)
			return nil
		}, connect.CodeUnauthenticated},
	} {
		inBubble(t, func(t *testing.T, b *bubble) {
			var valid atomic.Bool
			valid.Store(true)
			if row.identified {
				identity, err := b.cache.Identify("ci", func(time.Time) error {
					if !valid.Load() {
						return access.ErrUnauthenticated
					}
					return nil
				})
				if err != nil {
					t.Fatal(err)
				}
				b.ctx = api.WithCaller(b.ctx, identity)
			}
			if _, err := b.db.Grants().Acquire(t.Context(), "other", time.Hour, "p", "refs/heads/main"); err != nil {
				t.Fatal(err)
			}
			var began time.Time
			var calls sync.WaitGroup
			ended := func(what string, err error) {
				if began.IsZero() || time.Since(began) > 10*time.Second || connect.CodeOf(err) != row.code {
					t.Errorf("%s: the %s ended %s later: %v", row.what, what, time.Since(began), err)
				}
			}
			calls.Go(func() {
				err := b.service.Stream(b.ctx, &refdbv1.WatchRequest{Project: "p"}, func(*refdbv1.WatchResponse) error { return nil })
				ended("stream", err)
			})
			calls.Go(func() {
				_, err := b.service.Acquire(b.ctx, connect.NewRequest(&refdbv1.AcquireRequest{
					Project: "p", Refs: []string{"refs/heads/main"}, LeaseTime: durationpb.New(time.Hour), Wait: durationpb.New(api.MaxWait),
				}))
				ended("wait", err)
			})
			time.Sleep(5 * time.Second)
			began = time.Now()
			if err := row.end(t, b, &valid); err != nil {
				t.Fatal(err)
			}
			calls.Wait()
		})
	}
}
