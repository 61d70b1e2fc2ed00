package driver

import (
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/refdbtest/internal/suite"
)

// Hints may be lost when something fails; here nothing fails.
func notifierRows() []row {
	return []row{
		{"the waiter that a lock is reserved for is woken, whatever ended the lock", listening(func(e *env, b *listener) {
			for what, end := range handOvers(e) {
				ref := "refs/heads/" + what
				over := end(ref)
				w := b.waiter()
				w.wait(ref)
				over()
				b.wantWakeup(ref, w, 0)
			}
		})},
		{"the following waiter is notified of the end of the first one's turn", listening(func(e *env, b *listener) {
			c := listen(e)
			for what, end := range handOvers(e) {
				ref := "refs/heads/" + what
				over := end(ref)
				first, second, third := b.waiter(), c.waiter(), b.waiter()
				for _, w := range []*waiter{first, second, third} {
					w.wait(ref)
				}
				over()
				b.wantWakeup(ref, first, 0)
				c.wantWakeup(ref, second, first.Turn)
				e.Release(e.B, first.acquire(ref))
				c.wantWakeup(ref, second, 0)
				b.wantWakeup(ref, third, second.Turn)
			}
		})},
		{"the first waiter with a channel is woken if the lock is reserved for nobody", listening(func(e *env, b *listener) {
			l := e.Acquire(e.A, refA)
			dead, w := polling(e, e.B), b.waiter()
			dead.wait(refA)
			w.wait(refA)
			e.Release(e.A, l)
			b.wantWakeup(refA, w, 0)
			w.acquire(refA)
		})},
		{"the Next of a release is woken if there are no other waiters, and nobody else is", listening(func(e *env, b *listener) {
			a := listenTo(e, e.A, newChannelName())
			next := a.waiter()
			releaseWithNext(e, next, e.Acquire(e.A, refA))
			a.wantWakeup(refA, next, 0)
			l := next.acquire(refA)

			first, second := b.waiter(), b.waiter()
			first.wait(refA)
			for range driver.MaxPassed {
				next = a.waiter()
				releaseWithNext(e, next, l)
				a.wantWakeup(refA, next, 0)
				l = next.acquire(refA)
			}
			second.wait(refA)
			next = a.waiter()
			releaseWithNext(e, next, l)
			b.wantWakeup(refA, first, 0)
			b.wantWakeup(refA, second, first.Turn)
			e.Release(e.B, first.acquire(refA))
			b.wantWakeup(refA, second, 0)
			a.wantWakeup(refA, next, second.Turn)
			e.Release(e.B, second.acquire(refA))
			a.wantWakeup(refA, next, 0)
		})},
		{"a releasing update wakes its Next", func(e *env) {
			a := listenTo(e, e.A, newChannelName())
			if a == nil {
				return // hints can't arrive here
			}
			for _, updates := range [][]driver.Update{{suite.Move(refA, "", v1)}, {suite.Move(refA, v1, v2), suite.Move(refB, "", v1)}} {
				l, next := e.Acquire(e.A, refA), a.waiter()
				fence := l.Fence()
				fence.Release, fence.Next = true, next.Waiter
				e.Must(e.SendUpdate(e.A, driver.UpdateRequest{Updates: updates, Fence: fence}))
				a.wantWakeup(refA, next, 0)
			}
		}},
		{"the waiter to which a lock is yielded is woken", listening(func(e *env, b *listener) {
			l, _ := e.Acquire(e.A, refA), e.Acquire(e.A, refB)
			first, second := notified(e, e.B), b.waiter()
			first.wait(refA, refB)
			second.wait(refA)
			e.Release(e.A, l)
			b.wantWakeup(refA, second, first.Turn)
			first.refused([]string{refA, refB}, refB)
			b.wantWakeup(refA, second, 0)
		})},
		{"the waiter behind one that gives up is woken", listening(func(e *env, b *listener) {
			l := e.Acquire(e.A, refA)
			first, second := notified(e, e.B), b.waiter()
			first.wait(refA)
			second.wait(refA)
			e.Release(e.A, l)
			b.wantWakeup(refA, second, first.Turn)
			first.giveUp(refA)
			b.wantWakeup(refA, second, 0)
		})},
		{"a waiter for a stale lock is woken by the end of the lock that replaced it", listening(func(e *env, b *listener) {
			for what, take := range map[string]func(ref string) (over func()){
				"lock": func(ref string) func() {
					l := e.Acquire(e.A, ref)
					return func() { e.Release(e.A, l) }
				},
				"intent": func(ref string) func() {
					l := e.Prepare(e.A, suite.Move(ref, "", v1))
					return func() { e.Must(e.Finish(e.A, l)) }
				},
			} {
				ref := "refs/heads/" + what
				l := e.Acquire(e.A, ref)
				w := b.waiter()
				w.wait(ref)
				e.Age(l, stale)
				take(ref)()
				b.wantWakeup(ref, w, 0)
			}
		})},
		{"every deletion of a lock wakes the first waiter", listening(func(e *env, b *listener) {
			for _, end := range []struct {
				what string
				by   func(lock) error
			}{
				{"removal", func(l lock) error {
					e.Age(l, stale)
					return suite.ErrorOf(e.B.Remove(e.Context(), driver.RemoveRequest{Project: e.Project, Limit: 10}))
				}},
				{"forced-removal", func(l lock) error {
					return suite.ErrorOf(e.B.Remove(e.Context(), driver.RemoveRequest{Project: e.Project, Limit: 10, Locks: driver.AdvisoryLocks}))
				}},
			} {
				ref := "refs/heads/" + end.what
				l := e.Acquire(e.A, ref)
				w := b.waiter()
				w.wait(ref)
				e.Must(end.by(l))
				b.wantWakeup(ref, w, 0)
			}
		})},
		{"one driver listens to several channels, and one of them may end and start again", listening(func(e *env, b *listener) {
			c := listenTo(e, b.process, newChannelName())
			wakes := func(p *listener) {
				e.Helper()
				l := e.Acquire(e.A, refA)
				w := p.waiter()
				w.wait(refA)
				e.Release(e.A, l)
				p.wantWakeup(refA, w, 0)
				w.giveUp(refA)
			}
			for _, p := range []*listener{b, c, b, c} {
				wakes(p)
			}
			b.stop()
			wakes(c)
			wakes(listenTo(e, b.process, b.channel))
		})},
	}
}

