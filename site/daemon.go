// Package site guards the Git repositories of one site with the global ref database: a daemon that
// the repositories' hooks ask, and the commands beside it.
//
// Before git moves refs, the daemon announces the moves to the database as intents
// (package refdb/intents). Afterwards it ends the intents by what the repository then has, never by
// what the hook says. A push whose process has ended is ended the same way, by this daemon or the
// next.
package site

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/globalrefdb/globalrefdb/internal/socket"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/site/afterboot"
	"github.com/globalrefdb/globalrefdb/site/claims"
	"github.com/globalrefdb/globalrefdb/site/compare"
	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/follow"
	"github.com/globalrefdb/globalrefdb/site/gerrit"
	"github.com/globalrefdb/globalrefdb/site/hookdir"
	"github.com/globalrefdb/globalrefdb/site/hooks"
	"github.com/globalrefdb/globalrefdb/site/internal/background"
	"github.com/globalrefdb/globalrefdb/site/internal/exporter"
	"github.com/globalrefdb/globalrefdb/site/internal/systemd"
	"github.com/globalrefdb/globalrefdb/site/journal"
	"github.com/globalrefdb/globalrefdb/site/lifecycle"
	"github.com/globalrefdb/globalrefdb/site/maintainer"
	"github.com/globalrefdb/globalrefdb/site/maintenance"
	"github.com/globalrefdb/globalrefdb/site/modes"
	"github.com/globalrefdb/globalrefdb/site/mover"
	"github.com/globalrefdb/globalrefdb/site/moves"
	"github.com/globalrefdb/globalrefdb/site/moving"
	"github.com/globalrefdb/globalrefdb/site/objects"
	"github.com/globalrefdb/globalrefdb/site/policy"
	"github.com/globalrefdb/globalrefdb/site/presence"
	"github.com/globalrefdb/globalrefdb/site/projects"
	"github.com/globalrefdb/globalrefdb/site/pusher"
	"github.com/globalrefdb/globalrefdb/site/pushmirror"
	"github.com/globalrefdb/globalrefdb/site/readers"
	"github.com/globalrefdb/globalrefdb/site/serving"
	"github.com/globalrefdb/globalrefdb/site/sessions"
	"github.com/globalrefdb/globalrefdb/site/wire"
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
	// Schema is the newest version of the database's schema that the program knows; 0 if it does not say.
	Schema int
	// Journal is the one that the database was opened with; nil if none: then this site is no
	// witness.
	Journal *journal.Journal
	// Hook is the path of the hook's program, which becomes the site's hooks; "" if it is not
	// there.
	Hook string
	// Collectors are exported beside the daemon's own metrics, if site.metrics says where.
	Collectors []prometheus.Collector
}

