// Package refdbtest is the conformance suite that every database behind refdb
// passes. It is written against [refdb.Driver] and [refdb.DB] alone, and checks
// each promise and each method's contract. The files driver_*.go have the rows about a
// driver's methods, race_*.go those about two or more requests at once, db_*.go those
// about a DB on the driver.
//
// A new driver's test implements [Database], which makes an empty database with
// the driver's schema, opens drivers on it, and does what a driver must not
// offer: make a lock older, or write as Gerrit's plugin does. It runs the suite twice:
//
//	func TestConformance(t *testing.T) {
//		refdbtest.Run(t, newDatabase)
//	}
//
//	func TestConformanceAlternating(t *testing.T) {
//		refdbtest.Run(t, refdbtest.Alternating(newDatabase))
//	}
//
// In the second run the requests of a process alternate between two instances of
// the driver. A driver keeps nothing between two calls: those of one client may go
// through two processes, such as two servers behind a load balancer.
//
// Rows about a [refdb.Notifier] pass at once if the driver is none, or if its Listen
// returns errors.ErrUnsupported.
//
// The name of a row says what is expected of the driver:
//
//	go test -run 'TestConformance/Beat/another_token' ./refdb/mydb
//
// A row whose name starts with P1 to P13 shows that promise of docs/PROTOCOL.md.
// The suite's own test runs it against a driver in memory, and against variants of
// that with one bug each: each must fail the topic that the bug belongs to.
package refdbtest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
)

// A Database is a database of a test's own, migrated and empty. Its methods do
// what a driver must not offer; they end the test if they fail. All values are data:
// any name works.
type Database interface {
	// URL is the address that the driver's Open understands.
	URL() string
	// Open returns another driver on the database, as another process would
	// have it. It is closed when tb ends.
	Open(tb testing.TB) refdb.Driver
	// Age moves the heartbeat of a lock back by d; forward, if d is negative.
	Age(tb testing.TB, project, ref string, d time.Duration)
	// InsertLock writes a lock as Gerrit's plugin would: with Project, Ref,
	// Owner, a heartbeat of the database's time less Age, and Token or, if that
	// is 0, the database's time. All other columns are NULL.
	InsertLock(tb testing.TB, l refdb.LockInfo)
	// TakeOver takes a lock over as Gerrit's plugin would: it sets the heartbeat and
	// the token to the database's time, which is later than the old token, and the
	// owner. All other columns stay.
	TakeOver(tb testing.TB, project, ref, owner string)
	// InsertRef writes a ref as Gerrit's plugin would: without an operation.
	InsertRef(tb testing.TB, project, ref string, v refdb.Value)
	// Exec executes a statement in the database's own dialect. The suite's few statements
	// are plain SQL on the tables locks and refs, without arguments.
	Exec(tb testing.TB, sql string, args ...any)
	// RowLock reads the row of a lock.
	RowLock(tb testing.TB, project, ref string) (l refdb.LockInfo, ok bool)
}

// A Database may also have these methods.
type (
	// rounder says how often a race is repeated. A Database with fewer than
	// defaultRounds is slow: other numbers are smaller for it too.
	rounder interface{ Rounds() int }
	// futureTimer says whether a row may hold a time in the future. Cloud Spanner
	// refuses that; a Database without the method allows it.
	futureTimer interface{ FutureTimes() bool }
	// restarter makes the database's server another one than the one that is admitted and that witnesses have
	// compared. Rows about that are skipped without it.
	restarter interface{ Restart(tb testing.TB) }
)

// defaultRounds is how often a race is repeated on a Database that is no rounder.
const defaultRounds = 100

// Run checks everything, on one database per topic, and some rows on their own. Topics, and the
// rows in them, run in parallel.
func Run(t *testing.T, open func(testing.TB) Database) {
	for _, topic := range topics() {
		t.Run(topic.name, func(t *testing.T) {
			t.Parallel()
			shared := newEnv(t, open)
			for i, row := range topic.rows {
				t.Run(row.name, func(t *testing.T) {
					t.Parallel()
					e := *shared
					e.T, e.project = t, fmt.Sprintf("project-%d", i)
					row.run(&e)
				})
			}
		})
	}
}

// A topic is a part of the contract; its rows share a database.
type topic struct {
	name string
	rows []row
}

// A row is one behaviour. Its name reads as a sentence.
type row struct {
	name string
	run  func(*env)
}

