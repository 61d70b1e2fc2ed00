package postgres

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
)

const (
	// maxUnderWay is how many round trips are under way before requests queue up.
	maxUnderWay = 2
	// fullBatch is how many requests a batch has that is sent beside another one:
	// the server executes one batch while the client delivers the replies of the
	// other. Fewer gain more by waiting for the callers whose batch returns.
	fullBatch = 32
	// maxBatch is how many requests a batch has at most.
	maxBatch = 128
	// queuePatience is how long a request queues for round trips under way to
	// return. On a slow network, or with a slow disk, there is more to lose by
	// waiting for them than to gain by a larger batch.
	queuePatience = 5 * time.Millisecond
	// gatherYields is how often a queue lets other goroutines run first, at most, until it
	// is as long as the last batch was: some 50 µs where nobody else wants to run.
	gatherYields = 256
)

// A batcher sends requests about single refs to the server. A request that finds
// it idle is sent at once. Those that come while others are under way queue up,
// and share the next batch: its round trip and its commit.
//
// A batch of several waits for nobody, and decides each of its requests as if that were
// alone. What it would have to wait for, and what is rare, it leaves undecided;
// if it fails, it leaves all of its requests undecided, unless their outcome is
// unknown. Undecided requests are then made one by one, by statements that wait.
//
// Callers whose batch has returned often have another request at once. To keep
// them together, the next batch is sent when as many are queued as the last one
// had, or after about 50 µs. A batch of one ends this mode.
type batcher struct {
	// carryOut makes the round trip of a batch, with those of the calls that wanted
	// returns once it can be sent, and answers them. After an error all of them are undecided.
	carryOut func(ctx context.Context, calls []call, wanted func() []call) error
	// disown is given a call that was answered, or may have been carried out, when
	// its caller did not wait any more.
	disown func(call)
	// begin says that a batch begins that Close has to wait for until end, or
	// reports that it is too late.
	begin func() bool
	end   func()

	mu         sync.Mutex
	underWay   int // round trips
	lastSize   int // of the last batch
	queue      []*request
	sent       int         // queues so far
	impatience *time.Timer // that this one was not
}

// A call is a request about a single ref, with room for its answer.
type call interface {
	what() string     // is being done, for errors
	ref() refName     // it is about
	reset()           // leaves it undecided
	decide(d *Driver) // makes its answer, and wakes those who wait
}

// A request is a call's place in the queue and in its batch.
type request struct {
	call
	done chan struct{} // closed when the batch has returned
	err  error         // of the batch

	batch     *batch // nil in the queue
	left      bool   // its caller has, before the batch was sent
	abandoned bool   // nobody will look at the answer
}

// A batch is requests that share a round trip.
type batch struct {
	requests []*request
	waiters  int  // callers that still wait
	sent     bool // or about to be
	cancel   context.CancelFunc
}

// do has a call answered or, without an error, left undecided. After an error the
// answer may still be written to.
func (b *batcher) do(ctx context.Context, c call) error {
	r, counts := b.enter(c)
	if r == nil {
		if counts {
			defer b.leave()
		}
		alone := []call{c}
		return b.carryOut(ctx, alone, func() []call { return alone })
	}
	select {
	case <-r.done:
	case <-ctx.Done():
		if !b.stopWaiting(r) {
			return judge(ctx, roundTrip{what: c.what(), writes: true}, preparing, ctx.Err()).err
		}
		// As in a round trip of one's own, the answer is waited for a little.
		limit := time.NewTimer(cancelLimit)
		defer limit.Stop()
		select {
		case <-r.done:
		case <-limit.C:
			if b.abandon(r) {
				return judge(ctx, roundTrip{what: c.what(), writes: true}, executing, ctx.Err()).err
			}
		}
	}
	if errors.Is(r.err, refdb.ErrOutcomeUnknown) {
		return r.err
	}
	return nil // undecided after any other error
}