// A listener is a process that listens to a channel and collects its wake-ups.
// Any number of waiters may use the channel.
type listener struct {
	process
	e        *env
	channel  string
	wakeups  chan driver.Wakeup
	received []driver.Wakeup // that no wantWakeup has asked for yet
	stop     func()
}

// listening returns a row that is run with a listener, or passes at once if hints can't arrive.
func listening(run func(*env, *listener)) func(*env) {
	return func(e *env) {
		if b := listen(e); b != nil {
			run(e, b)
		}
	}
}

// newChannelName returns a unique name of the greatest length.
func newChannelName() string { return "Ab1" + rand.Text() + "xyZ" }

// waiter returns a waiter that is notified through the listener's channel.
func (l *listener) waiter() *waiter {
	q := notified(l.e, l.process)
	q.Channel = l.channel
	return q
}

// listen opens a driver and starts to listen, until the row ends. It returns nil if the driver
// can't notify.
func listen(e *env) *listener {
	e.Helper()
	return listenTo(e, e.Spawn("site-c/3"), newChannelName())
}

// listenTo has p listen to a channel; like listen.
func listenTo(e *env, p process, channel string) *listener {
	e.Helper()
	n, ok := p.Driver.(driver.Notifier)
	if !ok {
		return nil
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(e.Context()))
	started, done := make(chan struct{}), make(chan error, 1)
	l := &listener{process: p, e: e, channel: channel, wakeups: make(chan driver.Wakeup, 100)}
	l.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			e.Errorf("Listen ended with %v", err)
		}
	})
	go func() {
		done <- n.Listen(ctx, channel, func() { close(started) }, func(w driver.Wakeup) { l.wakeups <- w })
	}()
	select {
	case <-started:
	case err := <-done:
		cancel()
		if !errors.Is(err, errors.ErrUnsupported) {
			e.Fatalf("Listen: %v", err)
		}
		return nil
	}
	e.Cleanup(l.stop)
	return l
}

// wantWakeup waits for the next wake-up about a ref, which must be for waiter.
func (l *listener) wantWakeup(ref string, waiter *waiter, after time.Duration) {
	l.e.Helper()
	want := driver.Wakeup{Project: l.e.Project, Ref: ref, Waiter: waiter.ID, After: after}
	about := func(w driver.Wakeup) bool { return w.Project == l.e.Project && w.Ref == ref }
	timeout := time.After(l.e.Patience())
	for {
		if i := slices.IndexFunc(l.received, about); i >= 0 {
			w := l.received[i]
			l.received = slices.Delete(l.received, i, i+1)
			if w != want {
				l.e.Fatalf("woken for %s was %+v, want %+v", ref, w, want)
			}
			return
		}
		select {
		case w := <-l.wakeups:
			l.received = append(l.received, w)
		case <-timeout:
			l.e.Fatalf("nobody was woken for %s; others: %+v", ref, l.received)
		}
	}
}

