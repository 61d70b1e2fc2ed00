package suite

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
)

// Alternate returns a database on which each call goes to another instance of the driver than the
// call before: refdbtest.Alternating.
func Alternate(db Database) Database { return alternating{db} }

type alternating struct{ Database }

func (d alternating) Rounds() int { return roundsOf(d.Database) }

func (d alternating) Patience() time.Duration { return patienceOf(d.Database) }

func (d alternating) FutureTimes() bool { return futureTimesOf(d.Database) }

func (d alternating) Restart(tb testing.TB) {
	r, ok := d.Database.(restarter)
	if !ok {
		tb.Skip("the server of this database can't be made another one")
	}
	r.Restart(tb)
}

func (d alternating) Open(tb testing.TB) driver.Driver {
	tb.Helper()
	return newPair([2]driver.Driver{d.Database.Open(tb), d.Database.Open(tb)})
}

// turns returns the driver with turns of its own, if it is a pair: what else is called through
// the instances changes nothing about which of them serves the next call.
func turns(d driver.Driver) driver.Driver {
	if p, ok := d.(interface{ instances() [2]driver.Driver }); ok {
		return newPair(p.instances())
	}
	return d
}

func newPair(drivers [2]driver.Driver) driver.Driver {
	p := &pair{drivers: drivers}
	_, notifies := p.drivers[0].(driver.Notifier)
	_, diagnoses := p.drivers[0].(driver.Diagnoser)
	switch {
	case notifies && diagnoses:
		return struct {
			*pair
			pairNotifier
			pairDiagnoser
		}{p, pairNotifier{p}, pairDiagnoser{p}}
	case notifies:
		return struct {
			*pair
			pairNotifier
		}{p, pairNotifier{p}}
	case diagnoses:
		return struct {
			*pair
			pairDiagnoser
		}{p, pairDiagnoser{p}}
	default:
		return p
	}
}

// A pair is two instances of a driver on one database.
type pair struct {
	drivers [2]driver.Driver
	calls   atomic.Uint32
}

// instances must stay the only thing of that name among what Open embeds: else no type has the
// method.
func (p *pair) instances() [2]driver.Driver { return p.drivers }

// next returns the instance that the next call goes to.
func (p *pair) next() driver.Driver { return p.drivers[p.calls.Add(1)%2] }

// Close closes both instances.
func (p *pair) Close() error { return errors.Join(p.drivers[0].Close(), p.drivers[1].Close()) }

func (p *pair) Get(ctx context.Context, project string, refs []string) ([]driver.Ref, error) {
	return p.next().Get(ctx, project, refs)
}

func (p *pair) List(ctx context.Context, q driver.RefQuery) (driver.RefPage, error) {
	return p.next().List(ctx, q)
}

func (p *pair) Summaries(ctx context.Context, q driver.SummaryQuery) (driver.SummaryPage, error) {
	return p.next().Summaries(ctx, q)
}

func (p *pair) States(ctx context.Context, project string, refs []string) ([]driver.State, error) {
	return p.next().States(ctx, project, refs)
}

func (p *pair) Update(ctx context.Context, r driver.UpdateRequest) error {
	return p.next().Update(ctx, r)
}

func (p *pair) Remove(ctx context.Context, r driver.RemoveRequest) (int, error) {
	return p.next().Remove(ctx, r)
}

func (p *pair) PurgeTombstones(ctx context.Context, r driver.TombstoneRequest) (int, error) {
	return p.next().PurgeTombstones(ctx, r)
}

func (p *pair) Acquire(ctx context.Context, r driver.AcquireRequest) (driver.Acquired, error) {
	return p.next().Acquire(ctx, r)
}

func (p *pair) Beat(ctx context.Context, locks []driver.LockID) ([]driver.BeatResult, error) {
	return p.next().Beat(ctx, locks)
}

func (p *pair) Release(ctx context.Context, r driver.ReleaseRequest) (driver.Released, error) {
	return p.next().Release(ctx, r)
}

func (p *pair) Purge(ctx context.Context, locks []driver.StandingLock) ([]bool, error) {
	return p.next().Purge(ctx, locks)
}

func (p *pair) Abandon(ctx context.Context, r driver.AbandonRequest) error {
	return p.next().Abandon(ctx, r)
}

func (p *pair) Locks(ctx context.Context, q driver.LockQuery) (driver.LockPage, error) {
	return p.next().Locks(ctx, q)
}

func (p *pair) Prepare(ctx context.Context, r driver.PrepareRequest) (driver.Prepared, error) {
	return p.next().Prepare(ctx, r)
}

func (p *pair) Finish(ctx context.Context, r driver.FinishRequest) error {
	return p.next().Finish(ctx, r)
}

