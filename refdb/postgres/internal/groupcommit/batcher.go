// Package groupcommit makes requests share round trips to a server, and so commits.
package groupcommit

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
)

// A Batcher sends requests about single keys to a server. A request that finds it idle is sent at
// once. Requests that arrive while round trips are in progress are queued, and share the next
// batch: its round trip and its commit.
//
// A batch of several requests never waits for locks, and decides each request as if the request
// were alone. It leaves undecided the requests that would have to wait, and rare cases. If a batch
// fails, all of its requests stay undecided, unless their outcome is unknown. The callers then send
// undecided requests one by one.
//
// Callers whose batch has returned often have another request at once. To keep them together, the
// next batch is sent when as many requests are queued as the last batch had, or after about 50 µs.
// A batch of one request ends this mode.
type Batcher[K comparable, R Request[K]] struct {
	// Send makes the round trip of a batch, and stores the answers in its requests. It calls wanted
	// once, when it has a connection, and sends only the requests that wanted returns. After an
	// error, all requests are undecided.
	Send func(ctx context.Context, requests []R, wanted func() []R) error
	// GiveBack undoes a request that was carried out, or may have been, after its caller had
	// stopped waiting for the answer.
	GiveBack func(R)
	// Begin reports whether a batch may still be sent, that is, Close was not called. Close waits
	// for End.
	Begin func() bool
	End   func()
	// AnswerLimit is how long a caller whose context has ended waits for the answer.
	AnswerLimit time.Duration

	mu          sync.Mutex
	underWay    int // in-flight round trips
	lastSize    int // of the last batch
	queue       []*entry[K, R]
	queueNumber int // identifies the queue: the number of queues sent before it
	sizes       driver.Batches
	window      *time.Timer // of the queue
}

// A Request is a request about a single key, with room for its answer.
type Request[K comparable] interface {
	What() string // describes the operation, for errors
	Key() K       // its key: a batch has at most one request for each
}

// An entry is the place of a request in the queue and in its batch.
type entry[K comparable, R Request[K]] struct {
	request R
	done    chan struct{} // closed when the batch has returned
	err     error         // of the batch

	batch     *batch[K, R] // nil in the queue
	withdrawn bool         // its caller gave up before the batch was sent
	abandoned bool         // its caller gave up later: nothing will read the answer
}

// A batch is a group of requests that share a round trip.
type batch[K comparable, R Request[K]] struct {
	entries []*entry[K, R]
	waiters int  // callers that still wait
	sent    bool // or about to be sent
	cancel  context.CancelFunc
}

// Do sends a request, alone or in a batch, and waits for its answer. Without an error, the request
// is answered or undecided. After an error, the answer may still be written to.
func (b *Batcher[K, R]) Do(ctx context.Context, r R) error {
	e, counts := b.enter(r)
	if e == nil {
		if counts {
			defer b.returned()
		}
		alone := []R{r}
		return b.Send(ctx, alone, func() []R { return alone })
	}
	select {
	case <-e.done:
	case <-ctx.Done():
		if !b.stopWaiting(e) {
			return fmt.Errorf("%s: %w", r.What(), ctx.Err())
		}
		// The answer may still arrive, as in a separate round trip: wait a little.
		limit := time.NewTimer(b.AnswerLimit)
		defer limit.Stop()
		select {
		case <-e.done:
		case <-limit.C:
			if b.abandon(e) {
				return fmt.Errorf("%s: %w: %w", r.What(), driver.ErrOutcomeUnknown, ctx.Err())
			}
		}
	}
	if errors.Is(e.err, driver.ErrOutcomeUnknown) {
		return e.err
	}
	return nil // undecided after any other error
}

// Stats returns the numbers of batches sent, by their sizes.
func (b *Batcher[K, R]) Stats() driver.Batches {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.sizes
}

// ShareAll makes every later request queue for a batch, even if no round trip is in flight. Tests
// use it.
func (b *Batcher[K, R]) ShareAll() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.underWay = maxUnderWay
}