// enter queues the call; or returns nil if it is sent by itself, and whether
// that counts as under way.
func (b *batcher) enter(c call) (r *request, counts bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.underWay < maxUnderWay && len(b.queue) == 0 && b.lastSize <= 1 {
		b.underWay++
		return nil, true
	}
	if slices.ContainsFunc(b.queue, func(other *request) bool { return other.ref() == c.ref() }) {
		return nil, false // a batch has one request about a ref at most
	}
	r = &request{call: c, done: make(chan struct{})}
	b.queue = append(b.queue, r)
	switch {
	case b.full():
		b.send()
	case len(b.queue) == 1:
		number := b.sent
		b.impatience = time.AfterFunc(queuePatience, func() { b.sendQueue(number, true) })
		if b.underWay == 0 {
			go b.gather(number)
		}
	}
	return r, false
}

// full reports whether the queue waits for nothing: neither for more requests, nor for
// a round trip under way.
func (b *batcher) full() bool {
	return len(b.queue) == maxBatch || len(b.queue) >= fullBatch && b.underWay < maxUnderWay
}

// gather sends the queue of that number once it is as long as the last batch was, or nearly at once.
func (b *batcher) gather(number int) {
	for range gatherYields {
		runtime.Gosched()
		if b.sendQueue(number, false) {
			return
		}
	}
	b.sendQueue(number, true)
}

// sendQueue sends the queue if it is the one of that number: as long as the
// last batch was or, in a hurry, as it is. It reports whether that queue was sent.
func (b *batcher) sendQueue(number int, hurry bool) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if n := len(b.queue); b.sent == number && n > 0 && (hurry || n >= b.lastSize) {
		b.send()
	}
	return b.sent != number
}

// leave notes that a round trip has returned.
func (b *batcher) leave() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.underWay--
	switch {
	case len(b.queue) == 0:
	case b.underWay == 0:
		go b.gather(b.sent)
	case b.full():
		b.send()
	}
}

// send makes a batch of the queue and sends it.
func (b *batcher) send() {
	ctx, cancel := context.WithCancel(context.Background())
	t := &batch{requests: b.queue, waiters: len(b.queue), cancel: cancel}
	for _, r := range t.requests {
		r.batch = t
	}
	b.queue = nil
	b.sent++
	b.impatience.Stop()
	b.underWay++
	b.lastSize = len(t.requests)
	calls := make([]call, len(t.requests))
	for i, r := range t.requests {
		calls[i] = r.call
	}
	go func() {
		defer cancel()
		defer b.leave()
		err := refdb.ErrClosed
		if b.begin() {
			defer b.end()
			err = b.carryOut(ctx, calls, func() []call { return b.wanted(t) })
		}
		b.finish(t, err)
	}()
}

// wanted returns the calls whose callers still wait, of a batch that is sent now.
func (b *batcher) wanted(t *batch) (calls []call) {
	b.mu.Lock()
	defer b.mu.Unlock()
	t.sent = true
	for _, r := range t.requests {
		if !r.left && !r.abandoned {
			calls = append(calls, r.call)
		}
	}
	return calls
}

// finish has the callers of a batch look at their answers.
func (b *batcher) finish(t *batch, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, r := range t.requests {
		r.err = err
		if err != nil && len(t.requests) > 1 {
			r.err = fmt.Errorf("%s: %w", r.what(), err)
		}
		if r.abandoned && (err == nil || errors.Is(err, refdb.ErrOutcomeUnknown)) {
			b.disown(r.call)
		}
		close(r.done)
	}
}

// stopWaiting takes r out of the queue, or of a batch that waits for a connection;
// or reports that it is under way. A batch that nobody waits for any more is cancelled.
func (b *batcher) stopWaiting(r *request) (underWay bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if r.batch == nil {
		b.queue = slices.DeleteFunc(b.queue, func(other *request) bool { return other == r })
		return false
	}
	if r.batch.waiters--; r.batch.waiters == 0 {
		r.batch.cancel()
	}
	r.left = !r.batch.sent
	return r.batch.sent
}

// abandon gives up the answer to r, or reports that it has come.
func (b *batcher) abandon(r *request) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	select {
	case <-r.done:
	default:
		r.abandoned = true
	}
	return r.abandoned
}
