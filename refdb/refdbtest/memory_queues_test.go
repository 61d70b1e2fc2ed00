package refdbtest_test

import (
	"context"
	"slices"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/internal/queue"
)

// rowOf returns the row of a ref as package queue has it.
func (d *connection) rowOf(k key, owner, nonce string) queue.Row {
	row, ok := d.standing(k)
	if !ok {
		return queue.Row{}
	}
	return queue.Row{Lock: &row.LockInfo, Nonce: row.nonce, Queue: row.queue, Ours: row.of(owner, nonce, d.bug)}
}

// decide returns what package queue decides about r, changed by the bug.
func (d *connection) decide(r driver.AcquireRequest) queue.Verdict {
	rows := make([]queue.Row, len(r.Refs))
	for i, ref := range r.Refs {
		rows[i] = d.rowOf(key{r.Project, ref}, r.Owner, r.Nonce)
		for n := range rows[i].Queue {
			switch {
			case d.bug == "nobody is passed":
				rows[i].Queue[n].Passed = 0
			case d.bug == "a lost ticket is forgotten" && r.Waiter.Place.Ticket.IsZero() && rows[i].Queue[n].ID == r.Waiter.ID:
				rows[i].Queue[n].ID = "another"
			}
		}
		switch lock := rows[i].Lock; {
		case lock == nil:
		case d.bug == "reservations are in everybody's way" && lock.Reserved(),
			d.bug == "turns that are over are for anybody" && lock.Reserved() && lock.Stale():
			lock.Owner = r.Owner
		case d.bug == "intents are locks to those who wait" && lock.Intended():
			lock.StaleAfter--
		}
	}
	switch d.bug {
	case "nobody waits":
		r.Waiter = driver.Waiter{}
	case "all wait":
		if r.Waiter.ID == "" {
			r.Waiter = driver.Waiter{ID: "somebody", Turn: time.Minute, Channel: "c"}
		}
	case "tickets are new each time":
		r.Waiter.Place.Ticket = time.Time{}
	case "passing is forgotten":
		r.Waiter.Place.Passed = 0
	}
	v := queue.Decide(rows, r.Waiter, r.Owner, now())
	for i := range v.After {
		after, had := &v.After[i], rows[i].Queue
		switch {
		case d.bug == "partial rows stay" && rows[i].Ours,
			d.bug == "yields nothing" && after.Action == queue.Reserve && v.Refused,
			d.bug == "nothing is free for want of others" && after.Action == queue.Delete && rows[i].Lock != nil && rows[i].Lock.Reserved():
			*after = queue.RowUpdate{}
		case d.bug == "partial rows hand nothing on" && v.Refused && rows[i].Ours:
			*after = queue.RowUpdate{Action: queue.Delete}
		case d.bug == "keeps nothing" && after.Action == queue.Reserve && after.Nonce == rows[i].Nonce:
			*after = queue.RowUpdate{Action: queue.Delete}
		case d.bug == "those who are overtaken are forgotten" && !v.Refused && len(after.Queue) > len(had):
			after.Queue = had
		case d.bug == "the granted wait on" && !v.Refused:
			after.Queue = had
		case d.bug == "reclaims forget the queue" && !v.Refused:
			after.Queue = nil
		case d.bug == "the last is first" && after.Action == queue.SetQueue:
			slices.Reverse(after.Queue)
		case d.bug == "one waits" && after.Action == queue.SetQueue && len(had) > 0:
			after.Queue = had
		}
	}
	return v
}

