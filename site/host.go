package site

import (
	"context"
	"time"

	"github.com/globalrefdb/globalrefdb/internal/gitrepo"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/site/catchup"
	"github.com/globalrefdb/globalrefdb/site/claims"
	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/intent"
	"github.com/globalrefdb/globalrefdb/site/refusal"
	"github.com/globalrefdb/globalrefdb/site/wire"
)

// A host is the daemon as the packages see it that work for it: each names what it asks for in an interface of its own.
type host struct{ *Daemon }

// Config returns the configuration as it is now.
func (d host) Config() *config.Config { return d.config.Load() }

// AwaitServing waits until the daemon can decide about pushes, at most until ctx ends.
func (d host) AwaitServing(ctx context.Context) error { return d.awaitServing(ctx) }

// MayAct returns an error unless what the database says may be acted on.
func (d host) MayAct(ctx context.Context) error { return d.witness.MayAct(ctx) }

// Stopping reports whether the daemon begins to stop.
func (d host) Stopping() bool { return d.stopping.Load() }

// Locked is how long the machine was up when this became the only daemon of its site.
func (d host) Locked() time.Duration { return d.locked }

// Unshared reports whether a guard may move refs in a repository that nothing keeps from being pruned.
func (d host) Unshared(path string) bool { return d.guards.UnsharedIn(path) }

// Receive unpacks all packs that the database has of a project and the repository here lacks.
func (d host) Receive(ctx context.Context, project string) error {
	return d.follower.Receive(ctx, project)
}

// Pruned is called when the repository of a project was pruned.
func (d host) Pruned(project string) { d.follower.Pruned(project) }

// OpenIn reports whether a guard's transaction in the repository at path may still move refs, or is not settled.
func (d host) OpenIn(path string) bool { return d.guards.OpenIn(path) }

// BeingCreated reports whether a guard makes the repository of a project here.
func (d host) BeingCreated(project string) bool { return d.guards.IsBeingCreated(project) }

// Alarm counts an alarm.
func (d host) Alarm() { d.counters.alarms.Add(1) }

// AwaitInheritance waits until it is known what earlier daemons have left, at most until ctx ends.
func (d host) AwaitInheritance(ctx context.Context) error { return d.awaitInheritance(ctx) }

// Share keeps the repository at path from being pruned until release is called.
func (d host) Share(ctx context.Context, path string) (release func(), err error) {
	return d.share(ctx, path)
}

// RecordHealth records how a request to the database ended.
func (d host) RecordHealth(err error) { d.recordHealth(err) }

// Go lets f run until the daemon has ended its work, which waits for it.
func (d host) Go(f func(work context.Context)) { d.tasks.Go(func() { f(d.work) }) }

// RequestReconcile makes the daemon reconcile soon.
func (d host) RequestReconcile() { d.requestReconcile() }

// Lost returns why the daemon does not hold its site's name; nil if it does.
func (d host) Lost() error { return d.presence.Lost() }

// MayMove reports whether the process that announced a move may still make it.
func (d host) MayMove(k refdb.Known) bool { return d.mayMove(k) }

// Boot names the boot of the machine.
func (d host) Boot() string { return d.boot }

// Work ends when the daemon ends its work.
func (d host) Work() context.Context { return d.work }

// Started is closed when pushes can be decided about.
func (d host) Started() <-chan struct{} { return d.started }

// Health returns how the latest request to the database ended.
func (d host) Health() error { return d.health.last() }

// AwaitEarlierFollowers returns an error while a git follows the database at path that an earlier daemon has let through.
func (d host) AwaitEarlierFollowers(ctx context.Context, path string) error {
	return d.awaitEarlierFollowers(ctx, path)
}

// Mover moves refs of a repository to what the database holds.
func (d host) Mover(r config.Repository, repo *gitrepo.Repo) catchup.Mover {
	return &followedMoves{d.Daemon, r, repo}
}

// GuardedLines returns the lines of a transaction whose refs are guarded, and the configuration with the project's rules.
func (d host) GuardedLines(ctx context.Context, c *config.Config, r config.Repository, body []byte) (*config.Config, []wire.Line, error) {
	return d.guardedLines(ctx, c, r, body)
}

// UnderWay returns the refusal of moves if a push over git of one of their refs is not settled.
func (d host) UnderWay(project string, moves []refdb.Update) error {
	for _, p := range d.pushes.all() {
		for _, u := range moves {
			if m := p.find(project, u.Ref); m != nil {
				return claims.UnderWay(u.Ref, m.Since)
			}
		}
	}
	return nil
}

// RetryLocked repeats a request while refs are locked.
func (d host) RetryLocked(ctx context.Context, c *config.Config, request func(context.Context) error) error {
	return d.retryLocked(ctx, c, request)
}

// LookAgain lets the follower look at the refs of moves that were refused because this site is behind.
func (d host) LookAgain(r config.Repository, moves []refdb.Update) { d.lookAgain(r, moves) }

// LetThrough records lines of a transaction that err would have refused.
func (d host) LetThrough(project, by string, lines []wire.Line, err error) {
	d.noteLetThrough(project, by, lines, err)
}

// Resolve ends intents by what the repository has, and returns those that have ended.
func (d host) Resolve(ctx context.Context, moves []*intent.Move) (ended []*intent.Move, err error) {
	return d.resolve(ctx, moves)
}

// StillPending returns the moves that the database still has as pending intents.
func (d host) StillPending(ctx context.Context, moves []*intent.Move) ([]*intent.Move, error) {
	return d.stillPending(ctx, moves)
}

// ClearAlarms removes the alarms about moves that have ended.
func (d host) ClearAlarms(moves []*intent.Move) { d.clearAlarms(moves) }

// LogRefusal logs an error that has refused something.
func (d host) LogRefusal(ctx context.Context, err error) { d.logRefusal(ctx, err) }

// A count counts what guards do.
type count struct{ *Daemon }

// Accepted counts a transaction that was let through.
func (d count) Accepted() { d.counters.prepared.Add(1) }

// Refused counts a transaction that was refused, and its refs.
func (d count) Refused(refs int) {
	d.counters.refused.Add(1)
	d.counters.refusedRefs.Add(uint64(refs))
}

// Reason counts an answer that refused, by its reason.
func (d count) Reason(why refusal.Reason) { d.metrics.refusals.WithLabelValues(string(why)).Inc() }

// Answered notes how long a guard waited for the answer to an announcement.
func (d count) Answered(took time.Duration) { d.metrics.announcements.Observe(took.Seconds()) }

// Died counts a guard that has died and left something to settle.
func (d count) Died() { d.counters.deaths.Add(1) }

// Alarm counts an alarm.
func (d count) Alarm() { d.counters.alarms.Add(1) }
