// Package site guards the Git repositories of one site with the global ref
// database: a daemon that the repositories' hooks ask, and the commands beside it.
//
// Before git moves refs, the daemon announces the moves to the database as intents
// ([refdb.DB.Prepare]). Afterwards it ends the intents by what the repository then has, never by what
// the hook says. A push whose process has ended is ended the same way, by this daemon or the next.
package site

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/site/boot"
	"github.com/globalrefdb/globalrefdb/site/claims"
	"github.com/globalrefdb/globalrefdb/site/client"
	"github.com/globalrefdb/globalrefdb/site/compare"
	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/follow"
	"github.com/globalrefdb/globalrefdb/site/gerrit"
	"github.com/globalrefdb/globalrefdb/site/guards"
	"github.com/globalrefdb/globalrefdb/site/hookdir"
	"github.com/globalrefdb/globalrefdb/site/intent"
	"github.com/globalrefdb/globalrefdb/site/internal/exporter"
	"github.com/globalrefdb/globalrefdb/site/internal/socket"
	"github.com/globalrefdb/globalrefdb/site/internal/systemd"
	"github.com/globalrefdb/globalrefdb/site/journal"
	"github.com/globalrefdb/globalrefdb/site/lifecycle"
	"github.com/globalrefdb/globalrefdb/site/maintenance"
	"github.com/globalrefdb/globalrefdb/site/modes"
	"github.com/globalrefdb/globalrefdb/site/mover"
	"github.com/globalrefdb/globalrefdb/site/moves"
	"github.com/globalrefdb/globalrefdb/site/objects"
	"github.com/globalrefdb/globalrefdb/site/presence"
	"github.com/globalrefdb/globalrefdb/site/projects"
	"github.com/globalrefdb/globalrefdb/site/pusher"
	"github.com/globalrefdb/globalrefdb/site/readers"
	"github.com/globalrefdb/globalrefdb/site/witness"
)

// Options configure a [Daemon].
type Options struct {
	// Logger gets what an operator should know. Names appear as digests only.
	// Default: nothing is logged.
	Logger *slog.Logger
	// DigestKey keys the digests. Default: random.
	DigestKey []byte
	// Version of the program, for the status.
	Version string
	// Journal is the one that the database was opened with; nil if none: then this site is no witness.
	Journal *journal.Journal
	// Hook is the path of the hook's program, of which the daemon makes the site's hooks; "" if it is not there.
	Hook string
	// Collectors are exported beside the daemon's own metrics, if site.metrics says where.
	Collectors []prometheus.Collector
}

// A Daemon serves the hooks of one site's repositories.
type Daemon struct {
	db     *refdb.DB
	o      Options
	config atomic.Pointer[config.Config]
	began  time.Time
	boot   string          // the machine's
	locked time.Duration   // how long the machine was up when this became the only daemon of the site
	work   context.Context // of everything that a graceful stop waits for
	limits limits

	// inherited are the intents of earlier daemons that a push may rely on, once they are known.
	inherited intent.Inherited

	presence *presence.Presence
	projects projects.Cache
	logged   modes.Logged
	modes    modes.Keeper
	pushes   pushes
	claims   claims.Claims
	guards   guards.Guards
	mover    mover.Mover
	alarms   intent.Alarms
	counters counters
	health   health
	sizes    compare.SettledSizes
	metrics  daemonMetrics
	open     intent.Open
	lags     compare.Lags
	survey   survey
	moved    moves.Marks
	list     moves.List
	readers  readers.Readers
	gerrit   gerrit.Watch
	hooks    *hookdir.Keeper

	follower   *follow.Follower
	pruning    maintenance.Pruning
	maintainer *maintenance.Maintainer
	upkeep     context.Context // ends when the daemon begins to stop: pushes must not wait for a repack
	endUpkeep  context.CancelFunc
	lifecycle  *lifecycle.Lifecycle
	storage    objects.Storage
	witness    witness.Witness

	registering chan struct{}     // has an element while a push makes the database or a repository record a project
	unrecorded  map[string]string // by path, the IDs of projects made for a repository that could not record it yet; for who registers

	started      chan struct{} // closed when pushes can be decided about
	stopping     atomic.Bool
	reconcileNow chan struct{} // has an item if there is something to reconcile
	// removals are under way, or have ended, of lock files that processes left whose intents an operator has decided about. They are
	// reconcile's.
	removals map[intent.Key]<-chan struct{}
	// reconcileRequested counts the requests to reconcile, reconcileDone those that are done.
	reconcileRequested, reconcileDone atomic.Uint64
	tasks                             sync.WaitGroup
}

