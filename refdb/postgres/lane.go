package postgres

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
)

const (
	// laneWidth is how many trips of a lane are under way before requests queue up.
	laneWidth = 1
	// laneSeats is how many requests share a trip at most.
	laneSeats = 128
	// lanePatience is how long a request queues for trips under way to return.
	// On a long line, or with a slow disk, there is more to lose by waiting for
	// them than to gain by sharing.
	lanePatience = 5 * time.Millisecond
)

// A lane is the way to the server of requests of one kind, each about a single
// ref. Whoever finds it free makes a trip of its own at once. Those who come
// while others are under way queue up, and share the next trip: its round trip
// and its commit.
//
// A shared trip waits for nobody, and decides about each of its requests as if
// that were alone. What it would have to wait for, and what is rare, it leaves
// undecided: that request then makes a trip of its own, and so do all of them
// if it fails.
//
// Those who come back from a shared trip often have more to ask for, at once.
// So that not the first of them goes alone and the others wait for it, trips
// leave a moment later, once whoever can run has run, until one that did so
// was lonely.
type lane[R any] struct {
	what string // is being done, for errors
	// share makes a trip for all of them.
	share func(ctx context.Context, together []*seat[R]) error
	// begin says that a trip begins that Close has to wait for until end, or
	// reports that it is too late.
	begin func() bool
	end   func()

	crowded *atomic.Bool // the last trip was shared, on this lane or a neighbouring one

	mu         sync.Mutex
	under      int // trips under way
	queue      []*seat[R]
	impatience *time.Timer // for the first in the queue
}

func newLane[R any](d *Driver, what string, share func(context.Context, []*seat[R]) error) *lane[R] {
	return &lane[R]{what: what, share: share, begin: d.enter, end: d.running.Done, crowded: &d.crowded}
}

// A seat is a request's place in the queue and in the trip.
type seat[R any] struct {
	ref     freedKey
	request R
	decided bool          // request has its answer
	done    chan struct{} // closed when the trip has returned
	err     error         // of the trip, if nobody knows what came of it

	passengers *atomic.Int32 // of the same trip, who still wait for it; nil in the queue
	cancel     context.CancelFunc
}

// pass carries out a request by a trip, its own or a shared one. It returns the
// request with the answer if that was a shared one, else nil and what alone returned.
func (l *lane[R]) pass(ctx context.Context, ref freedKey, request R, alone func() error) (*R, error) {
	s, counts := l.enter(ref, request)
	if s == nil {
		if counts {
			defer l.leave()
		}
		return nil, alone()
	}
	select {
	case <-s.done:
	case <-ctx.Done():
		if l.getOff(s) {
			return nil, judge(ctx, trip{what: l.what, writes: true}, executing, ctx.Err()).err
		}
		return nil, alone() // which has something to say about ctx
	}
	switch {
	case s.err != nil:
		return nil, s.err
	case s.decided:
		return &s.request, nil
	default:
		return nil, alone()
	}
}

// enter returns a seat; or nil for a trip alone, and whether that counts as one of the lane.
func (l *lane[R]) enter(ref freedKey, request R) (s *seat[R], counts bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	free := l.under < laneWidth && len(l.queue) == 0
	if free && !l.crowded.Load() {
		l.under++
		return nil, true
	}
	if slices.ContainsFunc(l.queue, func(other *seat[R]) bool { return other.ref == ref }) {
		return nil, false // only one of them can share a trip
	}
	s = &seat[R]{ref: ref, request: request, done: make(chan struct{})}
	l.queue = append(l.queue, s)
	switch {
	case len(l.queue) == laneSeats:
		l.depart()
	case len(l.queue) == 1:
		l.impatience = time.AfterFunc(lanePatience, func() { l.departWith(s) })
		if free {
			go func() {
				runtime.Gosched()
				l.departWith(s)
			}()
		}
	}
	return s, false
}

// departWith sends the queue off, if s is the first in it.
func (l *lane[R]) departWith(s *seat[R]) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.queue) > 0 && l.queue[0] == s {
		l.depart()
	}
}

// leave notes that a trip has returned.
func (l *lane[R]) leave() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.under--
	if l.under < laneWidth && len(l.queue) > 0 {
		l.depart()
	}
}

// depart sends all of the queue off.
func (l *lane[R]) depart() {
	together := l.queue
	l.queue = nil
	l.impatience.Stop()
	ctx, cancel := context.WithCancel(context.Background())
	passengers := new(atomic.Int32)
	passengers.Store(int32(len(together)))
	for _, s := range together {
		s.passengers, s.cancel = passengers, cancel
	}
	l.under++
	l.crowded.Store(len(together) > 1)
	go func() {
		defer cancel()
		defer l.leave()
		l.travel(ctx, together)
		for _, s := range together {
			close(s.done)
		}
	}()
}

func (l *lane[R]) travel(ctx context.Context, together []*seat[R]) {
	if !l.begin() {
		return // and let each find out
	}
	defer l.end()
	err := l.share(ctx, together)
	for _, s := range together {
		switch {
		case errors.Is(err, refdb.ErrOutcomeUnknown):
			s.err = err
		case err != nil:
			s.decided = false
		}
	}
}

// getOff has s not wait any more. It reports whether its trip is under way.
func (l *lane[R]) getOff(s *seat[R]) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s.passengers != nil {
		if s.passengers.Add(-1) == 0 {
			s.cancel()
		}
		return true
	}
	l.queue = slices.DeleteFunc(l.queue, func(other *seat[R]) bool { return other == s })
	return false
}
