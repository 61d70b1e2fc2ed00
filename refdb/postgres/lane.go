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
	// laneYields is how often a trip lets others run first, at most, until as
	// many have come as shared the last one: some 50 µs where nobody else wants to run.
	laneYields = 256
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
// So that not the first of them go, and the others wait for the next trip, it
// leaves once as many have come as shared the last one, or a moment later; until
// one that did so was lonely.
type lane[R any] struct {
	what string // is being done, for errors
	// share makes a trip for all of them.
	share func(ctx context.Context, together []*seat[R]) error
	// begin says that a trip begins that Close has to wait for until end, or
	// reports that it is too late.
	begin func() bool
	end   func()

	crowd *atomic.Int32 // how many shared the last trip, on this lane or a neighbouring one

	mu         sync.Mutex
	under      int // trips under way
	queue      []*seat[R]
	departed   int         // how many queues have
	impatience *time.Timer // that this one has not
}

func newLane[R any](d *Driver, what string, share func(context.Context, []*seat[R]) error) *lane[R] {
	return &lane[R]{what: what, share: share, begin: d.enter, end: d.running.Done, crowd: &d.crowd}
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
	if free && l.crowd.Load() <= 1 {
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
		number := l.departed
		l.impatience = time.AfterFunc(lanePatience, func() { l.departAs(number, 1) })
		if free {
			go l.gather(number)
		}
	}
	return s, false
}

// gather sends the queue of that number off once it is as long as the last one was, or nearly at once.
func (l *lane[R]) gather(number int) {
	for range laneYields {
		runtime.Gosched()
		if l.departAs(number, int(l.crowd.Load())) {
			return
		}
	}
	l.departAs(number, 1)
}

// departAs sends the queue off if it is the one of that number, and at least that
// long. It reports whether that queue is gone.
func (l *lane[R]) departAs(number, length int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.departed == number && len(l.queue) >= max(length, 1) {
		l.depart()
	}
	return l.departed != number
}

// leave notes that a trip has returned.
func (l *lane[R]) leave() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.under--
	if l.under < laneWidth && len(l.queue) > 0 {
		go l.gather(l.departed)
	}
}

// depart sends all of the queue off.
func (l *lane[R]) depart() {
	together := l.queue
	l.queue = nil
	l.departed++
	l.impatience.Stop()
	ctx, cancel := context.WithCancel(context.Background())
	passengers := new(atomic.Int32)
	passengers.Store(int32(len(together)))
	for _, s := range together {
		s.passengers, s.cancel = passengers, cancel
	}
	l.under++
	l.crowd.Store(int32(len(together)))
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