// A Daemon serves the hooks of one site's repositories.
type Daemon struct {
	db     *refdb.DB
	o      Options
	state  *serving.State
	began  time.Time
	limits limits

	// inherited are the intents of earlier daemons that a push may rely on; only used by reconcile.
	inherited moving.Inherited

	projects projects.Cache
	logged   modes.Logged
	modes    modes.Keeper
	policy   *policy.Policy
	hooks    hooks.Hooks
	claims   claims.Claims
	moving   moving.Coordinator
	guards   sessions.Guards
	mover    mover.Mover
	lags     compare.Lags
	survey   survey
	moved    moves.Marks
	list     moves.List
	readers  readers.Readers
	gerrit   gerrit.Watch
	hookdir  *hookdir.Keeper

	follower   *follow.Follower
	pruning    maintenance.Pruning
	maintainer *maintainer.Maintainer
	endUpkeep  context.CancelFunc
	lifecycle  *lifecycle.Lifecycle
	storage    objects.Storage
	witness    witness.Witness
	mirrors    pushmirror.Mirrors
	background background.Tasks

	// removals are lock-file removals in progress, by resolved intent; only used by reconcile.
	removals map[moving.Key]<-chan struct{}
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
		db: db, o: o, state: serving.New(c, presence.New(db, o.Logger)), began: time.Now(), logged: modes.NewLogged(), moved: moves.NewMarks(),
		removals: map[moving.Key]<-chan struct{}{}, limits: defaultLimits(),
	}
	d.state.DigestKey = o.DigestKey
	d.witness = witness.Witness{DB: db, Journal: o.Journal, Moves: &d.list, State: d.state, Logger: o.Logger}
	d.policy = policy.New(policy.Policy{State: d.state, DB: db, Projects: &d.projects, Logged: &d.logged, Logger: o.Logger})
	d.follower = follow.New(db, follow.Options{
		State: d.state, Projects: &d.projects, Policy: d.policy, Witness: &d.witness, Pruning: &d.pruning, Claims: &d.claims, Mover: &d.mover,
		Moves: &d.list, Marks: &d.moved, Dir: c.State, Name: presence.FollowerName(c.Site), Logger: o.Logger, Digest: d.state.Digest, Parallel: max(2, runtime.NumCPU()),
		Appeared: func(r config.Repository) { d.list.Repository(r.Path) }, Killed: d.removeLeft,
		Changed: func(project string, refs ...string) { d.moving.Wake(project, refs...) },
	})
	d.gerrit = gerrit.Watch{
		Path: func() string { return d.state.Config().Gerrit }, HasSession: d.guards.HasSession,
		Alarm: func() { d.state.Counts.Alarms.Add(1) }, Logger: o.Logger,
	}
	d.hookdir = d.newHooks(c)
	d.readers = readers.Readers{
		List: &d.list, Started: d.state.Started(), Logger: o.Logger, Reset: d.state.Counts.MovesResets.Inc,
	}
	d.storage = objects.Storage{DB: db, Projects: &d.projects, State: d.state, Logger: o.Logger}
	d.moving = moving.Coordinator{Deps: moving.Deps{
		State: d.state, DB: db, Projects: &d.projects, Logged: &d.logged, Claims: &d.claims, Pruning: &d.pruning, Storage: &d.storage, List: &d.list,
		Mover: &d.mover, Logger: o.Logger, Made: d.follower.Made,
	}}
	d.guards = sessions.Guards{Deps: sessions.Deps{
		State: d.state, DB: db, Projects: &d.projects, Witness: &d.witness, Follower: d.follower, Claims: &d.claims, Moving: &d.moving, Policy: d.policy, Pruning: &d.pruning,
		Storage: &d.storage, Moves: &d.list, Marks: &d.moved, Logged: &d.logged,
		NoteDeletion:  func(m wire.Deleted) error { return d.lifecycle.NoteDeletion(m) },
		RemoveDeleted: func(work context.Context) { d.lifecycle.RemoveDeleted(work) },
		Logger:        o.Logger, Hook: o.Hook,
	}}
	d.hooks = hooks.Hooks{Deps: hooks.Deps{
		State: d.state, DB: db, Projects: &d.projects, Policy: d.policy, Moving: &d.moving, Claims: &d.claims, Follower: d.follower,
		Guards: &d.guards, Pruning: &d.pruning, Storage: &d.storage, List: &d.list, Marks: &d.moved, Logged: &d.logged, Logger: o.Logger,
		Limits: hooks.DefaultLimits(),
	}}
	d.modes = modes.Keeper{DB: db, Projects: &d.projects, Logged: &d.logged, State: d.state, Unsettled: d.unsettledIn}
	d.maintainer = maintainer.New(maintainer.Deps{
		State: d.state, DB: db, Projects: &d.projects, Witness: &d.witness, Pruning: &d.pruning, Follower: d.follower, Guards: &d.guards,
		Logger: o.Logger,
	})
	d.lifecycle = lifecycle.New(&lifecycle.Lifecycle{
		State: d.state, DB: db, Projects: &d.projects, Witness: &d.witness, Follower: d.follower, Guards: &d.guards, Maintainer: d.maintainer,
		Pruning: &d.pruning, Moves: &d.list, Logger: o.Logger, Hook: o.Hook,
	})
	d.mirrors = pushmirror.Mirrors{
		State: d.state, DB: db, Projects: &d.projects, Logger: o.Logger, Copy: d.follower.Copy, MayAct: d.witness.MayAct,
	}
	if o.Journal != nil {
		o.Journal.SettleWith(func(ctx context.Context, lost []driver.Known) (settled []driver.Known, open bool, err error) {
			return d.witness.SettleLost(ctx, lost, d.mayMove)
		})
	}
	return d
}

