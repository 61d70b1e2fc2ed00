package site

import (
	"context"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/globalrefdb/globalrefdb/site/afterboot"
	"github.com/globalrefdb/globalrefdb/site/client"
	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/internal/background"
	"github.com/globalrefdb/globalrefdb/site/internal/exporter"
	"github.com/globalrefdb/globalrefdb/site/moves"
	"github.com/globalrefdb/globalrefdb/site/wire"
)

// A stage is a point in the start of a daemon.
type stage int

const (
	onceBound    stage = iota // the state directory is locked, and the socket bound
	onceCompared              // the database's server was compared with the journal
	onceServing               // the site's name was taken, and the first reconciliation tried, or the database is down
)

// A lifetime says when a task ends.
type lifetime int

const (
	untilStop lifetime = iota // as soon as the daemon begins to stop
	untilEnd                  // once the pushes in progress have ended, or StopTimeout is over
)

// A task is a row of the table of background tasks.
type task struct {
	name  string
	from  stage
	until lifetime
	run   func(ctx context.Context, failed func(error))
}

// launch holds what the tasks of a running daemon need beside the daemon.
type launch struct {
	config      *config.Config
	listener    *net.UnixListener
	connections connections
	metrics     *exporter.Exporter // nil if the daemon serves none
	boot        *afterboot.Repair  // nil unless the machine was booted
	reconciled  error              // the result of the first reconciliation
}

// table returns the background tasks of the daemon.
func (d *Daemon) table(l *launch) []task {
	quietly := func(run func(context.Context)) func(context.Context, func(error)) {
		return func(ctx context.Context, _ func(error)) { run(ctx) }
	}
	all := []task{
		{"list-of-moves", onceBound, untilEnd, quietly(d.keepMoves)},
		{"connections", onceBound, untilEnd, func(ctx context.Context, failed func(error)) { d.accept(ctx, l.listener, l.connections, failed) }},
		{"projects", onceServing, untilEnd, d.keepProjects},
		{"presence", onceServing, untilEnd, quietly(func(ctx context.Context) { d.state.Presence.Keep(ctx, l.config) })},
		{"unused-packs", onceServing, untilEnd, quietly(d.storage.DropAbandoned)},
		{"left-locks", onceServing, untilEnd, quietly(d.maintainer.RunLeftLocks)},
		{"follower", onceServing, untilEnd, quietly(d.follower.Run)},
		{"maintenance", onceServing, untilStop, quietly(d.maintainer.Run)},
		{"clones", onceServing, untilStop, quietly(d.lifecycle.RunClones)},
		{"removals", onceServing, untilStop, quietly(d.lifecycle.RunRemovals)},
		{"vanished-repositories", onceServing, untilStop, quietly(d.lifecycle.RunVanished)},
		{"abandoned-creations", onceServing, untilStop, quietly(d.lifecycle.RunAbandoned)},
		{"site-record", onceServing, untilStop, d.keepTelling},
		{"gerrit", onceServing, untilStop, quietly(d.gerrit.Run)},
		{"hooks", onceServing, untilStop, quietly(d.hookdir.Run)},
		{"push-mirrors", onceServing, untilStop, quietly(d.mirrors.Run)},
		{"hook-migration", onceServing, untilStop, quietly(d.finishHooks)},
		{"reconciliation", onceServing, untilEnd, func(ctx context.Context, failed func(error)) { d.reconcileLoop(ctx, l.reconciled, failed) }},
	}
	if l.metrics != nil {
		all = append(all,
			task{"metrics", onceBound, untilEnd, func(ctx context.Context, failed func(error)) { d.serveMetrics(ctx, l.metrics, failed) }},
			task{"lag", onceBound, untilEnd, quietly(func(ctx context.Context) {
				d.lags.Measure(ctx, d.state.Config, d.db, d.o.Logger, d.state.Digest)
			})},
			task{"survey", onceBound, untilEnd, quietly(func(ctx context.Context) { d.survey.keep(ctx, d) })},
		)
	}
	if d.o.Journal != nil {
		all = append(all,
			task{"witness", onceCompared, untilEnd, quietly(d.witness.KeepComparing)},
			task{"journal", onceCompared, untilEnd, quietly(d.witness.KeepJournal)},
			task{"testimonies", onceCompared, untilEnd, quietly(d.witness.KeepTestifying)},
		)
	}
	if l.boot != nil {
		all = append(all, task{"after-boot", onceServing, untilEnd, quietly(func(ctx context.Context) { l.boot.CatchUp(ctx, l.config) })})
	}
	return all
}

// begin starts the tasks that begin at a stage. Run waits for them.
func (d *Daemon) begin(at stage, table []task) {
	lifetimes := map[lifetime]context.Context{untilStop: d.state.Upkeep, untilEnd: d.state.Work}
	for _, t := range table {
		if t.from == at {
			d.state.Tasks.Go(func() { d.background.Run(lifetimes[t.until], background.Task{Name: t.name, Run: t.run}) })
		}
	}
}

// taskStatus describes the tasks for the status, in the order of their names.
func (d *Daemon) taskStatus() []client.Task {
	all := []client.Task{}
	for _, s := range d.background.States() {
		t := client.Task{Name: s.Name, State: client.TaskRunning, Age: time.Since(s.Since).Seconds()}
		if !s.Running {
			t.State = client.TaskEnded
		}
		if s.Err != nil {
			t.Error = wire.OneLine(s.Err.Error())
		}
		all = append(all, t)
	}
	slices.SortFunc(all, func(a, b client.Task) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// keepMoves keeps the list of moves.
func (d *Daemon) keepMoves(ctx context.Context) {
	earlier := moves.Earlier{Await: d.mover.AwaitEarlier, Ended: d.removeLeft}
	d.list.Keep(ctx, earlier, func() { d.readers.Forget(d.guards.Lives) })
}

func (d *Daemon) serveMetrics(ctx context.Context, metrics *exporter.Exporter, failed func(error)) {
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		<-ctx.Done()
		metrics.Close()
	}()
	if err := metrics.Serve(); err != nil {
		failed(err)
		d.o.Logger.ErrorContext(ctx, "metrics are no longer served: restart the daemon", "error", err)
	}
	<-closed
}

// keepTelling keeps the database's record of what this site says about itself.
func (d *Daemon) keepTelling(ctx context.Context, failed func(error)) {
	d.state.Presence.KeepTelling(ctx, d.state.Config, d.about, func(err error) {
		failed(err)
		d.logFailure(ctx, "this site's own record could not be written", err)
	})
}
