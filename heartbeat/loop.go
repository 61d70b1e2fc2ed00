package heartbeat

import (
	"container/heap"
	"context"
	"fmt"
	"time"
)

// run looks whenever something is due, and soon sets no timer any more while there is no lease.
func (k *Keeper[T]) run() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		if wait, ok := k.look(); ok {
			timer.Reset(wait)
		}
		select {
		case <-timer.C:
		case <-k.wake:
		case <-k.ctx.Done():
			return
		}
	}
}

// look does what is due and returns how long nothing will be, or false if
// there is no lease.
func (k *Keeper[T]) look() (time.Duration, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := k.now()
	for len(k.leases) > 0 && k.leases[0].deadline <= now {
		k.expire(k.leases[0], now)
	}
	if len(k.leases) == 0 {
		if now < k.wakeAt && k.wakeAt != never {
			// Often the next lease comes before that, and needs no nudge then.
			return time.Duration(k.wakeAt - now), true
		}
		k.wakeAt = never
		return 0, false
	}
	if !k.beating && now >= min(k.tick, k.early) {
		k.send(now)
	}
	// Timers don't count suspend: by looking once an interval, what happened
	// in it is noticed soon after.
	k.wakeAt = min(k.leases[0].deadline, now+Instant(k.interval))
	if !k.beating {
		k.wakeAt = min(k.wakeAt, k.tick, k.early)
	}
	return time.Duration(k.wakeAt - now), true
}

// nudge wakes the loop if a beat is due before it would look again by itself.
// A deadline can't be: a lease that has less than an interval left is early.
func (k *Keeper[T]) nudge() {
	due := min(k.tick, k.early)
	if due >= k.wakeAt {
		return
	}
	k.wakeAt = due
	select {
	case k.wake <- struct{}{}:
	default: // it is about to
	}
}

// send starts a beat: of all leases if the tick is due, else of the early ones.
func (k *Keeper[T]) send(now Instant) {
	all := now >= k.tick
	var leases []*Lease[T]
	var items []T
	if all {
		leases = make([]*Lease[T], 0, len(k.leases))
		items = make([]T, 0, len(k.leases))
		// From tick to tick, so that delays don't add up; ticks missed are skipped.
		if k.tick += Instant(k.interval); k.tick <= now {
			k.tick = now + Instant(k.interval)
		}
	}
	k.early = never
	for _, l := range k.leases {
		if all || l.early {
			l.early = false
			leases = append(leases, l)
			items = append(items, l.item)
		}
	}
	if len(leases) == 0 {
		return
	}
	k.beats++
	k.beating = true
	number := k.beats
	k.running.Go(func() {
		// A third, so that one beat that hangs does not cost the lease.
		ctx, cancel := context.WithTimeout(k.ctx, k.window/3)
		defer cancel()
		results, err := k.beat(ctx, items)
		k.settle(leases, number, now, results, err)
	})
}

// settle takes the answer to the beat of that number, sent at sent.
func (k *Keeper[T]) settle(leases []*Lease[T], number uint64, sent Instant, results []Result, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err == nil && len(results) != len(leases) {
		err = fmt.Errorf("%d results for %d items", len(results), len(leases))
	}
	k.beating = false
	k.failure = err
	now := k.now()
	unknown := false
	for i, l := range leases {
		k.expire(l, now)
		if l.err != nil {
			continue
		}
		result := Unknown
		if err == nil {
			result = results[i]
		}
		switch result {
		case Beaten:
			l.deadline = sent + Instant(k.window)
		case Lost:
			if l.suspended == 0 && number > l.deaf {
				k.end(l, ErrLost)
			}
		default:
			l.early, unknown = true, true
		}
	}
	heap.Init(&k.leases)
	if unknown {
		at := now + Instant(k.retry.NextBackOff())
		k.early = min(k.early, at)
		if err != nil {
			k.tick = max(k.tick, at) // a tick that is overdue waits for it, too
		}
	} else {
		k.retry.Reset()
	}
	k.nudge()
}