func connectionRows() []row {
	return []row{
		{"P3 the time is the database's, the same for every process, and advances", func(e *env) {
			last := e.Now(e.A)
			for i := range 100 {
				now := e.Now([]process{e.A, e.B}[i%2])
				if now.Before(last) {
					e.Fatalf("%v after %v", now, last)
				}
				last = now
			}
			if l := e.Acquire(e.A, refA); e.Now(e.B).Before(l.Token.Time()) {
				e.Errorf("token %v lies in the future", l.Token.Time())
			}
		}},
		{"every method returns the error of its ended context", func(e *env) {
			ctx, cancel := context.WithDeadline(e.Context(), time.Unix(0, 0))
			defer cancel()
			for name, call := range everyMethod(e, ctx, e.A) {
				if err := call(); !errors.Is(err, context.DeadlineExceeded) {
					e.Errorf("%s: %v", name, err)
				}
			}
			e.WantRefs(nil)
			e.WantNone()
		}},
		{"a closed driver refuses every call, and can be closed again", func(e *env) {
			p := e.Spawn("site-c/3")
			e.Must(p.Close())
			for name, call := range everyMethod(e, e.Context(), p) {
				if err := call(); err == nil {
					e.Errorf("%s succeeded", name)
				}
			}
			e.Must(p.Close())
			e.WantRefs(nil)
			e.WantNone()
		}},
		{"processes come and go without an effect on each other", func(e *env) {
			l := e.Acquire(e.A, refA)
			p := e.Spawn("site-c/3")
			e.Must(p.Close())
			e.Must(e.SendUpdate(e.A, driver.UpdateRequest{Fence: l.Fence(), Updates: []driver.Update{suite.Move(refA, "", v1)}}))
			e.WantLock(l)
		}},
	}
}

// everyMethod returns a call of every method, by name.
func everyMethod(e *env, ctx context.Context, p process) map[string]func() error {
	refs := []string{refA}
	ids := suite.IDsOf(e.Project, p.Owner, 1, refs)
	return map[string]func() error{
		"Get":       func() error { return suite.ErrorOf(p.Get(ctx, e.Project, refs)) },
		"List":      func() error { return suite.ErrorOf(p.List(ctx, driver.RefQuery{Project: e.Project, Limit: 1})) },
		"Summaries": func() error { return suite.ErrorOf(p.Summaries(ctx, driver.SummaryQuery{Limit: 1})) },
		"States":    func() error { return suite.ErrorOf(p.States(ctx, e.Project, refs)) },
		"Update": func() error {
			return p.Update(ctx, driver.UpdateRequest{Project: e.Project, Origin: driver.Origin{ID: "x"}, Updates: []driver.Update{suite.Move(refA, "", v1)}})
		},
		"Remove": func() error {
			return suite.ErrorOf(p.Remove(ctx, driver.RemoveRequest{Project: e.Project, Limit: 1}))
		},
		"PurgeTombstones": func() error {
			return suite.ErrorOf(p.PurgeTombstones(ctx, driver.TombstoneRequest{Project: e.Project, Limit: 1}))
		},
		"Acquire": func() error { return suite.ErrorOf(p.Acquire(ctx, e.AcquireRequest(p, refA))) },
		"Beat":    func() error { return suite.ErrorOf(p.Beat(ctx, ids)) },
		"Release": func() error {
			return suite.ErrorOf(p.Release(ctx, driver.ReleaseRequest{Project: e.Project, Refs: refs, Owner: p.Owner, Token: 1}))
		},
		"Purge": func() error { return suite.ErrorOf(p.Purge(ctx, suite.Standing(ids...))) },
		"Abandon": func() error {
			return p.Abandon(ctx, driver.AbandonRequest{Project: e.Project, Refs: refs, Owner: p.Owner, Nonce: "x"})
		},
		"Locks":   func() error { return suite.ErrorOf(p.Locks(ctx, driver.LockQuery{Limit: 1})) },
		"Prepare": func() error { return suite.ErrorOf(p.Prepare(ctx, e.PrepareRequest(p, suite.Move(refA, "", v1)))) },
		"Finish": func() error {
			return p.Finish(ctx, driver.FinishRequest{Project: e.Project, Origin: driver.Origin{ID: "x", Owner: p.Owner}, Token: 1, Dropped: refs})
		},
		"Revoke": func() error { return p.Revoke(ctx, e.PrepareRequest(p, suite.Move(refA, "", v1))) },
		"Resolve": func() error {
			return suite.ErrorOf(p.Resolve(ctx, driver.ResolveRequest{Intents: ids, Decision: driver.KeepOld, Origin: driver.Origin{By: "x"}, Reason: "x"}))
		},
		"Forget":  func() error { return p.Forget(ctx, ids) },
		"Intents": func() error { return suite.ErrorOf(p.Intents(ctx, driver.IntentQuery{Limit: 1})) },
		"Now":     func() error { return suite.ErrorOf(p.Now(ctx)) },
	}
}
