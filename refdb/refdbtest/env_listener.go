package refdbtest

import (
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
)

// A listener is a process that listens to a channel, and collects the wake-ups
// that it gets. Behind the channel there may be other clients than its waiter.
type listener struct {
	process
	e      *env
	waiter refdb.Waiter
	woken  chan refdb.Wakeup
	kept   []refdb.Wakeup // received, but not asked for yet
	stop   func()
}

// someWaiter returns one with names as long as they may be.
func someWaiter() refdb.Waiter {
	return refdb.Waiter{Channel: "Ab1" + rand.Text() + "xyZ", Client: rand.Text() + "Client"}
}

// another returns one more client behind the listener's channel.
func (l *listener) another() refdb.Waiter {
	return refdb.Waiter{Channel: l.waiter.Channel, Client: someWaiter().Client}
}

// listen starts a process that listens, or returns nil if hints don't exist
// for this driver. It ends with the row.
func (e *env) listen() *listener {
	e.Helper()
	return e.listenTo(e.spawn("site-c/3"), someWaiter())
}

// listenTo has a process listen to a waiter's channel.
func (e *env) listenTo(p process, w refdb.Waiter) *listener {
	e.Helper()
	n, ok := p.Driver.(refdb.Notifier)
	if !ok {
		return nil
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(e.Context()))
	started, done := make(chan struct{}), make(chan error, 1)
	l := &listener{process: p, e: e, waiter: w, woken: make(chan refdb.Wakeup, 100)}
	l.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			e.Errorf("Listen ended with %v", err)
		}
	})
	go func() {
		done <- n.Listen(ctx, w.Channel, func() { close(started) }, func(w refdb.Wakeup) { l.woken <- w })
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

// wait has w be refused locks, and wait for them.
func (l *listener) wait(w refdb.Waiter, refs ...string) {
	l.e.Helper()
	l.waitWith(w, nil, refs...)
}

// waitWith is wait for one who brings queues.
func (l *listener) waitWith(w refdb.Waiter, queues []refdb.Queue, refs ...string) {
	l.e.Helper()
	r := l.e.request(l.process, refs...)
	r.Waiter, r.Queues = w, queues
	_, err := l.e.send(l.process, r)
	l.e.holders(err)
}

// take has the first of a queue acquire the lock that it was woken for.
func (l *listener) take(w refdb.Wakeup) lock {
	l.e.Helper()
	return l.takeWith(w.Queue[0], []refdb.Queue{w.Queue}, w.Ref)
}

// takeWith has w acquire locks, and bring queues.
func (l *listener) takeWith(w refdb.Waiter, queues []refdb.Queue, refs ...string) lock {
	l.e.Helper()
	r := l.e.request(l.process, refs...)
	r.Waiter, r.Queues = w, queues
	got, err := l.e.send(l.process, r)
	l.e.must(err)
	return got
}

// passOn has the first of a queue give up its turn.
func (l *listener) passOn(w refdb.Wakeup) {
	w.Queue = w.Queue[1:]
	l.Driver.(refdb.Notifier).PassOn(w)
}

// wantWoken waits for the next wake-up about a ref, which must have this queue.
func (l *listener) wantWoken(ref string, queue ...refdb.Waiter) refdb.Wakeup {
	l.e.Helper()
	about := func(w refdb.Wakeup) bool { return w.Project == l.e.project && w.Ref == ref }
	timeout := time.After(5 * time.Second)
	for {
		if i := slices.IndexFunc(l.kept, about); i >= 0 {
			w := l.kept[i]
			l.kept = slices.Delete(l.kept, i, i+1)
			if !slices.Equal(w.Queue, queue) {
				l.e.Fatalf("woken for %s was %+v, want %+v", ref, w.Queue, queue)
			}
			return w
		}
		select {
		case w := <-l.woken:
			l.kept = append(l.kept, w)
		case <-timeout:
			l.e.Fatalf("nobody was woken for %s; others: %+v", ref, l.kept)
		}
	}
}
