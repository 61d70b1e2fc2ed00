package postgres

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/internal/queue"
)

const (
	// channelPrefix begins the names of the server's notification channels.
	channelPrefix = "refdb_"

	// maxPending is how many wake-ups may be waiting to be sent.
	maxPending = 10_000

	// wakeupLimit is how long sending wake-ups may take; closing waits for it.
	wakeupLimit = 2 * time.Second
)

// A wakeup is one, and the channel that it goes to.
type wakeup struct {
	channel string
	refdb.Wakeup
}

// payload is what the waiter is sent. The ref holds no newline.
func (w wakeup) payload() string {
	return fmt.Sprintf("%s %d\n%s\n%s", w.Waiter, w.After.Milliseconds(), w.Ref, w.Project)
}

// parsePayload reports whether s is that of a wake-up.
func parsePayload(s string) (w refdb.Wakeup, ok bool) {
	head, name, _ := strings.Cut(s, "\n")
	if w.Ref, w.Project, ok = strings.Cut(name, "\n"); !ok {
		return w, false
	}
	waiter, after, _ := strings.Cut(head, " ")
	ms, err := strconv.ParseInt(after, 10, 32)
	w.Waiter, w.After = waiter, time.Duration(ms)*time.Millisecond
	return w, err == nil && waiter != ""
}

// wakeups are to be sent by sendWakeups, apart from the releases that caused
// them: a notification's commit waits for those of all other clients.
type wakeups struct {
	mu      sync.Mutex
	pending []wakeup
	due     chan struct{} // buffered: pending is not empty
}

// tell tells those who wait for a lock: the first that it is kept for it, and the second that it is
// after the first one's turn.
func (d *Driver) tell(project, ref string, told []string) {
	var after time.Duration
	for _, text := range told[:min(len(told), 2)] {
		p, ok := queue.Parse(text)
		if !ok {
			return
		}
		if p.Channel != "" {
			d.wake(wakeup{p.Channel, refdb.Wakeup{Project: project, Ref: ref, Waiter: p.ID, After: after}})
		}
		after = p.Turn
	}
}

// A freedLock is one whose row was deleted, with its queue.
type freedLock struct {
	project, ref string
	waiting      []string
}

// wakeFreed tells the first in each queue.
func (d *Driver) wakeFreed(freed ...freedLock) {
	for _, f := range freed {
		d.tell(f.project, f.ref, f.waiting[:min(len(f.waiting), 1)])
	}
}

func (d *Driver) wake(w wakeup) {
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

func (w *wakeups) take() []wakeup {
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

func (d *Driver) notify(all []wakeup) {
	if len(all) == 0 {
		return
	}
	channels, payloads := make([]string, len(all)), make([]string, len(all))
	for i, w := range all {
		channels[i], payloads[i] = channelPrefix+w.channel, w.payload()
	}
	ctx, cancel := context.WithTimeout(context.Background(), wakeupLimit)
	defer cancel()
	_ = d.do(ctx, roundTrip{what: "notify"}.then(notifySQL, nil, channels, payloads)) // lost hints are made up for by polling
}
