package gerrit

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/globalrefdb/globalrefdb/site/client"

	"github.com/globalrefdb/globalrefdb/site/internal/pause"
)

const (
	// lookEvery is how often the daemon looks which process has the site's Gerrit open.
	lookEvery = 10 * time.Second
	// patience is how long that process may serve without a session. Gerrit begins one before it
	// serves, and another one after a restart of the daemon. With lookEvery, the alarm is raised
	// within a minute.
	patience = 30 * time.Second
)

// A Watch is what the daemon has seen of the site's Gerrit (site.gerrit).
type Watch struct {
	// Path returns the Gerrit's site directory; "" if there is none.
	Path func() string
	// HasSession reports whether a process has a session.
	HasSession func(pid int) bool
	// Alarm is called for each alarm.
	Alarm  func()
	Logger *slog.Logger
	// Now is the clock; nil for [time.Now].
	Now func() time.Time

	mu    sync.Mutex
	path  string // that was looked at; "" if there is none
	seen  sight
	since time.Time // when it was first seen so
	state string    // at the last look; "" if there is no Gerrit
}

// A sight is one look at Gerrit's site directory.
type sight struct {
	held    bool
	pid     int
	session bool // the process has a session, or needs none
	listens bool // the process has started; before that it serves nobody, for as long as it takes
	err     string
}

// Run looks at the site's Gerrit until ctx ends.
func (w *Watch) Run(ctx context.Context) {
	for {
		w.Look(ctx)
		if !pause.For(ctx, lookEvery) {
			return
		}
	}
}

// Look looks which process has the site's Gerrit open, and raises an alarm, once, if that has been without a session for too long.
func (w *Watch) Look(ctx context.Context) {
	path := w.Path()
	var now sight
	if path != "" {
		now = w.sightOf(path)
	}
	before, after := w.note(path, now, w.now())
	switch {
	case before == after:
	case after == client.GerritUnguarded:
		w.Alarm()
		w.Logger.ErrorContext(ctx, "Gerrit runs without the guard: its writes are not compared with other sites: stop it, and run `refdbctl gerrit enable`", "process", now.pid)
	case before == client.GerritUnguarded:
		w.Logger.InfoContext(ctx, "Gerrit no longer runs without the guard", "state", after)
	case after == client.GerritUnknown:
		w.Logger.WarnContext(ctx, "can't determine whether Gerrit runs with the guard: see `refdbctl site status`")
	}
}

func (w *Watch) sightOf(path string) sight {
	holder, held, err := HolderOf(path)
	switch {
	case err != nil:
		return sight{err: err.Error()}
	case !held:
		return sight{}
	}
	if holder.PID == 0 {
		return sight{err: "the process that has its indexes open is in another PID namespace, or on another machine"}
	}
	return sight{held: true, pid: holder.PID, session: w.HasSession(holder.PID) || holder.Offline(), listens: holder.Listens()}
}

// note takes a look into account. It returns the states before and after.
func (w *Watch) note(path string, now sight, at time.Time) (before, after string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if path != w.path || now != w.seen || w.since.IsZero() {
		w.path, w.seen, w.since = path, now, at
	}
	before, w.state = w.state, w.stateAt(at)
	return before, w.state
}

// stateAt returns the state that follows from what was seen. w is locked.
func (w *Watch) stateAt(at time.Time) string {
	switch {
	case w.path == "":
		return ""
	case w.seen.err != "":
		return client.GerritUnknown
	case !w.seen.held:
		return client.GerritStopped
	case w.seen.session:
		return client.GerritGuarded
	case !w.seen.listens, at.Sub(w.since) < patience:
		return client.GerritStarting
	}
	return client.GerritUnguarded
}

// Status returns what the status says about the site's Gerrit; nil if it has none.
func (w *Watch) Status() *client.Gerrit {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.path == "" {
		return nil
	}
	return &client.Gerrit{Path: w.path, PID: w.seen.pid, State: w.state, Age: w.now().Sub(w.since).Seconds(), Error: w.seen.err}
}

func (w *Watch) now() time.Time {
	if w.Now == nil {
		return time.Now()
	}
	return w.Now()
}