func topics() []topic {
	return []topic{
		// The slowest first, so that no core idles at the end.
		{"Contenders", contenderRows()},
		{"Races of locks", lockRaceRows()},
		{"Races of updates", updateRaceRows()},
		{"Races of intents", intentRaceRows()},
		{"Races of packs", packRaceRows()},
		{"DB loss", dbLossRows()},
		{"DB waiting", dbWaitRows()},
		{"DB cost", dbCostRows()},
		{"Names", nameRows()},
		{"Size", sizeRows()},
		{"Get", getRows()},
		{"List", listRows()},
		{"Summaries", summaryRows()},
		{"Update", updateRows()},
		{"Mandatory locks", mandatoryRows()},
		{"Fence", fenceRows()},
		{"Remove", removeRows()},
		{"Acquire", acquireRows()},
		{"Nonce", nonceRows()},
		{"Reclaim", reclaimRows()},
		{"Beat", beatRows()},
		{"Release", releaseRows()},
		{"Purge", purgeRows()},
		{"Abandon", abandonRows()},
		{"Locks", locksRows()},
		{"Intents", slices.Concat(intentRows(), intentEndRows())},
		{"Cursors", cursorRows()},
		{"Resolve", resolveRows()},
		{"States", stateRows()},
		{"Projects", projectRows()},
		{"Audit", auditRows()},
		{"History", historyRows()},
		{"Changes", changesRows()},
		{"Tip", tipRows()},
		{"Past", pastRows()},
		{"Prune", pruneRows()},
		{"Packs", slices.Concat(packRows(), packListRows(), packUseRows(), packDropRows())},
		{"Admission", slices.Concat(admissionRows(), reportRows(), recoverRows())},
		{"Connection", connectionRows()},
		{"Queues", slices.Concat(queueRows(), severalRefsRows(), keptRows())},
		{"Notifier", notifierRows()},
		{"DB refs", dbRefRows()},
		{"DB locks", dbLockRows()},
		{"DB replies", dbReplyRows()},
		{"DB intents", slices.Concat(dbIntentRows(), dbIntentReplyRows())},
		{"DB refusals", dbRefusedRows()},
		{"DB administration", dbAdminRows()},
		{"DB pages", dbPageRows()},
		{"DB history", dbHistoryRows()},
		{"DB state keys", dbStateKeyRows()},
		{"DB pruning", dbPruneRows()},
		{"DB packs", dbPackRows()},
		{"DB admission", dbAdmissionRows()},
	}
}

// Alternating returns databases whose drivers are pairs of instances: each call goes
// to the instance that did not serve the call before. A driver that keeps something
// between two calls, such as a queue or the locks it took, passes alone and fails here.
//
// Races between processes gain nothing from it: they are repeated a quarter as often.
func Alternating(open func(testing.TB) Database) func(testing.TB) Database {
	return func(tb testing.TB) Database { return alternating{open(tb)} }
}

type alternating struct{ Database }

func (d alternating) Rounds() int       { return roundsOf(d.Database) }
func (d alternating) FutureTimes() bool { return futureTimesOf(d.Database) }

func (d alternating) Restart(tb testing.TB) {
	r, ok := d.Database.(restarter)
	if !ok {
		tb.Skip("the server of this database can't be made another one")
	}
	r.Restart(tb)
}

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

// instances must stay the only thing of that name among what Open embeds: else no type has the method.
func (p *pair) instances() []refdb.Driver { return p.drivers[:] }

// next returns the instance that the next call goes to.
func (p *pair) next() refdb.Driver { return p.drivers[p.calls.Add(1)%2] }

// Close closes both instances.
func (p *pair) Close() error { return errors.Join(p.drivers[0].Close(), p.drivers[1].Close()) }

func (p *pair) Get(ctx context.Context, project string, refs []string) ([]refdb.Ref, error) {
	return p.next().Get(ctx, project, refs)
}

func (p *pair) List(ctx context.Context, q refdb.RefQuery) (refdb.RefPage, error) {
	return p.next().List(ctx, q)
}

func (p *pair) Summaries(ctx context.Context, q refdb.SummaryQuery) (refdb.SummaryPage, error) {
	return p.next().Summaries(ctx, q)
}

func (p *pair) States(ctx context.Context, project string, refs []string) ([]refdb.State, error) {
	return p.next().States(ctx, project, refs)
}

func (p *pair) Update(ctx context.Context, r refdb.UpdateRequest) error {
	return p.next().Update(ctx, r)
}

func (p *pair) Remove(ctx context.Context, r refdb.RemoveRequest) (int, error) {
	return p.next().Remove(ctx, r)
}

func (p *pair) PurgeTombstones(ctx context.Context, r refdb.TombstoneRequest) (int, error) {
	return p.next().PurgeTombstones(ctx, r)
}

func (p *pair) Acquire(ctx context.Context, r refdb.AcquireRequest) (refdb.Acquired, error) {
	return p.next().Acquire(ctx, r)
}

func (p *pair) Beat(ctx context.Context, locks []refdb.LockID) ([]refdb.BeatResult, error) {
	return p.next().Beat(ctx, locks)
}

func (p *pair) Release(ctx context.Context, r refdb.ReleaseRequest) (refdb.Released, error) {
	return p.next().Release(ctx, r)
}

func (p *pair) Purge(ctx context.Context, locks []refdb.StandingLock) ([]bool, error) {
	return p.next().Purge(ctx, locks)
}

func (p *pair) Abandon(ctx context.Context, r refdb.AbandonRequest) error {
	return p.next().Abandon(ctx, r)
}

