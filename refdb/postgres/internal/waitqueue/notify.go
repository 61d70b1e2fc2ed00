// Package waitqueue tells those who wait for a lock when it is their turn, through the
// server's LISTEN and NOTIFY.
package waitqueue

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/internal/queue"
	"github.com/globalrefdb/globalrefdb/refdb/postgres/internal/roundtrip"
)

const (
	// channelPrefix begins the names of the server's notification channels.
	channelPrefix = "refdb_"

	// maxPending is how many wake-ups may be waiting to be sent.
	maxPending = 10_000

	// wakeupLimit is how long sending wake-ups may take; closing waits for it.
	wakeupLimit = 2 * time.Second
)

// A wakeup is a wake-up and the channel that it goes to.
type wakeup struct {
	channel string
	refdb.Wakeup
}

// payload is the text of the notification. The name of a ref holds no newline; that of
// a project may.
func (w wakeup) payload() string {
	return fmt.Sprintf("%s %d\n%s\n%s", w.Waiter, w.After.Milliseconds(), w.Ref, w.Project)
}

// parsePayload reads a payload, and reports whether it is one.
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

// A Notifier tells those who wait for locks when to come: those who listen through it
// at once, those of other processes by the server's notifications.
type Notifier struct {
	pools *roundtrip.Pools

	mu        sync.Mutex
	listeners map[string]func(refdb.Wakeup) // by channel
	pending   []wakeup                      // for Run to send
	due       chan struct{}                 // buffered: pending is not empty
}

// New returns a notifier.
func New(pools *roundtrip.Pools) *Notifier {
	return &Notifier{pools: pools, listeners: make(map[string]func(refdb.Wakeup)), due: make(chan struct{}, 1)}
}

// TellNext is Tell after a release with the place of one who is next, if there is one: it
// asks now if the lock is kept for nobody else.
func (n *Notifier) TellNext(project, ref string, told []string, next string) {
	if len(told) == 0 && next != "" {
		told = []string{next}
	}
	n.Tell(project, ref, told)
}

// Tell tells those who wait for a lock, given by their places: the first that the lock is
// kept for it, and the second that it is after the first one's turn.
func (n *Notifier) Tell(project, ref string, told []string) {
	var after time.Duration
	for _, text := range told[:min(len(told), 2)] {
		p, ok := queue.Parse(text)
		if !ok {
			return
		}
		if p.Channel != "" {
			n.wake(wakeup{p.Channel, refdb.Wakeup{Project: project, Ref: ref, Waiter: p.ID, After: after}})
		}
		after = p.Turn
	}
}

// TellFirst tells the first of those who waited for a lock whose row was deleted.
func (n *Notifier) TellFirst(project, ref string, waited []string) {
	n.Tell(project, ref, waited[:min(len(waited), 1)])
}

// wake wakes a waiter: at once if its process listens through this notifier, else by a
// notification.
func (n *Notifier) wake(w wakeup) {
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

// Run sends notifications until closing ends, all that there are at a time. They are
// sent apart from the releases that caused them: a notification's commit waits for
// those of all other clients.
func (n *Notifier) Run(closing context.Context) {
	for {
		select {
		case <-n.due:
			n.notify(n.take())
		case <-closing.Done():
			n.notify(n.take())
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

func (n *Notifier) notify(all []wakeup) {
	if len(all) == 0 {
		return
	}
	channels, payloads := make([]string, len(all)), make([]string, len(all))
	for i, w := range all {
		channels[i], payloads[i] = channelPrefix+w.channel, w.payload()
	}
	ctx, cancel := context.WithTimeout(context.Background(), wakeupLimit)
	defer cancel()
	_ = n.pools.Do(ctx, roundtrip.Read("notify").Exec(notifySQL, channels, payloads)) // lost hints are made up for by polling
}