func (p *pair) Revoke(ctx context.Context, r driver.PrepareRequest) error {
	return p.next().Revoke(ctx, r)
}

func (p *pair) Resolve(ctx context.Context, r driver.ResolveRequest) ([]bool, error) {
	return p.next().Resolve(ctx, r)
}

func (p *pair) Forget(ctx context.Context, intents []driver.LockID) error {
	return p.next().Forget(ctx, intents)
}

func (p *pair) Intents(ctx context.Context, q driver.IntentQuery) (driver.IntentPage, error) {
	return p.next().Intents(ctx, q)
}

func (p *pair) Projects(ctx context.Context, q driver.ProjectQuery) ([]driver.Project, error) {
	return p.next().Projects(ctx, q)
}

func (p *pair) PutProject(ctx context.Context, r driver.ProjectRequest) (driver.Project, error) {
	return p.next().PutProject(ctx, r)
}

func (p *pair) Record(ctx context.Context, e driver.AuditEntry) (time.Time, error) {
	return p.next().Record(ctx, e)
}

func (p *pair) Conclude(ctx context.Context, e driver.AuditCursor, outcome string) (bool, error) {
	return p.next().Conclude(ctx, e, outcome)
}

func (p *pair) Audit(ctx context.Context, q driver.AuditQuery) (driver.AuditPage, error) {
	return p.next().Audit(ctx, q)
}

func (p *pair) HistoryState(ctx context.Context) (driver.HistoryState, error) {
	return p.next().HistoryState(ctx)
}

func (p *pair) Newest(ctx context.Context) (driver.Change, driver.HistoryState, error) {
	return p.next().Newest(ctx)
}

func (p *pair) Tip(ctx context.Context, project string) (driver.Tip, error) {
	return p.next().Tip(ctx, project)
}

func (p *pair) Changes(ctx context.Context, r driver.ChangesRequest) (driver.ChangesPage, error) {
	return p.next().Changes(ctx, r)
}

func (p *pair) Log(ctx context.Context, r driver.LogRequest) (driver.LogPage, error) {
	return p.next().Log(ctx, r)
}

func (p *pair) Past(ctx context.Context, r driver.PastRequest) (driver.PastPage, error) {
	return p.next().Past(ctx, r)
}

func (p *pair) PositionAt(ctx context.Context, t time.Time) (driver.Position, driver.HistoryState, error) {
	return p.next().PositionAt(ctx, t)
}

func (p *pair) Prune(ctx context.Context, r driver.PruneRequest) (driver.Pruned, error) {
	return p.next().Prune(ctx, r)
}

func (p *pair) Followers(ctx context.Context) ([]driver.Follower, error) {
	return p.next().Followers(ctx)
}

func (p *pair) PutFollower(ctx context.Context, f driver.Follower) error {
	return p.next().PutFollower(ctx, f)
}

func (p *pair) RemoveFollower(ctx context.Context, name string) (bool, error) {
	return p.next().RemoveFollower(ctx, name)
}

func (p *pair) Admission(ctx context.Context) (driver.Admission, error) {
	return p.next().Admission(ctx)
}

func (p *pair) Look(ctx context.Context, witness string, known []driver.Known) (driver.Looked, error) {
	return p.next().Look(ctx, witness, known)
}

func (p *pair) Report(ctx context.Context, r driver.Report) (driver.Admission, error) {
	return p.next().Report(ctx, r)
}

func (p *pair) LostChanges(ctx context.Context, q driver.LostQuery) (driver.LostPage, error) {
	return p.next().LostChanges(ctx, q)
}

func (p *pair) SetPolicy(ctx context.Context, policy driver.Policy) (driver.Admission, error) {
	return p.next().SetPolicy(ctx, policy)
}

func (p *pair) Recover(ctx context.Context, r driver.RecoverRequest) (driver.Recovered, error) {
	return p.next().Recover(ctx, r)
}

func (p *pair) Now(ctx context.Context) (time.Time, error) { return p.next().Now(ctx) }

// A pairNotifier makes a pair a [driver.Notifier], if its drivers are.
type pairNotifier struct{ both *pair }

func (n pairNotifier) Listen(ctx context.Context, channel string, started func(), wake func(driver.Wakeup)) error {
	return n.both.next().(driver.Notifier).Listen(ctx, channel, started, wake)
}

// A pairDiagnoser makes a pair a [driver.Diagnoser], if its drivers are.
type pairDiagnoser struct{ both *pair }

func (d pairDiagnoser) Diagnose(ctx context.Context) ([]driver.Diagnosis, error) {
	return d.both.next().(driver.Diagnoser).Diagnose(ctx)
}