// leave applies a decision to a row, and wakes the waiter that the row is now reserved for.
func (d *connection) leave(k key, a queue.RowUpdate) {
	row := d.locks[k]
	switch a.Action {
	case queue.SetQueue:
		row.queue = a.Queue
		d.locks[k] = row
	case queue.Reserve:
		anew := row.nonce == a.Nonce
		if d.bug == "a turn goes on" && anew {
			a.Lock.Heartbeat = row.Heartbeat
		}
		if d.bug == "turns have no end" {
			a.Lock.StaleAfter = 24 * time.Hour
		}
		if d.bug == "turns are written as they are" && a.Nonce != "" {
			p, _ := queue.Parse(a.Nonce)
			a.Lock.Heartbeat, a.Lock.StaleAfter = now(), p.Turn
		}
		if d.bug == "reservations are locks" {
			a.Lock.Owner = row.Owner
		}
		d.locks[k] = lockRow{a.Lock, a.Nonce, a.Queue}
		switch p, ok := queue.Parse(a.Nonce); {
		case ok && !anew:
			d.wake(k, append(queue.Queue{p}, a.Queue...), p.Turn)
		case !ok:
			told := slices.DeleteFunc(slices.Clone(a.Queue), func(p queue.Place) bool { return p.Channel == "" })
			d.wake(k, told, 0)
		}
	case queue.Delete:
		delete(d.locks, k)
	}
}

// end ends a lock, which goes to next or to the first waiter.
func (d *connection) end(k key, next driver.Waiter) {
	row, _ := d.standing(k)
	if d.bug == "the next is not preferred" {
		next = driver.Waiter{}
	}
	q := slices.Clone(row.queue)
	if d.bug == "the next is preferred for ever" && next.ID != "" || d.bug == "polls are never waited for" && len(q) > 0 && q[0].Channel == "" {
		for i := range q {
			q[i].Passed = 0
		}
	}
	if d.bug == "polls are waited for" {
		for i := range q {
			if q[i].Channel == "" {
				q[i].Channel = "c"
			}
		}
	}
	after := queue.End(row.LockInfo, q, next, now())
	if d.bug == "the next is forgotten" {
		after.Queue = after.Queue.Without(next.ID)
	}
	kept, _ := queue.Parse(after.Nonce)
	switch {
	case next.ID == "" || after.Action == queue.Reserve && kept.ID != next.ID:
		d.leave(k, after)
		return
	case after.Action == queue.Delete:
		delete(d.locks, k)
	default:
		d.locks[k] = lockRow{after.Lock, after.Nonce, after.Queue}
		if d.bug == "the next wakes others" {
			d.wake(k, after.Queue, 0)
		}
	}
	if d.bug != "the next is not woken" {
		d.send(next.Channel, driver.Wakeup{Project: k.project, Ref: k.ref, Waiter: next.ID})
	}
}

// endBy is end for a method that has a bug of its own.
func (d *connection) endBy(method string, k key) {
	if d.bug == method+" hand nothing on" {
		delete(d.locks, k)
		return
	}
	d.end(k, driver.Waiter{})
}

// withdraw takes a waiter out of the queue of a lock.
func (d *connection) withdraw(k key, id string) {
	if d.bug == "nobody gives up" || d.bug == "only the kept give up" && !d.locks[k].Reserved() {
		return
	}
	row := d.rowOf(k, "", "")
	if row.Lock != nil && d.bug == "who gives up takes all with them" && row.Lock.Reserved() {
		delete(d.locks, k)
		return
	}
	d.leave(k, queue.Withdraw(row, id, now()))
}

// wake tells the first of a queue that it may have the lock, and the second that it may after a
// turn.
func (d *connection) wake(k key, q queue.Queue, turn time.Duration) {
	if len(q) == 0 || d.bug == "wakes nobody" {
		return
	}
	if d.bug == "wakes the last" {
		slices.Reverse(q)
	}
	d.send(q[0].Channel, driver.Wakeup{Project: k.project, Ref: k.ref, Waiter: q[0].ID})
	if len(q) > 1 && turn > 0 && d.bug != "the second is not told" {
		if d.bug == "the second is woken at once" {
			turn = 0
		}
		d.send(q[1].Channel, driver.Wakeup{Project: k.project, Ref: k.ref, Waiter: q[1].ID, After: turn})
	}
}

func (d *connection) send(channel string, w driver.Wakeup) {
	select {
	case d.channels[channel] <- w:
	default: // nobody listens
	}
}

func (d *connection) Listen(ctx context.Context, channel string, started func(), wake func(driver.Wakeup)) error {
	d.mu.Lock()
	if d.bug == "one listener" {
		delete(d.channels, d.listening)
		d.listening = channel
	}
	c := make(chan driver.Wakeup, 100)
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
