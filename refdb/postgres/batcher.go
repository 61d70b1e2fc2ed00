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
	// carryOut makes the round trip of a batch, and answers its calls. After an
	// error all of them are undecided.
	carryOut func(ctx context.Context, calls []call) error
	// disown is given a call that was answered when its caller did not wait any more.
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
	what() string          // is being done, for errors
	ref() refName          // it is about
	queues() []refdb.Queue // that the answer has: see refdb.Handoff
	reset()                // leaves it undecided
	decide(d *Driver)      // makes its answer, and wakes those who wait
}

// A request is a call's place in the queue and in its batch.
type request struct {
	call
	done chan struct{} // closed when the batch has returned
	err  error         // of the batch

	waiters   *int // callers of the same batch that still wait; nil in the queue
	cancel    context.CancelFunc
	abandoned bool // nobody will look at the answer
}

// do has a call answered or, without an error, left undecided. After an error the
// answer may still be written to.
func (b *batcher) do(ctx context.Context, c call) error {
	r, counts := b.enter(c)
	if r == nil {
		if counts {
			defer b.leave()
		}
		return b.carryOut(ctx, []call{c})
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
	batch := b.queue
	b.queue = nil
	b.sent++
	b.impatience.Stop()
	ctx, cancel := context.WithCancel(context.Background())
	waiters := new(len(batch))
	calls := make([]call, len(batch))
	for i, r := range batch {
		r.waiters, r.cancel = waiters, cancel
		calls[i] = r.call
	}
	b.underWay++
	b.lastSize = len(batch)
	go func() {
		defer cancel()
		defer b.leave()
		err := refdb.ErrClosed
		if b.begin() {
			defer b.end()
			err = b.carryOut(ctx, calls)
		}
		b.finish(batch, err)
	}()
}

// finish has the callers of a batch look at their answers.
func (b *batcher) finish(batch []*request, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, r := range batch {
		r.err = err
		if err != nil && len(batch) > 1 {
			r.err = fmt.Errorf("%s: %w", r.what(), err)
		}
		if r.abandoned && err == nil {
			b.disown(r.call)
		}
		close(r.done)
	}
}

// stopWaiting takes r out of the queue, or reports that its batch is under way:
// that is cancelled if nobody waits for it any more.
func (b *batcher) stopWaiting(r *request) (underWay bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if r.waiters != nil {
		if *r.waiters--; *r.waiters == 0 {
			r.cancel()
		}
		return true
	}
	b.queue = slices.DeleteFunc(b.queue, func(other *request) bool { return other == r })
	return false
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
