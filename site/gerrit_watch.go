package site

import (
	"context"
	"sync"
	"time"

	"github.com/globalrefdb/globalrefdb/site/client"
	"github.com/globalrefdb/globalrefdb/site/gerrit"
)

const (
	// gerritLookEvery is how often the daemon looks which process has the site's Gerrit open.
	gerritLookEvery = 10 * time.Second
	// gerritPatience is how long that process may be without a session: it begins one while it starts, and anew after the daemon was
	// restarted. With the look before it makes an alarm within a minute.
	gerritPatience = 30 * time.Second
)

// A gerritWatch is what the daemon has seen of the site's Gerrit (site.gerrit).
type gerritWatch struct {
	mu    sync.Mutex
	path  string // that was looked at; "" if there is none
	seen  gerritSight
	since time.Time // when it was first seen so
	state string    // at the last look; "" if there is no Gerrit
}

// A gerritSight is one look at Gerrit's site directory.
type gerritSight struct {
	held    bool
	pid     int
	session bool // the process has a session, or needs none
	err     string
}

// watchGerrit looks at the site's Gerrit until ctx ends.
func (d *Daemon) watchGerrit(ctx context.Context) {
	for {
		d.lookAtGerrit(ctx)
		if !pauseFor(ctx, gerritLookEvery) {
			return
		}
	}
}

// lookAtGerrit looks which process has the site's Gerrit open, and raises an alarm, once, if that has been without a session for too long.
func (d *Daemon) lookAtGerrit(ctx context.Context) {
	path := d.config.Load().Gerrit
	var now gerritSight
	if path != "" {
		now = d.sightOfGerrit(path)
	}
	before, after := d.gerrit.note(path, now, time.Now())
	switch {
	case before == after:
	case after == client.GerritUnguarded:
		d.counters.alarms.Add(1)
		d.o.Logger.ErrorContext(ctx, "Gerrit runs without the guard: what it writes is not compared with other sites: stop it, and run `refdbctl gerrit enable`", "process", now.pid)
	case before == client.GerritUnguarded:
		d.o.Logger.InfoContext(ctx, "Gerrit does not run without the guard any more", "state", after)
	case after == client.GerritUnknown:
		d.o.Logger.WarnContext(ctx, "it can't be seen whether Gerrit runs with the guard: see `refdbctl site status`")
	}
}

func (d *Daemon) sightOfGerrit(path string) gerritSight {
	holder, held, err := gerrit.HolderOf(path)
	switch {
	case err != nil:
		return gerritSight{err: err.Error()}
	case !held:
		return gerritSight{}
	}
	if holder.PID == 0 {
		return gerritSight{err: "the process that has its indexes open is in another PID namespace, or on another machine"}
	}
	return gerritSight{held: true, pid: holder.PID, session: d.guards.hasSession(holder.PID) || holder.Offline()}
}

// hasSession reports whether the process has a session.
func (gs *guards) hasSession(pid int) bool {
	gs.lock()
	defer gs.unlock()
	for _, g := range gs.all {
		if g.id.PID == pid && g.session != nil && !g.dead {
			return true
		}
	}
	return false
}

// note takes a look into account. It returns the states before and after.
func (w *gerritWatch) note(path string, now gerritSight, at time.Time) (before, after string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if path != w.path || now != w.seen || w.since.IsZero() {
		w.path, w.seen, w.since = path, now, at
	}
	before, w.state = w.state, w.stateAt(at)
	return before, w.state
}

// stateAt returns the state that follows from what was seen. w is locked.
func (w *gerritWatch) stateAt(at time.Time) string {
	switch {
	case w.path == "":
		return ""
	case w.seen.err != "":
		return client.GerritUnknown
	case !w.seen.held:
		return client.GerritStopped
	case w.seen.session:
		return client.GerritGuarded
	case at.Sub(w.since) < gerritPatience:
		return client.GerritStarting
	}
	return client.GerritUnguarded
}

// status returns what the status says about the site's Gerrit; nil if it has none.
func (w *gerritWatch) status() *client.Gerrit {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.path == "" {
		return nil
	}
	return &client.Gerrit{Path: w.path, PID: w.seen.pid, State: w.state, Age: time.Since(w.since).Seconds(), Error: w.seen.err}
}