func (p *pair) Locks(ctx context.Context, q refdb.LockQuery) (refdb.LockPage, error) {
	return p.next().Locks(ctx, q)
}

func (p *pair) Prepare(ctx context.Context, r refdb.PrepareRequest) (refdb.Prepared, error) {
	return p.next().Prepare(ctx, r)
}

func (p *pair) Finish(ctx context.Context, r refdb.FinishRequest) error {
	return p.next().Finish(ctx, r)
}

func (p *pair) Revoke(ctx context.Context, r refdb.PrepareRequest) error {
	return p.next().Revoke(ctx, r)
}

func (p *pair) Resolve(ctx context.Context, r refdb.ResolveRequest) ([]bool, error) {
	return p.next().Resolve(ctx, r)
}

func (p *pair) Forget(ctx context.Context, intents []refdb.LockID) error {
	return p.next().Forget(ctx, intents)
}

func (p *pair) Intents(ctx context.Context, q refdb.IntentQuery) (refdb.IntentPage, error) {
	return p.next().Intents(ctx, q)
}

func (p *pair) Projects(ctx context.Context, q refdb.ProjectQuery) ([]refdb.Project, error) {
	return p.next().Projects(ctx, q)
}

func (p *pair) PutProject(ctx context.Context, r refdb.ProjectRequest) (refdb.Project, error) {
	return p.next().PutProject(ctx, r)
}

func (p *pair) Record(ctx context.Context, e refdb.AuditEntry) (time.Time, error) {
	return p.next().Record(ctx, e)
}

func (p *pair) Conclude(ctx context.Context, e refdb.AuditCursor, outcome string) (bool, error) {
	return p.next().Conclude(ctx, e, outcome)
}

func (p *pair) Audit(ctx context.Context, q refdb.AuditQuery) (refdb.AuditPage, error) {
	return p.next().Audit(ctx, q)
}

func (p *pair) HistoryState(ctx context.Context) (refdb.HistoryState, error) {
	return p.next().HistoryState(ctx)
}

func (p *pair) Newest(ctx context.Context) (refdb.Change, refdb.HistoryState, error) {
	return p.next().Newest(ctx)
}

func (p *pair) Tip(ctx context.Context, project string) (refdb.Tip, error) {
	return p.next().Tip(ctx, project)
}

func (p *pair) Changes(ctx context.Context, r refdb.ChangesRequest) (refdb.ChangesPage, error) {
	return p.next().Changes(ctx, r)
}

func (p *pair) Log(ctx context.Context, r refdb.LogRequest) (refdb.LogPage, error) {
	return p.next().Log(ctx, r)
}

func (p *pair) Past(ctx context.Context, r refdb.PastRequest) (refdb.PastPage, error) {
	return p.next().Past(ctx, r)
}

func (p *pair) PositionAt(ctx context.Context, t time.Time) (refdb.Position, refdb.HistoryState, error) {
	return p.next().PositionAt(ctx, t)
}

func (p *pair) Prune(ctx context.Context, r refdb.PruneRequest) (refdb.Pruned, error) {
	return p.next().Prune(ctx, r)
}

func (p *pair) Followers(ctx context.Context) ([]refdb.Follower, error) {
	return p.next().Followers(ctx)
}

func (p *pair) PutFollower(ctx context.Context, f refdb.Follower) error {
	return p.next().PutFollower(ctx, f)
}

func (p *pair) RemoveFollower(ctx context.Context, name string) (bool, error) {
	return p.next().RemoveFollower(ctx, name)
}

func (p *pair) Admission(ctx context.Context) (refdb.Admission, error) {
	return p.next().Admission(ctx)
}

func (p *pair) Look(ctx context.Context, witness string, known []refdb.Known) (refdb.Looked, error) {
	return p.next().Look(ctx, witness, known)
}

func (p *pair) Report(ctx context.Context, r refdb.Report) (refdb.Admission, error) {
	return p.next().Report(ctx, r)
}

func (p *pair) LostChanges(ctx context.Context, q refdb.LostQuery) (refdb.LostPage, error) {
	return p.next().LostChanges(ctx, q)
}

func (p *pair) Recover(ctx context.Context, r refdb.RecoverRequest) (refdb.Recovered, error) {
	return p.next().Recover(ctx, r)
}

func (p *pair) Now(ctx context.Context) (time.Time, error) { return p.next().Now(ctx) }

// A pairNotifier makes a pair a [refdb.Notifier], if its drivers are.
type pairNotifier struct{ both *pair }

func (n pairNotifier) Listen(ctx context.Context, channel string, started func(), wake func(refdb.Wakeup)) error {
	return n.both.next().(refdb.Notifier).Listen(ctx, channel, started, wake)
}

// A pairDiagnoser makes a pair a [refdb.Diagnoser], if its drivers are.
type pairDiagnoser struct{ both *pair }

func (d pairDiagnoser) Diagnose(ctx context.Context) ([]refdb.Diagnosis, error) {
	return d.both.next().(refdb.Diagnoser).Diagnose(ctx)
}