// New returns a daemon on db, whose site must be c.Site. The caller closes db
// after [Daemon.Run].
func New(c *config.Config, db *refdb.DB, o Options) *Daemon {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if len(o.DigestKey) == 0 {
		o.DigestKey = []byte(rand.Text())
	}
	d := &Daemon{
		db: db, o: o, began: time.Now(), presence: presence.New(db, o.Logger), metrics: newDaemonMetrics(), logged: modes.NewLogged(), moved: moves.NewMarks(),
		started: make(chan struct{}), reconcileNow: make(chan struct{}, 1), removals: map[intent.Key]<-chan struct{}{}, limits: defaultLimits(),
		registering: make(chan struct{}, 1), unrecorded: map[string]string{},
	}
	d.config.Store(c)
	d.follower = d.newFollower(c)
	d.gerrit = gerrit.Watch{
		Path: func() string { return d.config.Load().Gerrit }, HasSession: d.guards.HasSession, Alarm: host{d}.Alarm, Logger: o.Logger,
	}
	d.hooks = d.newHooks(c)
	d.readers = readers.Readers{
		List: &d.list, Started: d.started, Logger: o.Logger, Reset: d.metrics.movesResets.Inc,
	}
	d.modes = modes.Keeper{DB: db, Projects: &d.projects, Logged: &d.logged, Config: d.config.Load, Unsettled: d.unsettledIn}
	d.maintainer = maintenance.NewMaintainer(maintenance.Maintainer{DB: db, Projects: &d.projects, Pruning: &d.pruning, Site: host{d}, Logger: o.Logger, Digest: d.digest})
	d.witness = witness.Witness{DB: db, Journal: o.Journal, Moves: &d.list, Site: host{d}, Logger: o.Logger}
	d.storage = objects.Storage{DB: db, Projects: &d.projects, Site: host{d}, Logger: o.Logger}
	d.lifecycle = lifecycle.New(&lifecycle.Lifecycle{
		DB: db, Projects: &d.projects, Follower: d.follower, Maintainer: d.maintainer, Pruning: &d.pruning, Moves: &d.list, Site: host{d},
		Logger: o.Logger, Digest: d.digest, Hook: o.Hook,
	})
	d.guards = guards.Guards{Needs: guards.Needs{
		DB: db, Projects: &d.projects, Follower: d.follower, Claims: &d.claims, Intents: &d.open, Pruning: &d.pruning, Storage: &d.storage, Lifecycle: d.lifecycle,
		Moves: &d.list, Marks: &d.moved, Logged: &d.logged, Site: host{d}, Counts: count{d}, Logger: o.Logger, Tasks: &d.tasks, Digest: d.digest, Hook: o.Hook,
	}}
	d.health.err = errors.New("it has not answered yet")
	if o.Journal != nil {
		o.Journal.SettleWith(d.witness.SettleLost)
	}
	return d
}