// Run serves until ctx ends. Then it leaves new pushes to the next daemon, waits for those that are
// prepared, for at most StopTimeout, and returns nil. It may be called once.
//
// It returns an error if it can't start: another daemon runs with this state directory, socket or
// site name, or has served the site since this state directory did, or the directory was copied or
// moved here (see [presence.TakeOver]). If the database is down, Run starts and refuses pushes
// until the database is back.
func (d *Daemon) Run(ctx context.Context) (err error) {
	c := d.state.Config()
	if site, _, _ := strings.Cut(d.db.Owner(), "/"); site != c.Site {
		return fmt.Errorf("the database was opened for site %q, not %q", site, c.Site)
	}
	if d.state.Boot, err = pusher.BootID(); err != nil {
		return err
	}
	lock, err := presence.LockState(c.State)
	if err != nil {
		return err
	}
	defer lock.Close()
	if d.state.Locked, err = projects.Uptime(); err != nil {
		return err
	}
	if err := presence.CheckLocation(c); err != nil {
		return err
	}
	d.openMoves(ctx, c)
	defer d.list.Close() // after all that may list something
	// Requests under way outlive ctx: a graceful stop waits for them.
	work, cancel := context.WithCancel(context.WithoutCancel(ctx))
	d.state.Work = work
	defer d.state.Tasks.Wait()
	defer cancel()
	if err := errors.Join(d.guards.LoadGuards(c.State), d.guards.LoadCreations(c.State), d.lifecycle.LoadDeletions(c.State)); err != nil {
		return err
	}
	machine := afterboot.Repair{Patience: d.limits.lockFiles, State: d.state, DB: d.db, Pruning: &d.pruning, Follower: d.follower, Logger: d.o.Logger}
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

	l := &launch{config: c, listener: listener, connections: newConnections()}
	if booted {
		l.boot = &machine
	}
	if c.Metrics != "" {
		if l.metrics, err = exporter.New(c.Metrics, append([]prometheus.Collector{collector{d}}, d.o.Collectors...), d.ready, d.o.Logger); err != nil {
			return fmt.Errorf("site.metrics: %w", err)
		}
	}

	d.state.Upkeep, d.endUpkeep = context.WithCancel(work)
	table := d.table(l)
	d.begin(onceBound, table)
	defer listener.Close()

	if err := d.witness.CompareAtStart(ctx, c); err != nil {
		return err
	}
	d.begin(onceCompared, table)
	if err := d.state.Presence.Begin(ctx, c); err != nil {
		return err
	}
	d.policy.Refresh(ctx)
	l.reconciled = d.reconcile(ctx)
	d.state.Start()
	d.begin(onceServing, table)
	systemd.Ready()
	d.o.Logger.InfoContext(ctx, "serving", "version", d.o.Version, "presence", d.state.Presence.Lost() == nil)

	<-ctx.Done()
	d.stop(l.connections, d.state.Config().StopTimeout)
	listener.Close()
	cancel()
	d.state.Tasks.Wait()
	return nil
}

// stop waits until the announced moves have ended.
func (d *Daemon) stop(connections connections, limit time.Duration) {
	d.state.Stop()
	d.endUpkeep()
	systemd.Stopping()
	left := func() int { return d.moving.Count() + d.guards.Open() }
	d.o.Logger.Info("stopping", "pushes", left())
	deadline, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	poll := time.NewTicker(20 * time.Millisecond)
	defer poll.Stop()
	await := func(ok func() bool) bool {
		for !ok() {
			select {
			case <-poll.C:
			case <-deadline.Done():
				return false
			}
		}
		return true
	}
	settled := func() bool {
		return d.moving.Count()+d.guards.Pending()+d.hooks.Admitted() == 0 && connections.idle() && !d.state.Reconcile.Outstanding()
	}
	await(settled)
	d.state.Finish()
	// Until then moves could be announced. Those of git's hooks are reported to the next daemon.
	if await(connections.idle) && settled() && left() == 0 {
		d.state.Presence.End()
		d.witness.Leave()
		return
	}
	d.stoppedWith(left()) // also of guards without a session: they can't report
}

// stoppedWith is called when the daemon stops while pushes are in progress. It does not release the
// site's name: only a daemon with the same disk may find out what became of the pushes.
func (d *Daemon) stoppedWith(pushes int) {
	d.o.Logger.Warn("stopped with pushes in progress: the next start resolves them", "pushes", pushes)
}

// Reload makes d use another configuration from now on. If it changes a key that counts only at the
// start, Reload returns an error and d keeps the old one.
func (d *Daemon) Reload(c *config.Config) error {
	old := d.state.Config()
	for _, k := range []struct{ key, old, new string }{
		{"name", old.Site, c.Site}, {"database", old.Database, c.Database}, {"databaseFile", old.DatabaseFile, c.DatabaseFile},
		{"socket", old.Socket, c.Socket}, {"state", old.State, c.State}, {"hooks", old.Hooks, c.Hooks}, {"metrics", old.Metrics, c.Metrics},
	} {
		if k.old != k.new {
			return fmt.Errorf("site.%s can't change while the daemon runs: restart it", k.key)
		}
	}
	d.state.SetConfig(c)
	d.state.Reconcile.Request()
	d.gerrit.Look(context.Background())
	d.o.Logger.Info("configuration reloaded")
	return nil
}

// NotifyReloading says that the configuration is being read, until the
// function it returns is called.
func NotifyReloading() (done func()) { return systemd.Reloading() }
