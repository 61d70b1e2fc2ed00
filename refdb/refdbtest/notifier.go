package refdbtest

import (
	"context"
	"errors"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
)

// Hints may be lost, but not where nothing goes wrong.
func notifierRows() []row {
	wait := func(e *env, p process, refs ...string) refdb.AcquireRequest {
		e.Helper()
		r := e.request(p, refs...)
		r.Wait = true
		_, err := e.send(p, r)
		e.holders(err)
		return r
	}
	return []row{
		{"a release wakes the process that waits", func(e *env) {
			b := e.listen()
			if b == nil {
				return // hints can't arrive here
			}
			l := e.acquire(e.a, refA)
			wait(e, b.process, refA)
			e.release(e.a, l.held()...)
			b.wantWoken(refA)
		}},
		{"an update that releases wakes it", func(e *env) {
			b := e.listen()
			if b == nil {
				return // hints can't arrive here
			}
			l := e.acquire(e.a, refA)
			wait(e, b.process, refA)
			e.must(e.transact(e.a, refdb.Transaction{Fence: l.fence(), Release: true, Updates: []refdb.Update{move(refA, "", v1)}}))
			b.wantWoken(refA)
		}},
		{"processes that wait are woken one after the other", func(e *env) {
			b := e.listen()
			if b == nil {
				return // hints can't arrive here
			}
			c := e.listen()
			l := e.acquire(e.a, refA)
			r := wait(e, b.process, refA)
			wait(e, c.process, refA)
			e.release(e.a, l.held()...)
			b.wantWoken(refA)
			l, err := e.send(b.process, r)
			e.must(err)
			e.release(b.process, l.held()...)
			c.wantWoken(refA)
		}},
		{"one that is woken, and in which nobody waits any more, passes it on", func(e *env) {
			b := e.listen()
			if b == nil {
				return // hints can't arrive here
			}
			c, d := e.listen(), e.listen()
			l := e.acquire(e.a, refA)
			for _, p := range []*listener{b, c, d} {
				wait(e, p.process, refA)
			}
			b.Driver.(refdb.Notifier).PassOn(refA, e.project) // of another
			e.release(e.a, l.held()...)
			for _, p := range []*listener{b, c} {
				p.wantWoken(refA)
				p.Driver.(refdb.Notifier).PassOn(e.project, refA)
				p.Driver.(refdb.Notifier).PassOn(e.project, refA) // says nothing new
			}
			d.wantWoken(refA)
		}},
		{"a process that waits for several locks is woken by the release of the one that is held", func(e *env) {
			b := e.listen()
			if b == nil {
				return // hints can't arrive here
			}
			l := e.acquire(e.a, refB)
			wait(e, b.process, refA, refB, refC)
			e.release(e.a, l.held()...)
			b.wantWoken(refB)
		}},
		{"one that waits is woken through a reclaim", func(e *env) {
			b := e.listen()
			if b == nil {
				return // hints can't arrive here
			}
			l := e.acquire(e.a, refA)
			wait(e, b.process, refA)
			e.age(l, stale)
			l = e.acquire(e.a, refA)
			e.release(e.a, l.held()...)
			b.wantWoken(refA)
		}},
		{"the end of an intent wakes it, whoever ends it and how", func(e *env) {
			b := e.listen()
			if b == nil {
				return // hints can't arrive here
			}
			for what, end := range map[string]func(lock) error{
				"done":     func(l lock) error { return e.finish(e.a, l) },
				"dropped":  func(l lock) error { return e.tryFinish(e.a, l, nil, l.AcquireRequest.Refs) },
				"released": func(l lock) error { e.release(e.a, l.intended()...); return nil },
				"resolved": func(l lock) error { e.resolve(e.a, refdb.KeepOld, l.named()...); return nil },
			} {
				ref := "refs/heads/" + what
				l := e.prepare(e.a, move(ref, "", v1))
				wait(e, b.process, ref)
				e.must(end(l))
				b.wantWoken(ref)
			}
		}},
		{"one that waits is woken through a preparation that takes the stale lock over", func(e *env) {
			b := e.listen()
			if b == nil {
				return // hints can't arrive here
			}
			l := e.acquire(e.a, refA)
			wait(e, b.process, refA)
			e.age(l, stale)
			e.must(e.finish(e.a, e.prepare(e.a, move(refA, "", v1))))
			b.wantWoken(refA)
		}},
	}
}

// A listener is a process that collects the hints it gets.
type listener struct {
	process
	e     *env
	woken chan refdb.Held
}

// listen starts a process that listens, or returns nil if hints don't exist
// for this driver. It ends with the row.
func (e *env) listen() *listener {
	e.Helper()
	p := e.spawn("site-c/3")
	n, ok := p.Driver.(refdb.Notifier)
	if !ok {
		return nil
	}
	l := &listener{p, e, make(chan refdb.Held, 100)}
	ctx, cancel := context.WithCancel(context.WithoutCancel(e.Context()))
	started, done := make(chan struct{}), make(chan error, 1)
	go func() {
		done <- n.Listen(ctx, func() { close(started) }, func(project, ref string) {
			l.woken <- refdb.Held{Project: project, Ref: ref}
		})
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
	e.Cleanup(func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			e.Errorf("Listen ended with %v", err)
		}
	})
	return l
}

// wantWoken waits for the hint about a ref.
func (l *listener) wantWoken(ref string) {
	l.e.Helper()
	timeout := time.After(5 * time.Second)
	for {
		select {
		case got := <-l.woken:
			if got.Project == l.e.project && got.Ref == ref {
				return
			}
		case <-timeout:
			l.e.Fatalf("nobody was woken for %s", ref)
		}
	}
}
