package postgres

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
)

const (
	// channelPrefix begins the names of the server's notification channels.
	channelPrefix = "refdb_"

	// maxPayload is the longest that the server takes, in bytes.
	maxPayload = 7999

	// maxPending is how many wake-ups may be waiting to be sent.
	maxPending = 10_000

	// wakeupLimit is how long sending wake-ups may take; closing waits for it.
	wakeupLimit = 2 * time.Second
)

// payloadOf is what the first of w's queue is sent: as much of the queue as
// there is room for, the ref, which holds no newline, and the project.
func payloadOf(w refdb.Wakeup) string {
	name := "\n" + w.Ref + "\n" + w.Project
	queue := entriesOf(w.Queue[:min(len(w.Queue), maxWaiting)])
	for len(queue)+len(name) > maxPayload {
		queue = queue[:strings.LastIndexByte(queue, ',')]
	}
	return queue + name
}

// parsePayload reports whether s is that of a wake-up.
func parsePayload(s string) (w refdb.Wakeup, ok bool) {
	queue, name, _ := strings.Cut(s, "\n")
	w.Ref, w.Project, ok = strings.Cut(name, "\n")
	w.Queue = queueOf(strings.Split(queue, ","), refdb.Handoff{})
	return w, ok && len(w.Queue) > 0
}

// wakeups are to be sent by sendWakeups, apart from the releases that caused
// them: a notification's commit waits for those of all other clients.
type wakeups struct {
	mu      sync.Mutex
	pending []refdb.Wakeup
	due     chan struct{} // buffered: pending is not empty
}

// PassOn wakes the first of w's queue.
func (d *Driver) PassOn(w refdb.Wakeup) { d.wake(w) }

// wake has the first of w's queue woken, if there is one.
func (d *Driver) wake(w refdb.Wakeup) {
	if len(w.Queue) == 0 {
		return
	}
	d.wakeups.mu.Lock()
	if len(d.wakeups.pending) < maxPending {
		d.wakeups.pending = append(d.wakeups.pending, w)
	}
	d.wakeups.mu.Unlock()
	select {
	case d.wakeups.due <- struct{}{}:
	default:
	}
}

// released has the first of each queue woken of locks that were released. With h.Next
// it returns the queues instead, for the answer.
func (d *Driver) released(project string, refs []string, queues []refdb.Queue, h refdb.Handoff) []refdb.Queue {
	if h.Next != (refdb.Waiter{}) {
		return queues
	}
	for i, q := range queues {
		d.wake(refdb.Wakeup{Project: project, Ref: refs[i], Queue: q})
	}
	return nil
}

// A freedLock is one that was deleted, with the entries of its queue.
type freedLock struct {
	project, ref string
	waiting      []string
}

// wakeFreed has the first of each queue woken of locks that ended otherwise.
func (d *Driver) wakeFreed(freed ...freedLock) {
	for _, f := range freed {
		d.wake(refdb.Wakeup{Project: f.project, Ref: f.ref, Queue: queueOf(f.waiting, refdb.Handoff{})})
	}
}

func (w *wakeups) take() []refdb.Wakeup {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := w.pending
	w.pending = nil
	return all
}

// sendWakeups sends them until the driver is closed, all that there are at a time.
func (d *Driver) sendWakeups() {
	for {
		select {
		case <-d.wakeups.due:
			d.notify(d.wakeups.take())
		case <-d.closing.Done():
			d.notify(d.wakeups.take())
			return
		}
	}
}

const notifySQL = `SELECT count(pg_notify(channel, payload)) FROM unnest($1::text[], $2::text[]) AS n (channel, payload)`

func (d *Driver) notify(all []refdb.Wakeup) {
	if len(all) == 0 {
		return
	}
	channels, payloads := make([]string, len(all)), make([]string, len(all))
	for i, w := range all {
		channels[i], payloads[i] = channelPrefix+w.Queue[0].Channel, payloadOf(w)
	}
	ctx, cancel := context.WithTimeout(context.Background(), wakeupLimit)
	defer cancel()
	_ = d.do(ctx, roundTrip{what: "notify"}.then(notifySQL, nil, channels, payloads)) // lost hints are made up for by polling
}
