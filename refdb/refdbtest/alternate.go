package refdbtest

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
)

// Alternating has every driver on a database be two instances that take turns:
// each call goes to the other one than the call before. A driver that keeps
// something between two calls, such as a queue or a lock that it remembers,
// fails rows then that it passes alone.
//
// Races between processes are no part of that: they are repeated a quarter as often.
func Alternating(open func(testing.TB) Database) func(testing.TB) Database {
	return func(tb testing.TB) Database { return alternating{open(tb)} }
}

type alternating struct{ Database }

func (d alternating) Rounds() int       { return roundsOf(d.Database) }
func (d alternating) FutureTimes() bool { return futureTimesOf(d.Database) }

func (d alternating) Open(tb testing.TB) refdb.Driver {
	tb.Helper()
	p := &pair{drivers: [2]refdb.Driver{d.Database.Open(tb), d.Database.Open(tb)}}
	_, notifies := p.drivers[0].(refdb.Notifier)
	_, diagnoses := p.drivers[0].(refdb.Diagnoser)
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

var _ refdb.Driver = (*pair)(nil)

// A pair is two instances of a driver on one database.
type pair struct {
	drivers [2]refdb.Driver
	calls   atomic.Uint32
}

// turn returns the instance that the next call goes to.
func (p *pair) turn() refdb.Driver { return p.drivers[p.calls.Add(1)%2] }

// Close closes both.
func (p *pair) Close() error { return errors.Join(p.drivers[0].Close(), p.drivers[1].Close()) }

func (p *pair) Get(ctx context.Context, project string, refs []string) ([]refdb.Ref, error) {
	return p.turn().Get(ctx, project, refs)
}

func (p *pair) List(ctx context.Context, q refdb.RefQuery) (refdb.RefPage, error) {
	return p.turn().List(ctx, q)
}

func (p *pair) States(ctx context.Context, project string, refs []string) ([]refdb.State, error) {
	return p.turn().States(ctx, project, refs)
}

func (p *pair) Update(ctx context.Context, r refdb.UpdateRequest) error {
	return p.turn().Update(ctx, r)
}

func (p *pair) Remove(ctx context.Context, r refdb.RemoveRequest) (int, error) {
	return p.turn().Remove(ctx, r)
}

func (p *pair) PurgeTombstones(ctx context.Context, r refdb.TombstoneRequest) (int, error) {
	return p.turn().PurgeTombstones(ctx, r)
}

func (p *pair) Acquire(ctx context.Context, r refdb.AcquireRequest) (refdb.Acquired, error) {
	return p.turn().Acquire(ctx, r)
}

func (p *pair) Beat(ctx context.Context, locks []refdb.LockID) ([]refdb.BeatResult, error) {
	return p.turn().Beat(ctx, locks)
}

func (p *pair) Release(ctx context.Context, r refdb.ReleaseRequest) (refdb.Released, error) {
	return p.turn().Release(ctx, r)
}

func (p *pair) Purge(ctx context.Context, locks []refdb.StandingLock) ([]bool, error) {
	return p.turn().Purge(ctx, locks)
}

func (p *pair) Abandon(ctx context.Context, r refdb.AbandonRequest) error {
	return p.turn().Abandon(ctx, r)
}

func (p *pair) Locks(ctx context.Context, q refdb.LockQuery) (refdb.LockPage, error) {
	return p.turn().Locks(ctx, q)
}

func (p *pair) Prepare(ctx context.Context, r refdb.PrepareRequest) (refdb.Prepared, error) {
	return p.turn().Prepare(ctx, r)
}

func (p *pair) Finish(ctx context.Context, r refdb.FinishRequest) error {
	return p.turn().Finish(ctx, r)
}

func (p *pair) Revoke(ctx context.Context, r refdb.PrepareRequest) error {
	return p.turn().Revoke(ctx, r)
}

func (p *pair) Resolve(ctx context.Context, r refdb.ResolveRequest) ([]bool, error) {
	return p.turn().Resolve(ctx, r)
}

func (p *pair) Forget(ctx context.Context, intents []refdb.LockID) error {
	return p.turn().Forget(ctx, intents)
}

func (p *pair) Intents(ctx context.Context, q refdb.IntentQuery) (refdb.IntentPage, error) {
	return p.turn().Intents(ctx, q)
}

func (p *pair) Now(ctx context.Context) (time.Time, error) { return p.turn().Now(ctx) }

// A pairNotifier is what a pair can do beside if its drivers notify.
type pairNotifier struct{ instances *pair }

func (n pairNotifier) Listen(ctx context.Context, channel string, started func(), wake func(refdb.Wakeup)) error {
	return n.instances.turn().(refdb.Notifier).Listen(ctx, channel, started, wake)
}

// A pairDiagnoser is the same for drivers that diagnose.
type pairDiagnoser struct{ instances *pair }

func (d pairDiagnoser) Diagnose(ctx context.Context) ([]refdb.Diagnosis, error) {
	return d.instances.turn().(refdb.Diagnoser).Diagnose(ctx)
}