// Run serves until ctx ends. Then it refuses new pushes, waits for those that are prepared, for at
// most StopTimeout, and returns nil. It may be called once.
//
// It returns an error if it can't start: another daemon runs with this state directory, socket or
// site name, or has served the site since this state directory did, or the directory was copied or
// moved here (see [presence.TakeOver]). If the database is down, Run starts and refuses pushes until
// the database is back.
func (d *Daemon) Run(ctx context.Context) (err error) {
	c := d.config.Load()
	if site, _, _ := strings.Cut(d.db.Owner(), "/"); site != c.Site {
		return fmt.Errorf("the database was opened for site %q, not %q", site, c.Site)
	}
	if d.boot, err = pusher.BootID(); err != nil {
		return err
	}
	lock, err := presence.LockState(c.State)
	if err != nil {
		return err
	}
	defer lock.Close()
	if d.locked, err = projects.Uptime(); err != nil {
		return err
	}
	if err := presence.CheckLocation(c); err != nil {
		return err
	}
	d.openMoves(ctx, c)
	defer d.list.Close() // after all that may list something
	// Requests under way outlive ctx: a graceful stop waits for them.
	work, cancel := context.WithCancel(context.WithoutCancel(ctx))
	d.work = work
	defer d.tasks.Wait()
	defer cancel()
	d.tasks.Go(func() {
		d.list.Keep(work, d.awaitEarlierFollowers, func() { d.readers.Forget(d.guards.Lives) })
	})
	if err := errors.Join(d.guards.LoadGuards(c.State), d.guards.LoadCreations(c.State), d.lifecycle.LoadDeletions(c.State)); err != nil {
		return err
	}
	machine := boot.Repair{ID: d.boot, Patience: d.limits.lockFiles, DB: d.db, Site: host{d}, Logger: d.o.Logger, Digest: d.digest}
	booted, err := machine.Booted(c.State)
	if err != nil {
		return err
	}
	if booted {
		machine.RemoveLockFiles(ctx, c)
	}
	listener, err := socket.Bind(c.Socket)
	if err != nil {
		return err
	}
	made, err := os.Lstat(c.Socket)
	if err != nil {
		listener.Close()
		return err
	}
	defer socket.Unbind(listener, c.Socket, made)

	var metrics *exporter.Exporter
	if c.Metrics != "" {
		if metrics, err = exporter.New(c.Metrics, append([]prometheus.Collector{collector{d}}, d.o.Collectors...), d.o.Logger); err != nil {
			return fmt.Errorf("site.metrics: %w", err)
		}
	}

	d.upkeep, d.endUpkeep = context.WithCancel(work)
	connections := newConnections()
	d.tasks.Go(func() { d.accept(work, listener, connections) })
	defer listener.Close()

	if metrics != nil {
		d.tasks.Go(func() {
			if err := metrics.Serve(); err != nil {
				d.o.Logger.ErrorContext(ctx, "metrics are served no more: restart the daemon", "error", err)
			}
		})
		d.tasks.Go(func() { <-work.Done(); metrics.Close() })
		d.tasks.Go(func() { d.lags.Measure(work, d.config.Load, d.db, d.o.Logger, d.digest) })
		d.tasks.Go(func() { d.survey.keep(work, d) })
	}

	if err := d.witness.CompareAtStart(ctx, c); err != nil {
		return err
	}
	if d.o.Journal != nil {
		d.tasks.Go(func() { d.witness.KeepComparing(work) })
		d.tasks.Go(func() { d.witness.KeepJournal(work) })
	}
	if err := d.presence.Begin(ctx, c); err != nil {
		return err
	}
	d.refreshProjects(ctx)
	err = d.reconcile(ctx)
	close(d.started)
	d.tasks.Go(func() { d.keepProjects(work) })
	d.tasks.Go(func() { d.presence.Keep(work, c) })
	d.tasks.Go(func() { d.storage.DropAbandoned(work) })
	d.tasks.Go(func() { d.maintainer.RunLeftLocks(work) })
	d.tasks.Go(func() { d.follower.Run(work) })
	d.tasks.Go(func() { d.maintainer.Run(d.upkeep) })
	d.tasks.Go(func() { d.lifecycle.RunClones(d.upkeep) })
	d.tasks.Go(func() { d.lifecycle.RunRemovals(d.upkeep) })
	d.tasks.Go(func() { d.lifecycle.RunVanished(d.upkeep) })
	d.tasks.Go(func() { d.lifecycle.RunAbandoned(d.upkeep) })
	d.tasks.Go(func() {
		d.presence.KeepTelling(d.upkeep, d.config.Load, d.about, func(err error) {
			d.logFailure(d.upkeep, "what this site says about itself could not be written", err)
		})
	})
	d.tasks.Go(func() { d.gerrit.Run(d.upkeep) })
	d.tasks.Go(func() { d.hooks.Run(d.upkeep) })
	d.tasks.Go(func() { d.finishHooks(d.upkeep) })
	d.tasks.Go(func() { d.reconcileLoop(work, err) })
	if booted {
		d.tasks.Go(func() { machine.CatchUp(work, c) })
	}
	systemd.Ready()
	d.o.Logger.InfoContext(ctx, "serving", "version", d.o.Version, "presence", d.presence.Lost() == nil)

	<-ctx.Done()
	d.stop(connections, d.config.Load().StopTimeout)
	listener.Close()
	cancel()
	d.tasks.Wait()
	return nil
}

