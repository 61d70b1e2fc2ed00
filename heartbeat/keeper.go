// Package heartbeat keeps leases fresh: every tick it sends one beat, through a
// function of the caller's, for all the leases of a process together. A lease
// ends as soon as a beat finds it lost, and in any case before others could
// take it, however badly beats fail or hang; a beat that failed says nothing
// and is tried again. What an item is, and how it is beaten, the package does
// not know.
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

// An Instant is a reading of a clock that counts suspend: the time since an
// arbitrary moment, the same for all readings of a keeper.
type Instant time.Duration

// never is later than any reading, and an interval can be added to it.
const never = Instant(math.MaxInt64 / 2)

// A Result says what a beat did to one item.
type Result int

const (
	Unknown Result = iota // neither renewed nor known to be lost
	Beaten                // renewed
	Lost                  // gone, or another's
)

// A Beat renews items and returns what became of each, in the same order. An
// error means that nothing is known of any. It is called once at a time, with
// at least one item, in no particular order, and must return soon after ctx
// ends: until it has, nothing is beaten, though leases expire on time.
type Beat[T any] = func(ctx context.Context, items []T) ([]Result, error)

// A Keeper beats the leases of one process. All methods may be called
// concurrently.
type Keeper[T any] struct {
	beat     Beat[T]
	lost     func(item T, err error)
	now      func() Instant
	interval time.Duration
	window   time.Duration // for which a lease stands after a beat was sent
	wake     chan struct{}
	ctx      context.Context // of the loop and of beats; ended by Close
	cancel   context.CancelFunc
	running  sync.WaitGroup // the loop, the beat under way and calls of lost

	mu      sync.Mutex
	leases  queue[T]
	tick    Instant // when to beat all leases
	early   Instant // when to beat those marked early, or never
	wakeAt  Instant // when the loop will look again by itself, or never
	beating bool    // a beat is under way
	beats   uint64  // how many were sent
	failure error   // of the last beat that was answered
	retry   *backoff.ExponentialBackOff
	closed  bool
}

// New returns a keeper that renews its leases with beat, or an error that says
// what is wrong with c. It runs until Close. lost, unless nil, is told of each
// lease that ended with ErrLost or ErrExpired, once, in a goroutine of its own
// that Close waits for.
func New[T any](c Config, beat Beat[T], lost func(item T, err error)) (*Keeper[T], error) {
	c, err := c.complete()
	if err != nil {
		return nil, err
	}
	k := &Keeper[T]{
		beat:     beat,
		lost:     lost,
		now:      c.Now,
		interval: c.Interval,
		window:   c.StaleAfter - c.Margin,
		wake:     make(chan struct{}, 1),
		early:    never,
		wakeAt:   never,
		retry:    backoff.NewExponentialBackOff(),
	}
	// With the jitter of half of it, the longest retry is sooner than a tick.
	k.retry.InitialInterval = max(1, c.Interval/8)
	k.retry.MaxInterval = max(1, c.Interval/2)
	k.retry.Multiplier = 2
	k.ctx, k.cancel = context.WithCancel(context.Background())
	k.running.Go(k.run)
	return k, nil
}

// Now returns the clock's reading.
func (k *Keeper[T]) Now() Instant { return k.now() }

// Keep starts to beat item, which was acquired by a request before whose first
// attempt the clock read sent. The first beat follows within an interval, or
// right after the beat under way. If so much time has passed since sent that
// the lease has expired, it is returned as such.
func (k *Keeper[T]) Keep(item T, sent Instant) *Lease[T] {
	l := &Lease[T]{keeper: k, item: item, done: make(chan struct{})}
	k.mu.Lock()
	defer k.mu.Unlock()
	now := k.now()
	l.deadline = min(sent, now) + Instant(k.window)
	if len(k.leases) == 0 {
		k.tick = now + Instant(k.interval)
	}
	heap.Push(&k.leases, l)
	if k.closed {
		k.end(l, ErrClosed)
		return l
	}
	k.expire(l, now)
	if l.err == nil && l.deadline-now < Instant(k.window/2) {
		// The acquisition was slow. The tick might be too late.
		l.early, k.early = true, now
	}
	k.nudge()
	return l
}

// Close ends the leases that still stand with ErrClosed and cancels the beat
// under way. It returns when that has returned. Calling it again is harmless.
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

// expire ends l if its deadline has passed. Whoever is about to look at l or
// to change it calls this first, so that nothing revives an expired lease.
func (k *Keeper[T]) expire(l *Lease[T], now Instant) {
	if now < l.deadline || l.err != nil {
		return
	}
	err := ErrExpired
	if k.failure != nil {
		// Its text only: a caller must not take the lease's end for its class.
		err = fmt.Errorf("%w; the last beat failed: %v", ErrExpired, k.failure)
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
