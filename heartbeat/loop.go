package heartbeat

import (
	"container/heap"
	"context"
	"fmt"
	"time"
)

// run does due work until Close. Soon after the last lease has ended it no longer sets a timer.
func (k *Keeper[T]) run() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		if wait, ok := k.runDue(); ok {
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

// runDue does the work that is due. It returns the time until more work is due, or false if there
// are no leases.
func (k *Keeper[T]) runDue() (time.Duration, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := k.now()
	for len(k.leases) > 0 && k.leases[0].deadline <= now {
		k.expire(k.leases[0], now)
	}
	if len(k.leases) == 0 {
		if now < k.wakeAt && k.wakeAt != never {
			// The next lease often starts before that, and then does not need to wake the loop.
			return time.Duration(k.wakeAt - now), true
		}
		k.wakeAt = never
		return 0, false
	}
	if !k.beating && now >= min(k.nextTick, k.nextEarly) {
		k.sendBeat(now)
	}
	// Timers don't count the time for which the machine was suspended. Reading the clock once per
	// interval detects an expired lease soon after a suspend.
	k.wakeAt = min(k.leases[0].deadline, now+Instant(k.interval))
	if !k.beating {
		k.wakeAt = min(k.wakeAt, k.nextTick, k.nextEarly)
	}
	return time.Duration(k.wakeAt - now), true
}

// wakeIfDue wakes the loop if a beat is due before its timer fires. No deadline can precede the
// timer: a lease that has less than an interval left is early.
func (k *Keeper[T]) wakeIfDue() {
	due := min(k.nextTick, k.nextEarly)
	if due >= k.wakeAt {
		return
	}
	k.wakeAt = due
	select {
	case k.wake <- struct{}{}:
	default: // a wake-up is pending already
	}
}

// sendBeat starts a beat: of all leases if the tick is due, else of the early ones.
func (k *Keeper[T]) sendBeat(now Instant) {
	all := now >= k.nextTick
	due := k.nextEarly
	if all {
		due = min(due, k.nextTick)
	}
	var leases []*Lease[T]
	var items []T
	if all {
		leases = make([]*Lease[T], 0, len(k.leases))
		items = make([]T, 0, len(k.leases))
		// Counting from tick to tick prevents that delays accumulate. Missed ticks are skipped.
		if k.nextTick += Instant(k.interval); k.nextTick <= now {
			k.nextTick = now + Instant(k.interval)
		}
	}
	k.nextEarly = never
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
	k.late = time.Duration(now - due)
	k.beats++
	k.beating = true
	number := k.beats
	k.running.Go(func() {
		// A third of the window, so that one hanging beat does not lose the lease.
		ctx, cancel := context.WithTimeout(k.ctx, k.window/3)
		defer cancel()
		results, err := k.beat(ctx, items)
		k.handleResults(leases, number, now, results, err)
	})
}

// handleResults applies the results of the beat with the given number, sent at sent.
func (k *Keeper[T]) handleResults(leases []*Lease[T], number uint64, sent Instant, results []Result, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err == nil && len(results) != len(leases) {
		err = fmt.Errorf("%d results for %d items", len(results), len(leases))
	}
	k.beating = false
	k.beatErr = err
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
		case Renewed:
			l.deadline = sent + Instant(k.window)
		case Lost:
			if l.suspended == 0 && number > l.lostAfter {
				k.end(l, ErrLost)
			}
		default:
			l.early, unknown = true, true
		}
	}
	heap.Init(&k.leases)
	if unknown {
		at := now + Instant(k.retry.NextBackOff())
		k.nextEarly = min(k.nextEarly, at)
		if err != nil {
			k.nextTick = max(k.nextTick, at) // an overdue tick waits for the retry
		}
	} else {
		k.retry.Reset()
	}
	k.wakeIfDue()
}
