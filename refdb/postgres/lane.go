package postgres

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
)

const (
	// laneWidth is how many trips of a lane are under way before requests queue up.
	laneWidth = 2
	// laneFull is with how many requests a shared trip leaves beside another one:
	// while the server makes one, the answers of the other are told. Fewer gain more by
	// waiting for those who come back from it.
	laneFull = 32
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

// A lane is the way to the server of requests about a single ref. Whoever finds
// it free makes a trip of its own at once. Those who come while others are under
// way queue up, and share the next trip: its round trip and its commit.
//
// A shared trip waits for nobody, and decides about each of its requests as if
// that were alone. What it would have to wait for, and what is rare, it leaves
// undecided: those who asked then make a trip of their own, and so do all of
// them if it fails.
//
// Those who come back from a shared trip often have more to ask for, at once.
// So that not the first of them go, and the others wait for the next trip, it
// leaves when that has returned, once as many have come as shared it, or a moment
// later; until one that did so was lonely.
type lane struct {
	// share makes a trip for all of them.
	share func(ctx context.Context, together []call) error
	// begin says that a trip begins that Close has to wait for until end, or
	// reports that it is too late.
	begin func() bool
	end   func()

	mu         sync.Mutex
	under      int // trips under way
	crowd      int // how many shared the last one
	queue      []*seat
	departed   int         // how many queues have
	impatience *time.Timer // that this one has not
}

// A call is a request about a single ref, with room for its answer.
type call interface {
	what() string // is being done, for errors
	ref() refName // it is about
}

// A seat is a call's place in the queue and in the trip.
type seat struct {
	call call
	done chan struct{} // closed when the trip has returned
	err  error         // of the trip

	passengers *atomic.Int32 // of the same trip, who still wait for it; nil in the queue
	cancel     context.CancelFunc
}

// pass makes a call by a trip, its own or a shared one. It reports whether that
// was a shared one, which has the call answered or left undecided, and else
// returns what alone did.
func (l *lane) pass(ctx context.Context, c call, alone func() error) (shared bool, err error) {
	s, counts := l.enter(c)
	if s == nil {
		if counts {
			defer l.leave()
		}
		return false, alone()
	}
	select {
	case <-s.done:
	case <-ctx.Done():
		if !l.getOff(s) {
			return false, alone() // which has something to say about ctx
		}
		// As for a trip of one's own, the answer is waited for a little.
		limit := time.NewTimer(cancelLimit)
		defer limit.Stop()
		select {
		case <-s.done:
		case <-limit.C:
			return false, judge(ctx, trip{what: c.what(), writes: true}, executing, ctx.Err()).err
		}
	}
	switch {
	case errors.Is(s.err, refdb.ErrOutcomeUnknown):
		return false, fmt.Errorf("%s: %w", c.what(), s.err)
	case s.err != nil:
		return false, alone()
	default:
		return true, nil
	}
}

// enter returns a seat; or nil for a trip alone, and whether that counts as one of the lane.
func (l *lane) enter(c call) (s *seat, counts bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.under < laneWidth && len(l.queue) == 0 && l.crowd <= 1 {
		l.under++
		return nil, true
	}
	if slices.ContainsFunc(l.queue, func(other *seat) bool { return other.call.ref() == c.ref() }) {
		return nil, false // only one of them can share a trip
	}
	s = &seat{call: c, done: make(chan struct{})}
	l.queue = append(l.queue, s)
	switch {
	case l.full():
		l.depart()
	case len(l.queue) == 1:
		number := l.departed
		l.impatience = time.AfterFunc(lanePatience, func() { l.departAs(number, true) })
		if l.under == 0 {
			go l.gather(number)
		}
	}
	return s, false
}

// full reports whether the queue waits for nobody: neither for more, nor for a trip under way.
func (l *lane) full() bool {
	return len(l.queue) == laneSeats || len(l.queue) >= laneFull && l.under < laneWidth
}

// gather sends the queue of that number off once it is as long as the last one was, or nearly at once.
func (l *lane) gather(number int) {
	for range laneYields {
		runtime.Gosched()
		if l.departAs(number, false) {
			return
		}
	}
	l.departAs(number, true)
}

// departAs sends the queue off if it is the one of that number: as long as the
// last one was or, in a hurry, as it is. It reports whether that queue is gone.
func (l *lane) departAs(number int, hurry bool) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n := len(l.queue); l.departed == number && n > 0 && (hurry || n >= l.crowd) {
		l.depart()
	}
	return l.departed != number
}

// leave notes that a trip has returned.
func (l *lane) leave() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.under--
	switch {
	case len(l.queue) == 0:
	case l.under == 0:
		go l.gather(l.departed)
	case l.full():
		l.depart()
	}
}

// depart sends all of the queue off.
func (l *lane) depart() {
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
	l.crowd = len(together)
	go func() {
		defer cancel()
		defer l.leave()
		l.travel(ctx, together)
		for _, s := range together {
			close(s.done)
		}
	}()
}

func (l *lane) travel(ctx context.Context, together []*seat) {
	err := refdb.ErrClosed
	if l.begin() {
		defer l.end()
		calls := make([]call, len(together))
		for i, s := range together {
			calls[i] = s.call
		}
		err = l.share(ctx, calls)
	}
	for _, s := range together {
		s.err = err
	}
}

// getOff has s not wait any more. It reports whether its trip is under way.
func (l *lane) getOff(s *seat) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s.passengers != nil {
		if s.passengers.Add(-1) == 0 {
			s.cancel()
		}
		return true
	}
	l.queue = slices.DeleteFunc(l.queue, func(other *seat) bool { return other == s })
	return false
}
