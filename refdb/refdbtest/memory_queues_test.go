package refdbtest_test

import (
	"context"
	"slices"

	"github.com/globalrefdb/globalrefdb/refdb"
)

// without returns a queue without one that waits.
func without(q refdb.Queue, w refdb.Waiter) refdb.Queue {
	return slices.DeleteFunc(slices.Clone(q), func(x refdb.Waiter) bool { return x == w })
}

// joined returns a queue and then another, with each waiter once.
func (d *driver) joined(first, then refdb.Queue) (all refdb.Queue) {
	for _, w := range slices.Concat(first, then) {
		same := func(x refdb.Waiter) bool {
			return x == w || d.bug == "clients are one" && x.Channel == w.Channel || d.bug == "channels are one" && x.Client == w.Client
		}
		if !slices.ContainsFunc(all, same) || d.bug == "queues twice" {
			all = append(all, w)
		}
	}
	return all
}

func (d *driver) setQueue(k key, q refdb.Queue) {
	row := d.locks[k]
	row.queue = q
	d.locks[k] = row
}

// bring returns the queue of a lock that r takes, with what it had before.
func (d *driver) bring(r refdb.AcquireRequest, i int, had refdb.Queue) refdb.Queue {
	var brought refdb.Queue
	if r.Queues != nil && d.bug != "granted queues are lost" {
		brought = r.Queues[i]
		if d.bug == "one queue for all" {
			brought = r.Queues[0]
		}
	}
	queue := d.joined(brought, had)
	if d.bug == "brought queues go behind" {
		queue = d.joined(had, brought)
	}
	if d.bug == "reclaims forget the queue" {
		queue = brought
	}
	if d.bug == "the granted wait on" {
		return queue
	}
	return without(queue, r.Waiter)
}

// enqueue puts r's waiter, and the queues that it brought, to the fresh locks.
func (d *driver) enqueue(r refdb.AcquireRequest, holders []refdb.LockInfo) {
	for _, l := range holders {
		i := slices.Index(r.Refs, l.Ref)
		row, ok := d.locks[key{l.Project, l.Ref}]
		if l.Stale() || !ok {
			continue
		}
		var brought refdb.Queue
		if r.Queues != nil && d.bug != "refused queues are lost" {
			brought = r.Queues[i]
			if d.bug == "refused queues go to any lock" {
				brought = slices.Concat(r.Queues...)
			}
		}
		queue := d.joined(brought, row.queue)
		if d.bug == "refused queues go behind" {
			queue = d.joined(row.queue, brought)
		}
		if r.Waiter != (refdb.Waiter{}) || d.bug == "all are queued" {
			queue = d.joined(queue, refdb.Queue{r.Waiter})
		}
		d.setQueue(key{l.Project, l.Ref}, queue)
	}
}

// end deletes a lock and hands it off. It returns the queue that goes with the answer.
func (d *driver) end(k key, h refdb.Handoff) refdb.Queue {
	queue := d.locks[k].queue
	delete(d.locks, k)
	switch {
	case h.Next != refdb.Waiter{}:
		if d.bug == "the next wakes others" {
			d.wake(k, without(queue, h.Next))
		}
		if d.bug == "the next stays queued" {
			return queue
		}
		return without(queue, h.Next)
	case h.Last != refdb.Waiter{}:
		switch d.bug {
		case "the last is first":
			queue = d.joined(refdb.Queue{h.Last}, queue)
		case "the last stays where it is":
			queue = d.joined(queue, refdb.Queue{h.Last})
		case "the last is forgotten":
		default:
			queue = append(without(queue, h.Last), h.Last)
		}
	}
	d.wake(k, queue)
	return nil
}

// endBy is end for a method that has a bug of its own.
func (d *driver) endBy(method string, k key) {
	if d.bug == method+" wake nobody" {
		d.setQueue(k, nil)
	}
	d.end(k, refdb.Handoff{})
}

// answer returns the queues of an answer.
func (d *driver) answer(queues []refdb.Queue, h refdb.Handoff) []refdb.Queue {
	if h.Next == (refdb.Waiter{}) || d.bug == "the next gets no queue" {
		return nil
	}
	if d.bug == "queues of those that have one" {
		return slices.DeleteFunc(queues, func(q refdb.Queue) bool { return len(q) == 0 })
	}
	return queues
}

// wake tells the first of a queue, if somebody listens to its channel.
func (d *driver) wake(k key, queue refdb.Queue) {
	if len(queue) == 0 || d.bug == "wakes nobody" {
		return
	}
	w := refdb.Wakeup{Project: k.project, Ref: k.ref, Queue: queue}
	channel := queue[0].Channel
	switch d.bug {
	case "forgets the queue":
		w.Queue = queue[:1]
	case "wakes the last":
		channel = queue[len(queue)-1].Channel
		slices.Reverse(w.Queue)
	}
	select {
	case d.channels[channel] <- w:
	default: // nobody listens
	}
}

func (d *driver) PassOn(w refdb.Wakeup) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.bug != "passes nothing on" {
		d.wake(key{w.Project, w.Ref}, w.Queue)
	}
}

func (d *driver) Listen(ctx context.Context, channel string, started func(), wake func(refdb.Wakeup)) error {
	d.mu.Lock()
	if d.bug == "one listener" {
		delete(d.channels, d.listening)
		d.listening = channel
	}
	c := make(chan refdb.Wakeup, 100)
	d.channels[channel] = c
	d.mu.Unlock()
	defer func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		delete(d.channels, channel)
	}()
	started()
	for {
		select {
		case w := <-c:
			wake(w)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