// stop waits until the announced moves have ended.
func (d *Daemon) stop(connections connections, limit time.Duration) {
	d.stopping.Store(true)
	d.endUpkeep()
	systemd.Stopping()
	left := func() int { return d.pushes.pending() + d.guards.Open() }
	d.o.Logger.Info("stopping", "pushes", left())
	deadline := time.NewTimer(limit)
	defer deadline.Stop()
	poll := time.NewTicker(20 * time.Millisecond)
	defer poll.Stop()
	for {
		left := left()
		if d.pushes.pending()+d.guards.Pending() == 0 && connections.idle() && d.reconcileDone.Load() == d.reconcileRequested.Load() {
			if left > 0 {
				d.stoppedWith(left) // of guards without a session: they can't report
				return
			}
			d.presence.End()
			d.witness.Leave()
			return
		}
		select {
		case <-poll.C:
		case <-deadline.C:
			d.stoppedWith(left)
			return
		}
	}
}

// stoppedWith is called when the daemon stops with pushes under way. The presence is not released: only a daemon with the same
// disk may find out what became of them.
func (d *Daemon) stoppedWith(pushes int) {
	d.o.Logger.Warn("stopped with pushes under way: the next start resolves them", "pushes", pushes)
}

// Reload makes d use another configuration from now on. If it changes a key that counts only at the
// start, Reload returns an error and d keeps the old one.
func (d *Daemon) Reload(c *config.Config) error {
	old := d.config.Load()
	for _, k := range []struct{ key, old, new string }{
		{"name", old.Site, c.Site}, {"database", old.Database, c.Database}, {"databaseFile", old.DatabaseFile, c.DatabaseFile},
		{"socket", old.Socket, c.Socket}, {"state", old.State, c.State}, {"hooks", old.Hooks, c.Hooks}, {"metrics", old.Metrics, c.Metrics},
	} {
		if k.old != k.new {
			return fmt.Errorf("site.%s can't change while the daemon runs: restart it", k.key)
		}
	}
	d.config.Store(c)
	d.requestReconcile()
	d.gerrit.Look(context.Background())
	d.o.Logger.Info("configuration reloaded")
	return nil
}

// NotifyReloading says that the configuration is being read, until the
// function it returns is called.
func NotifyReloading() (done func()) { return systemd.Reloading() }

// requestReconcile makes the reconcile loop run soon.
func (d *Daemon) requestReconcile() {
	d.reconcileRequested.Add(1)
	select {
	case d.reconcileNow <- struct{}{}:
	default:
	}
}

// digest returns what stands for a ref in logs.
func (d *Daemon) digest(project, ref string) string {
	return refdb.Digest(d.o.DigestKey, project, ref)
}

// counters are the counters of a Status.
type counters struct {
	prepared, refused, updated, dropped, alarms, deaths, heeded, failures atomic.Uint64
	reconciled                                                            atomic.Uint64
	refusedRefs                                                           atomic.Uint64 // for metrics only
}

func (c *counters) read() client.Counters {
	return client.Counters{
		Prepared: c.prepared.Load(), Refused: c.refused.Load(), Updated: c.updated.Load(), Dropped: c.dropped.Load(),
		Alarms: c.alarms.Load(), Deaths: c.deaths.Load(), Heeded: c.heeded.Load(), Failures: c.failures.Load(),
		Reconciled: c.reconciled.Load(),
	}
}

// health is the outcome of the latest request to the database.
type health struct {
	mu    sync.Mutex
	err   error
	since time.Time // when the requests began to fail, zero if the last one did not
}

// recordHealth records how a request to the database ended. A refusal by the database is a success.
func (d *Daemon) recordHealth(err error) {
	switch {
	case errors.Is(err, refdb.ErrLocked), errors.Is(err, refdb.ErrMismatch), errors.Is(err, refdb.ErrNameConflict), errors.Is(err, refdb.ErrLockLost),
		errors.Is(err, refdb.ErrInvalid), errors.Is(err, refdb.ErrTooMany):
		err = nil
	}
	if err != nil {
		d.counters.failures.Add(1)
	}
	d.health.mu.Lock()
	defer d.health.mu.Unlock()
	d.health.err = err
	if err == nil {
		d.health.since = time.Time{}
	} else if d.health.since.IsZero() {
		d.health.since = time.Now()
	}
}

// failingFor returns for how long all requests have failed, 0 if the last one did not.
func (h *health) failingFor() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.since.IsZero() {
		return 0
	}
	return time.Since(h.since)
}

func (h *health) last() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.err
}
