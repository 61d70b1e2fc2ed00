// Package heartbeat keeps leases fresh: at every tick it calls one function of the caller, which
// renews all leases of a process together. A lease ends as soon as a beat finds it lost. Even if
// beats fail or hang, a lease ends before others could take it. A failed beat proves nothing and is
// retried. The package does not know what an item is, nor how it is renewed.
package heartbeat

import (
	"container/heap"
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"
)

// An Instant is a reading of a clock that also runs during suspend: the time since an arbitrary
// moment, which is the same for all readings of a keeper.
type Instant time.Duration

// never is later than any reading. Adding an interval to it does not overflow.
const never = Instant(math.MaxInt64 / 2)

// A Result is the result of a beat for one item.
type Result int

const (
	Unknown Result = iota // neither renewed nor known to be lost
	Renewed
	Lost // deleted, or taken by another holder
)

// A Beat renews items and returns the result for each, in the same order. An error means that all
// results are unknown. The keeper makes one call at a time, with at least one item, in no
// particular order. A Beat must return soon after ctx ends: the keeper sends no other beat before
// that, although leases expire on time.
type Beat[T any] = func(ctx context.Context, items []T) ([]Result, error)

// A Keeper renews the leases of one process. All methods may be called
// concurrently.
type Keeper[T any] struct {
	beat     Beat[T]
	lost     func(item T, err error)
	now      func() Instant
	interval time.Duration
	window   time.Duration   // how long a lease lasts after a beat was sent
	wake     chan struct{}   // wakes the loop
	ctx      context.Context // of the loop and of beats; ended by Close
	cancel   context.CancelFunc
	running  sync.WaitGroup // the loop, the beat in flight and calls of lost

	mu        sync.Mutex
	leases    leaseHeap[T]
	nextTick  Instant       // when to beat all leases
	nextEarly Instant       // when to beat the leases marked early, or never
	wakeAt    Instant       // when the loop's timer fires, or never
	beating   bool          // a beat is in flight
	beats     uint64        // the number of beats sent
	late      time.Duration // how long the latest beat was overdue when it was sent
	beatErr   error         // of the last completed beat
	retry     *backoff.ExponentialBackOff
	closed    bool
}

// New returns a keeper that renews its leases with beat, or an error if c is invalid. The keeper
// runs until Close. lost, unless nil, is called once for each lease that ended with ErrLost or
// ErrExpired, in a goroutine of its own. Close waits for that goroutine.
func New[T any](c Config, beat Beat[T], lost func(item T, err error)) (*Keeper[T], error) {
	c, err := c.complete()
	if err != nil {
		return nil, err
	}
	k := &Keeper[T]{
		beat:      beat,
		lost:      lost,
		now:       c.Now,
		interval:  c.Interval,
		window:    c.StaleAfter - c.Margin,
		wake:      make(chan struct{}, 1),
		nextEarly: never,
		wakeAt:    never,
		retry:     backoff.NewExponentialBackOff(),
	}
	// With its jitter of one half, even the longest pause is shorter than a tick.
	k.retry.InitialInterval = max(1, c.Interval/8)
	k.retry.MaxInterval = max(1, c.Interval/2)
	k.retry.Multiplier = 2
	k.ctx, k.cancel = context.WithCancel(context.Background())
	k.running.Go(k.run)
	return k, nil
}

// Now returns the clock's reading.
func (k *Keeper[T]) Now() Instant { return k.now() }

// Keep starts to beat item. sent is a reading of the clock from before the first attempt to acquire
// the item. The first beat follows within an interval, or right after the beat in flight. If the
// window since sent is already over, the returned lease has expired.
func (k *Keeper[T]) Keep(item T, sent Instant) *Lease[T] {
	l := &Lease[T]{keeper: k, item: item, done: make(chan struct{})}
	k.mu.Lock()
	defer k.mu.Unlock()
	now := k.now()
	l.deadline = min(sent, now) + Instant(k.window)
	if len(k.leases) == 0 {
		k.nextTick = now + Instant(k.interval)
	}
	heap.Push(&k.leases, l)
	if k.closed {
		k.end(l, ErrClosed)
		return l
	}
	k.expire(l, now)
	if l.err == nil && l.deadline-now < Instant(k.window/2) {
		// The acquisition was slow: the lease might expire before the tick.
		l.early, k.nextEarly = true, now
	}
	k.wakeIfDue()
	return l
}

// Close ends all remaining leases with ErrClosed, cancels the beat in flight and waits until it has
// returned. Close may be called more than once.
func (k *Keeper[T]) Close() {
	k.mu.Lock()
	k.closed = true
	now := k.now()
	for n := len(k.leases); n > 0; n-- {
		l := k.leases[n-1]
		k.expire(l, now)
		k.end(l, ErrClosed)
	}
	k.mu.Unlock()
	k.cancel()
	k.running.Wait()
}

// expire ends l if its deadline has passed. It is called before every read or change of l, so that
// an expired lease is never revived.
func (k *Keeper[T]) expire(l *Lease[T], now Instant) {
	if now < l.deadline || l.err != nil {
		return
	}
	err := ErrExpired
	if k.beatErr != nil {
		// Only the text is included: errors.Is must not find the beat's error in the lease's error.
		err = fmt.Errorf("%w; the last beat failed: %v", ErrExpired, k.beatErr)
	}
	k.end(l, err)
}

func (k *Keeper[T]) end(l *Lease[T], err error) {
	if l.err != nil {
		return
	}
	l.err = err
	heap.Remove(&k.leases, l.index)
	close(l.done)
	if k.lost != nil && (errors.Is(err, ErrLost) || errors.Is(err, ErrExpired)) {
		k.running.Go(func() { k.lost(l.item, err) })
	}
}
