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
// that it gets. Behind the channel there may be any number of waiters.
type listener struct {
	process
	e       *env
	channel string
	woken   chan refdb.Wakeup
	kept    []refdb.Wakeup // received, but not asked for yet
	stop    func()
}

// someChannel is as long as one may be.
func someChannel() string { return "Ab1" + rand.Text() + "xyZ" }

// waiter returns one behind the listener's channel.
func (l *listener) waiter() *queued {
	q := l.e.told(l.process)
	q.Channel = l.channel
	return q
}

// listen starts a process that listens, or returns nil if hints don't exist
// for this driver. It ends with the row.
func (e *env) listen() *listener {
	e.Helper()
	return e.listenTo(e.spawn("site-c/3"), someChannel())
}

// listenTo has a process listen to a channel.
func (e *env) listenTo(p process, channel string) *listener {
	e.Helper()
	n, ok := p.Driver.(refdb.Notifier)
	if !ok {
		return nil
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(e.Context()))
	started, done := make(chan struct{}), make(chan error, 1)
	l := &listener{process: p, e: e, channel: channel, woken: make(chan refdb.Wakeup, 100)}
	l.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			e.Errorf("Listen ended with %v", err)
		}
	})
	go func() {
		done <- n.Listen(ctx, channel, func() { close(started) }, func(w refdb.Wakeup) { l.woken <- w })
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

// wantWoken waits for the next wake-up about a ref, which must be that.
func (l *listener) wantWoken(ref string, waiter *queued, after time.Duration) {
	l.e.Helper()
	want := refdb.Wakeup{Project: l.e.project, Ref: ref, Waiter: waiter.ID, After: after}
	about := func(w refdb.Wakeup) bool { return w.Project == l.e.project && w.Ref == ref }
	timeout := time.After(5 * time.Second)
	for {
		if i := slices.IndexFunc(l.kept, about); i >= 0 {
			w := l.kept[i]
			l.kept = slices.Delete(l.kept, i, i+1)
			if w != want {
				l.e.Fatalf("woken for %s was %+v, want %+v", ref, w, want)
			}
			return
		}
		select {
		case w := <-l.woken:
			l.kept = append(l.kept, w)
		case <-timeout:
			l.e.Fatalf("nobody was woken for %s; others: %+v", ref, l.kept)
		}
	}
}