// enter queues a request. It returns nil if the caller has to send the request by itself, and
// whether that round trip counts as in flight.
func (b *Batcher[K, R]) enter(r R) (e *entry[K, R], counts bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.underWay < maxUnderWay && len(b.queue) == 0 && b.lastSize <= 1 {
		b.underWay++
		b.sizes.Count(1)
		return nil, true
	}
	if slices.ContainsFunc(b.queue, func(other *entry[K, R]) bool { return other.request.Key() == r.Key() }) {
		b.sizes.Count(1)
		return nil, false // a batch has at most one request for a key
	}
	e = &entry[K, R]{request: r, done: make(chan struct{})}
	b.queue = append(b.queue, e)
	switch {
	case b.full():
		b.send()
	case len(b.queue) == 1:
		number := b.queueNumber
		b.window = time.AfterFunc(window, func() { b.sendQueue(number, 1) })
		if b.underWay == 0 {
			go b.gather(number, b.lastSize)
		}
	}
	return e, false
}

// full reports whether the queue is sent at once, without waiting for more requests or for an
// in-flight round trip.
func (b *Batcher[K, R]) full() bool {
	return len(b.queue) == maxBatch || len(b.queue) >= fullBatch && b.underWay < maxUnderWay
}

// gather sends the queue with that number once it has size requests, or after a few dozen
// microseconds.
func (b *Batcher[K, R]) gather(number, size int) {
	for range gatherYields {
		runtime.Gosched()
		if b.sendQueue(number, size) {
			return
		}
	}
	b.sendQueue(number, 1)
}

// sendQueue sends the queue if it has that number and at least size requests. It reports whether
// the queue with that number was sent, now or before.
func (b *Batcher[K, R]) sendQueue(number, size int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if n := len(b.queue); b.queueNumber == number && n > 0 && n >= size {
		b.send()
	}
	return b.queueNumber != number
}

// returned records that a round trip has returned.
func (b *Batcher[K, R]) returned() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.underWay--
	switch {
	case len(b.queue) == 0:
	case b.underWay == 0:
		go b.gather(b.queueNumber, b.lastSize)
	case b.full():
		b.send()
	}
}

// send makes a batch of the queue and sends it.
func (b *Batcher[K, R]) send() {
	ctx, cancel := context.WithCancel(context.Background())
	sending := &batch[K, R]{entries: b.queue, waiters: len(b.queue), cancel: cancel}
	for _, e := range sending.entries {
		e.batch = sending
	}
	b.queue = nil
	b.queueNumber++
	b.window.Stop()
	b.underWay++
	b.lastSize = len(sending.entries)
	b.sizes.Count(len(sending.entries))
	requests := make([]R, len(sending.entries))
	for i, e := range sending.entries {
		requests[i] = e.request
	}
	go func() {
		defer cancel()
		defer b.returned()
		err := driver.ErrClosed
		if b.Begin() {
			defer b.End()
			err = b.Send(ctx, requests, func() []R { return b.wanted(sending) })
		}
		b.finish(sending, err)
	}()
}

// wanted returns the requests of a batch whose callers still wait. From now on, the batch counts as
// sent.
func (b *Batcher[K, R]) wanted(sending *batch[K, R]) (requests []R) {
	b.mu.Lock()
	defer b.mu.Unlock()
	sending.sent = true
	for _, e := range sending.entries {
		if !e.withdrawn && !e.abandoned {
			requests = append(requests, e.request)
		}
	}
	return requests
}

// finish ends a batch, so that its callers read their answers.
func (b *Batcher[K, R]) finish(sending *batch[K, R], err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, e := range sending.entries {
		e.err = err
		if err != nil && len(sending.entries) > 1 {
			e.err = fmt.Errorf("%s: %w", e.request.What(), err)
		}
		if e.abandoned && (err == nil || errors.Is(err, driver.ErrOutcomeUnknown)) {
			b.GiveBack(e.request)
		}
		close(e.done)
	}
}

// stopWaiting removes e from the queue, or from a batch that waits for a connection. It reports
// whether e is in flight, and so can't be removed. A batch without waiting callers is cancelled.
func (b *Batcher[K, R]) stopWaiting(e *entry[K, R]) (underWay bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if e.batch == nil {
		b.queue = slices.DeleteFunc(b.queue, func(other *entry[K, R]) bool { return other == e })
		return false
	}
	if e.batch.waiters--; e.batch.waiters == 0 {
		e.batch.cancel()
	}
	e.withdrawn = !e.batch.sent
	return e.batch.sent
}

// abandon gives up the answer to e, and reports whether the answer had not arrived yet.
func (b *Batcher[K, R]) abandon(e *entry[K, R]) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	select {
	case <-e.done:
	default:
		e.abandoned = true
	}
	return e.abandoned
}
