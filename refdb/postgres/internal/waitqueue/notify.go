// Package waitqueue notifies the waiters of locks of their turns, through the server's LISTEN and
// NOTIFY.
package waitqueue

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/internal/queue"
	"github.com/globalrefdb/globalrefdb/refdb/postgres/internal/roundtrip"
)

const (
	// channelPrefix is the prefix of the names of the server's notification channels.
	channelPrefix = "refdb_"

	// maxPending is the maximum number of wake-ups that wait to be sent.
	maxPending = 10_000

	// wakeupLimit is how long sending wake-ups may take; Close waits for it.
	wakeupLimit = 2 * time.Second
)

// A wakeup is a wake-up and the channel that it is sent to.
type wakeup struct {
	channel string
	driver.Wakeup
}

// payload returns the text of the notification. A ref's name contains no newline; a project's name
// may.
func (w wakeup) payload() string {
	return fmt.Sprintf("%s %d\n%s\n%s", w.Waiter, w.After.Milliseconds(), w.Ref, w.Project)
}

// parsePayload parses a payload, and reports whether it is one.
func parsePayload(s string) (w driver.Wakeup, ok bool) {
	head, name, _ := strings.Cut(s, "\n")
	if w.Ref, w.Project, ok = strings.Cut(name, "\n"); !ok {
		return w, false
	}
	waiter, after, _ := strings.Cut(head, " ")
	ms, err := strconv.ParseInt(after, 10, 32)
	w.Waiter, w.After = waiter, time.Duration(ms)*time.Millisecond
	return w, err == nil && waiter != ""
}

// A Notifier notifies waiters of their turns: waiters of processes that listen through it directly,
// and others by the server's notifications.
type Notifier struct {
	pools *roundtrip.Pools

	mu        sync.Mutex
	listeners map[string]func(driver.Wakeup) // by channel
	pending   []wakeup                       // wake-ups for Run to send
	due       chan struct{}                  // buffered: pending is not empty
}

// New returns a notifier.
func New(pools *roundtrip.Pools) *Notifier {
	return &Notifier{pools: pools, listeners: make(map[string]func(driver.Wakeup)), due: make(chan struct{}, 1)}
}

// NotifyNext is Notify after a release. If toNotify is empty, it notifies next, the place of the
// release's Next, unless that is "".
func (n *Notifier) NotifyNext(project, ref string, toNotify []string, next string) {
	if len(toNotify) == 0 && next != "" {
		toNotify = []string{next}
	}
	n.Notify(project, ref, toNotify)
}

// Notify notifies waiters of a lock, given by their places: the first that the lock is reserved for
// it, and the second that its turn comes after the first one's.
func (n *Notifier) Notify(project, ref string, toNotify []string) {
	var after time.Duration
	for _, text := range toNotify[:min(len(toNotify), 2)] {
		p, ok := queue.Parse(text)
		if !ok {
			return
		}
		if p.Channel != "" && p.Channel != queue.Unheard {
			n.enqueue(wakeup{p.Channel, driver.Wakeup{Project: project, Ref: ref, Waiter: p.ID, After: after}})
		}
		after = p.Turn
	}
}

// NotifyFirst notifies the first waiter of a lock whose row was deleted.
func (n *Notifier) NotifyFirst(project, ref string, waited []string) {
	n.Notify(project, ref, waited[:min(len(waited), 1)])
}

// enqueue wakes a waiter at once if its process listens through this notifier, and otherwise leaves
// the wake-up for Run to send.
func (n *Notifier) enqueue(w wakeup) {
	n.mu.Lock()
	wake := n.listeners[w.channel]
	if wake == nil && len(n.pending) < maxPending {
		n.pending = append(n.pending, w)
	}
	n.mu.Unlock()
	if wake != nil {
		wake(w.Wakeup)
		return
	}
	select {
	case n.due <- struct{}{}:
	default:
	}
}

// Run sends pending notifications, all of them at a time, until closing ends. They are sent
// separately from the releases that caused them, because the commit of a notification waits for the
// notifications of all other clients.
func (n *Notifier) Run(closing context.Context) {
	for {
		select {
		case <-n.due:
			n.send(n.take())
		case <-closing.Done():
			n.send(n.take())
			return
		}
	}
}

func (n *Notifier) take() []wakeup {
	n.mu.Lock()
	defer n.mu.Unlock()
	all := n.pending
	n.pending = nil
	return all
}

const notifySQL = `SELECT count(pg_notify(channel, payload)) FROM unnest($1::text[], $2::text[]) AS n (channel, payload)`

func (n *Notifier) send(all []wakeup) {
	if len(all) == 0 {
		return
	}
	channels, payloads := make([]string, len(all)), make([]string, len(all))
	for i, w := range all {
		channels[i], payloads[i] = channelPrefix+w.channel, w.payload()
	}
	ctx, cancel := context.WithTimeout(context.Background(), wakeupLimit)
	defer cancel()
	_ = n.pools.Do(ctx, roundtrip.Read("notify").Exec(notifySQL, channels, payloads)) // polling makes up for lost notifications
}
