package postgres

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"
)

// Who waits for a lock has put its channel into the row's queue. Whoever
// deletes the row notifies the first channel, and sends it the rest of the
// queue; whoever is notified puts that into the row of the lock that it then
// takes. So a release wakes one process, not all, and nobody is forgotten. All
// of it is a hint: where it gets lost, waiters poll.

const (
	// A channel's name is channelPrefix and channelDigits random digits.
	channelPrefix = "refdb_"
	channelDigits = 16

	// maxWaiting is the longest queue that is handed on or added to: the server
	// takes payloads below 8,000 bytes. Who does not fit in polls.
	maxWaiting = 100

	// maxPending is how many wake-ups may be waiting to be sent, and how many
	// queues to be handed on.
	maxPending = 10_000

	// wakeupLimit is how long sending wake-ups may take; closing waits for it.
	wakeupLimit = 2 * time.Second
)

// A freedLock is a lock that was deleted while somebody waited for it.
type freedLock struct {
	project, ref string
	waiting      []string // channels, first come first
	next         bool     // a waiter of this driver asks for it now
	back         bool     // one waits behind all others
}

// channels are those that wait, but for one.
func (f freedLock) channels(but string) []string {
	var queue []string
	for _, c := range f.waiting {
		if strings.HasPrefix(c, channelPrefix) && len(c) == len(channelPrefix)+channelDigits && c != but {
			queue = append(queue, c)
		}
	}
	return queue[:min(len(queue), maxWaiting)]
}

// notification returns whom to tell that the lock is free, and what: its name,
// and who else waits. A ref holds no newline. ok is false if there is nobody.
func (f freedLock) notification() (channel, payload string, ok bool) {
	queue := f.channels("")
	if len(queue) == 0 {
		return "", "", false
	}
	return queue[0], strings.Join(queue[1:], ",") + "\n" + f.ref + "\n" + f.project, true
}

func parsePayload(s string) (f freedLock, queue string, ok bool) {
	queue, s, _ = strings.Cut(s, "\n")
	f.ref, f.project, ok = strings.Cut(s, "\n")
	return f, queue, ok
}

// wakeups are to be sent by sendWakeups, apart from the releases that caused
// them: a notification's commit waits for those of all other clients.
type wakeups struct {
	mu      sync.Mutex
	pending []freedLock
	due     chan struct{} // buffered: pending is not empty
}

func (w *wakeups) add(freed []freedLock) {
	if len(freed) == 0 {
		return
	}
	w.mu.Lock()
	if len(w.pending) < maxPending {
		w.pending = append(w.pending, freed...)
	}
	w.mu.Unlock()
	select {
	case w.due <- struct{}{}:
	default:
	}
}

// released has those woken who wait for locks that were deleted, unless a waiter
// of this driver is next: that one takes the queue on. One that goes back gets
// its place at the end of the queue.
func (d *Driver) released(freed []freedLock) {
	var wake []freedLock
	for _, f := range freed {
		others := f.channels(d.channel)
		switch {
		case f.next:
			d.inherits.put(f.project, f.ref, strings.Join(others, ","))
			continue
		case f.back:
			f.waiting = append(others, d.channel)
		}
		wake = append(wake, f)
	}
	d.wakeups.add(wake)
}

func (w *wakeups) take() []freedLock {
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

func (d *Driver) notify(freed []freedLock) {
	var channels, payloads []string
	for _, f := range freed {
		if channel, payload, ok := f.notification(); ok {
			channels, payloads = append(channels, channel), append(payloads, payload)
		}
	}
	if len(channels) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), wakeupLimit)
	defer cancel()
	_ = d.do(ctx, trip{what: "notify"}.then(notifySQL, nil, channels, payloads)) // lost hints are made up for by polling
}

// inheritances are the queues that came with notifications, until the locks
// they belong to are taken.
type inheritances struct {
	mu     sync.Mutex
	queues map[refName]string // channels, with commas between
}

type refName struct{ project, ref string }

// An inheritance is what an Acquire takes on: queues goes with its refs.
type inheritance struct {
	project      string
	refs, queues []string
	woken        bool // by notifications, of one of the refs at least
}

// PassOn notifies the next in the queue that came with a notification.
func (d *Driver) PassOn(project, ref string) {
	if queue := d.inherits.take(project, []string{ref}).queues[0]; queue != "" {
		d.wakeups.add([]freedLock{{project: project, ref: ref, waiting: strings.Split(queue, ",")}})
	}
}

// put adds to what is there: that came with a notification which the lock was
// taken without.
func (in *inheritances) put(project, ref, queue string) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.queues == nil || len(in.queues) >= maxPending {
		in.queues = make(map[refName]string)
	}
	k := refName{project, ref}
	all := strings.FieldsFunc(in.queues[k]+","+queue, func(r rune) bool { return r == ',' })
	var once []string
	for _, c := range all {
		if !slices.Contains(once, c) {
			once = append(once, c)
		}
	}
	in.queues[k] = strings.Join(once[:min(len(once), maxWaiting)], ",")
}

func (in *inheritances) take(project string, refs []string) inheritance {
	i := inheritance{project: project, refs: refs, queues: make([]string, len(refs))}
	in.mu.Lock()
	defer in.mu.Unlock()
	if len(in.queues) == 0 {
		return i
	}
	for n, ref := range refs {
		k := refName{project, ref}
		queue, ok := in.queues[k]
		i.queues[n], i.woken = queue, i.woken || ok
		delete(in.queues, k)
	}
	return i
}

// putBack undoes a take.
func (in *inheritances) putBack(i inheritance) {
	for n, queue := range i.queues {
		if queue != "" {
			in.put(i.project, i.refs[n], queue)
		}
	}
}
