// Package site guards the Git repositories of one site with the global ref
// database: a daemon that the repositories' hooks ask, and the commands beside it.
//
// What git does to refs is announced to the database before, as an intent
// ([refdb.DB.Prepare]), and ended after it, by what the repository then says:
// never by what the hook was told. A push whose process is gone is ended the same way,
// by the daemon that saw it or by the next one.
package site

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
)

// Options configure a [Daemon].
type Options struct {
	// Logger gets what an operator should know; names appear as digests only.
	// Default: nothing is logged.
	Logger *slog.Logger
	// DigestKey keys the digests. Default: random.
	DigestKey []byte
	// Version of the program, for the status.
	Version string
}

// A Daemon serves the hooks of one site's repositories.
type Daemon struct {
	db     *refdb.DB
	o      Options
	config atomic.Pointer[Config]
	began  time.Time
	boot   string          // the machine's
	work   context.Context // ends when the daemon does, after all that it waits for

	// inherited are the intents of earlier daemons that count; nil before the first look.
	inherited atomic.Pointer[map[intentKey]bool]

	presence presence
	pushes   pushes
	doubts   doubts
	alarms   alarms
	counters counters
	health   health

	started  chan struct{} // closed when pushes can be decided about
	stopping atomic.Bool
	unclean  chan struct{} // holds an item when there is something to reconcile
	// dirt counts what was left to reconcile, clean how much of that is done.
	dirt, clean atomic.Uint64
	tasks       sync.WaitGroup
}

// New returns a daemon on db, whose site must be c.Site. The caller closes db
// after [Daemon.Run].
func New(c *Config, db *refdb.DB, o Options) *Daemon {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if len(o.DigestKey) == 0 {
		o.DigestKey = []byte(rand.Text())
	}
	d := &Daemon{
		db: db, o: o, began: time.Now(),
		started: make(chan struct{}), unclean: make(chan struct{}, 1),
	}
	d.config.Store(c)
	d.health.err = errors.New("it has not answered yet")
	d.presence = presence{db: db, log: o.Logger, err: errors.New("it is starting")}
	return d
}

// Run serves until ctx ends; then it refuses new pushes, waits for those that
// are prepared, at most StopTimeout, and returns nil. Called once.
//
// It returns an error if it can't begin: another daemon runs with this state
// directory, socket or site name. If the database is down it begins nevertheless,
// and refuses pushes until it is back.
func (d *Daemon) Run(ctx context.Context) (err error) {
	c := d.config.Load()
	if site, _, _ := strings.Cut(d.db.Owner(), "/"); site != c.Site {
		return fmt.Errorf("the database was opened for site %q, not %q", site, c.Site)
	}
	if d.boot, err = bootID(); err != nil {
		return err
	}
	lock, err := lockState(c.State)
	if err != nil {
		return err
	}
	defer lock.Close()
	booted, err := d.booted(c.State)
	if err != nil {
		return err
	}
	if booted {
		d.unlock(ctx, c)
	}
	listener, err := bind(c.Socket)
	if err != nil {
		return err
	}
	socket, err := os.Lstat(c.Socket)
	if err != nil {
		listener.Close()
		return err
	}
	defer unbind(listener, c.Socket, socket)

	// What is under way outlives ctx: it is what a graceful stop waits for.
	work, cancel := context.WithCancel(context.WithoutCancel(ctx))
	d.work = work
	defer d.tasks.Wait()
	defer cancel()
	connections := newConnections()
	d.tasks.Go(func() { d.accept(work, listener, connections) })
	defer listener.Close()

	if err := d.presence.begin(ctx, c); err != nil {
		return err
	}
	err = d.reconcile(ctx)
	close(d.started)
	d.tasks.Go(func() { d.presence.keep(work, c) })
	d.tasks.Go(func() { d.reconcileLoop(work, err) })
	if booted {
		d.tasks.Go(func() { d.catchUp(work, c) })
	}
	notifyReady()
	d.o.Logger.InfoContext(ctx, "serving", "version", d.o.Version, "presence", d.presence.lost() == nil)

	<-ctx.Done()
	d.stop(connections, c.StopTimeout)
	listener.Close()
	cancel()
	d.tasks.Wait()
	return nil
}

// stop lets what was announced come to its end.
func (d *Daemon) stop(connections connections, limit time.Duration) {
	d.stopping.Store(true)
	notifyStopping()
	d.o.Logger.Info("stopping", "pushes", d.pushes.pending())
	deadline := time.NewTimer(limit)
	defer deadline.Stop()
	poll := time.NewTicker(20 * time.Millisecond)
	defer poll.Stop()
	for {
		left := d.pushes.pending()
		if left == 0 && connections.idle() && d.clean.Load() == d.dirt.Load() {
			d.presence.end()
			return
		}
		select {
		case <-poll.C:
		case <-deadline.C:
			// The presence stays: only a daemon with this one's disk may
			// find out what became of those pushes.
			d.o.Logger.Warn("stopped with pushes under way: the next start resolves them", "pushes", left)
			return
		}
	}
}

// Reload makes d use another configuration from now on. What is bound to the
// start of the daemon can't change: then, and after any error, the old one stays.
func (d *Daemon) Reload(c *Config) error {
	old := d.config.Load()
	for _, k := range []struct{ key, old, new string }{
		{"name", old.Site, c.Site}, {"database", old.Database, c.Database},
		{"socket", old.Socket, c.Socket}, {"state", old.State, c.State},
	} {
		if k.old != k.new {
			return fmt.Errorf("site.%s can't change while the daemon runs: restart it", k.key)
		}
	}
	d.config.Store(c)
	d.dirty()
	d.o.Logger.Info("configuration reloaded")
	return nil
}

// dirty says that there is something to reconcile.
func (d *Daemon) dirty() {
	d.dirt.Add(1)
	select {
	case d.unclean <- struct{}{}:
	default:
	}
}

// digest stands for a ref in logs.
func (d *Daemon) digest(project, ref string) string {
	return refdb.Digest(d.o.DigestKey, project, ref)
}

// unbind removes the socket that was made, unless another daemon's is there by
// now. Whether somebody answers wouldn't tell: a process that is being started
// has all that its parent listens on, for a moment.
func unbind(l *net.UnixListener, path string, made fs.FileInfo) {
	if there, err := os.Lstat(path); err == nil && os.SameFile(there, made) {
		os.Remove(path)
	}
	l.Close()
}

// counters are what a Status reports.
type counters struct {
	prepared, refused, updated, dropped, alarms, deaths, heeded, failures atomic.Uint64
}

func (c *counters) read() Counters {
	return Counters{
		Prepared: c.prepared.Load(), Refused: c.refused.Load(), Updated: c.updated.Load(), Dropped: c.dropped.Load(),
		Alarms: c.alarms.Load(), Deaths: c.deaths.Load(), Heeded: c.heeded.Load(), Failures: c.failures.Load(),
	}
}

// health is what was last heard of the database.
type health struct {
	mu  sync.Mutex
	err error
}

// heard notes how a request to the database ended. Its refusals are answers.
func (d *Daemon) heard(err error) {
	switch {
	case errors.Is(err, refdb.ErrLocked), errors.Is(err, refdb.ErrMismatch), errors.Is(err, refdb.ErrLockLost),
		errors.Is(err, refdb.ErrInvalid), errors.Is(err, refdb.ErrTooMany):
		err = nil
	}
	if err != nil {
		d.counters.failures.Add(1)
	}
	d.health.mu.Lock()
	defer d.health.mu.Unlock()
	d.health.err = err
}

func (h *health) last() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.err
}
