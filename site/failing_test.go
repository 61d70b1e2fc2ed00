package site_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
)

// failing is a driver whose requests, all of them, fail while it is down. It does not embed the
// driver: a method that was forgotten would answer in the middle of an outage.
type failing struct {
	driver refdb.Driver
	down   func() bool
	// deaf: requests are carried out, and their replies lost.
	deaf atomic.Bool
	// stubborn: nothing is taken back.
	stubborn atomic.Bool
	// slow: an announcement is on its way while it is deaf, and kept in late.
	slow bool
	late atomic.Pointer[driver.PrepareRequest]
	// asked counts the requests that pushes make, by their kinds.
	asked asked
}

type asked struct{ states, prepared, finished, listed atomic.Int64 }

func (a *asked) String() string {
	return fmt.Sprintf("%d states, %d prepared, %d finished, %d listed", a.states.Load(), a.prepared.Load(), a.finished.Load(), a.listed.Load())
}

// lost loses the reply of a request that was carried out.
func (f *failing) lost(err error) error {
	if err == nil && f.deaf.Load() {
		return fmt.Errorf("%w: unplugged", refdb.ErrOutcomeUnknown)
	}
	return err
}

func (f *failing) err() error {
	if f.down() {
		return errors.Join(refdb.ErrUnavailable, errors.New("unplugged"))
	}
	return nil
}

// unlessDown makes a request that has an argument.
func unlessDown[A, R any](ctx context.Context, f *failing, request func(context.Context, A) (R, error), a A) (answer R, err error) {
	if err := f.err(); err != nil {
		return answer, err
	}
	return request(ctx, a)
}

// doUnlessDown is unlessDown for a request without an answer.
func doUnlessDown[A any](ctx context.Context, f *failing, request func(context.Context, A) error, a A) error {
	if err := f.err(); err != nil {
		return err
	}
	return request(ctx, a)
}

// readUnlessDown is unlessDown for a request without an argument.
func readUnlessDown[R any](ctx context.Context, f *failing, request func(context.Context) (R, error)) (answer R, err error) {
	if err := f.err(); err != nil {
		return answer, err
	}
	return request(ctx)
}

func (f *failing) Prepare(ctx context.Context, r driver.PrepareRequest) (driver.Prepared, error) {
	if err := f.err(); err != nil {
		return driver.Prepared{}, err
	}
	if f.slow && f.deaf.Load() {
		f.late.Store(&r)
		return driver.Prepared{}, f.lost(nil)
	}
	f.asked.prepared.Add(1)
	p, err := f.driver.Prepare(ctx, r)
	return p, f.lost(err)
}

func (f *failing) Finish(ctx context.Context, r driver.FinishRequest) error {
	if err := f.err(); err != nil {
		return err
	}
	f.asked.finished.Add(1)
	return f.lost(f.driver.Finish(ctx, r))
}

func (f *failing) Release(ctx context.Context, r driver.ReleaseRequest) (driver.Released, error) {
	released, err := unlessDown(ctx, f, f.driver.Release, r)
	return released, f.lost(err)
}

func (f *failing) Revoke(ctx context.Context, r driver.PrepareRequest) error {
	if err := f.err(); err != nil {
		return err
	}
	if f.stubborn.Load() {
		return fmt.Errorf("%w: unplugged", refdb.ErrUnavailable)
	}
	return f.driver.Revoke(ctx, r)
}

func (f *failing) List(ctx context.Context, q driver.RefQuery) (driver.RefPage, error) {
	f.asked.listed.Add(1)
	return unlessDown(ctx, f, f.driver.List, q)
}

func (f *failing) States(ctx context.Context, project string, refs []string) ([]driver.State, error) {
	f.asked.states.Add(1)
	if err := f.err(); err != nil {
		return nil, err
	}
	return f.driver.States(ctx, project, refs)
}

func (f *failing) Close() error { return f.driver.Close() }

func (f *failing) Get(ctx context.Context, project string, refs []string) (a []driver.Ref, err error) {
	if err = f.err(); err != nil {
		return a, err
	}
	return f.driver.Get(ctx, project, refs)
}

func (f *failing) Summaries(ctx context.Context, q driver.SummaryQuery) (driver.SummaryPage, error) {
	return unlessDown(ctx, f, f.driver.Summaries, q)
}

func (f *failing) Update(ctx context.Context, r driver.UpdateRequest) error {
	return doUnlessDown(ctx, f, f.driver.Update, r)
}

func (f *failing) Remove(ctx context.Context, r driver.RemoveRequest) (int, error) {
	return unlessDown(ctx, f, f.driver.Remove, r)
}

func (f *failing) PurgeTombstones(ctx context.Context, r driver.TombstoneRequest) (int, error) {
	return unlessDown(ctx, f, f.driver.PurgeTombstones, r)
}

func (f *failing) Acquire(ctx context.Context, r driver.AcquireRequest) (driver.Acquired, error) {
	return unlessDown(ctx, f, f.driver.Acquire, r)
}

func (f *failing) Beat(ctx context.Context, locks []driver.LockID) ([]driver.BeatResult, error) {
	return unlessDown(ctx, f, f.driver.Beat, locks)
}

func (f *failing) Purge(ctx context.Context, locks []driver.StandingLock) ([]bool, error) {
	return unlessDown(ctx, f, f.driver.Purge, locks)
}

func (f *failing) Abandon(ctx context.Context, r driver.AbandonRequest) error {
	return doUnlessDown(ctx, f, f.driver.Abandon, r)
}

func (f *failing) Locks(ctx context.Context, q driver.LockQuery) (driver.LockPage, error) {
	return unlessDown(ctx, f, f.driver.Locks, q)
}

func (f *failing) Resolve(ctx context.Context, r driver.ResolveRequest) ([]bool, error) {
	return unlessDown(ctx, f, f.driver.Resolve, r)
}

func (f *failing) Forget(ctx context.Context, intents []driver.LockID) error {
	return doUnlessDown(ctx, f, f.driver.Forget, intents)
}

func (f *failing) Intents(ctx context.Context, q driver.IntentQuery) (driver.IntentPage, error) {
	return unlessDown(ctx, f, f.driver.Intents, q)
}

func (f *failing) Projects(ctx context.Context, q driver.ProjectQuery) ([]driver.Project, error) {
	return unlessDown(ctx, f, f.driver.Projects, q)
}

func (f *failing) PutProject(ctx context.Context, r driver.ProjectRequest) (driver.Project, error) {
	return unlessDown(ctx, f, f.driver.PutProject, r)
}

func (f *failing) Record(ctx context.Context, e driver.AuditEntry) (time.Time, error) {
	return unlessDown(ctx, f, f.driver.Record, e)
}

func (f *failing) Conclude(ctx context.Context, e driver.AuditCursor, outcome string) (a bool, err error) {
	if err = f.err(); err != nil {
		return a, err
	}
	return f.driver.Conclude(ctx, e, outcome)
}

func (f *failing) Audit(ctx context.Context, q driver.AuditQuery) (driver.AuditPage, error) {
	return unlessDown(ctx, f, f.driver.Audit, q)
}

func (f *failing) HistoryState(ctx context.Context) (driver.HistoryState, error) {
	return readUnlessDown(ctx, f, f.driver.HistoryState)
}

func (f *failing) Newest(ctx context.Context) (c driver.Change, s driver.HistoryState, err error) {
	if err = f.err(); err != nil {
		return c, s, err
	}
	return f.driver.Newest(ctx)
}

func (f *failing) Tip(ctx context.Context, project string) (driver.Tip, error) {
	return unlessDown(ctx, f, f.driver.Tip, project)
}

func (f *failing) Changes(ctx context.Context, r driver.ChangesRequest) (driver.ChangesPage, error) {
	return unlessDown(ctx, f, f.driver.Changes, r)
}

func (f *failing) Log(ctx context.Context, r driver.LogRequest) (driver.LogPage, error) {
	return unlessDown(ctx, f, f.driver.Log, r)
}

func (f *failing) Past(ctx context.Context, r driver.PastRequest) (driver.PastPage, error) {
	return unlessDown(ctx, f, f.driver.Past, r)
}

func (f *failing) PositionAt(ctx context.Context, t time.Time) (p driver.Position, s driver.HistoryState, err error) {
	if err = f.err(); err != nil {
		return p, s, err
	}
	return f.driver.PositionAt(ctx, t)
}

func (f *failing) Prune(ctx context.Context, r driver.PruneRequest) (driver.Pruned, error) {
	return unlessDown(ctx, f, f.driver.Prune, r)
}

func (f *failing) Followers(ctx context.Context) ([]driver.Follower, error) {
	return readUnlessDown(ctx, f, f.driver.Followers)
}

func (f *failing) PutFollower(ctx context.Context, one driver.Follower) error {
	return doUnlessDown(ctx, f, f.driver.PutFollower, one)
}

func (f *failing) RemoveFollower(ctx context.Context, name string) (bool, error) {
	return unlessDown(ctx, f, f.driver.RemoveFollower, name)
}

func (f *failing) Admission(ctx context.Context) (driver.Admission, error) {
	return readUnlessDown(ctx, f, f.driver.Admission)
}

func (f *failing) Look(ctx context.Context, witness string, known []driver.Known) (a driver.Looked, err error) {
	if err = f.err(); err != nil {
		return a, err
	}
	return f.driver.Look(ctx, witness, known)
}

func (f *failing) Report(ctx context.Context, r driver.Report) (driver.Admission, error) {
	return unlessDown(ctx, f, f.driver.Report, r)
}

func (f *failing) SetPolicy(ctx context.Context, p driver.Policy) (driver.Admission, error) {
	return unlessDown(ctx, f, f.driver.SetPolicy, p)
}

func (f *failing) LostChanges(ctx context.Context, q driver.LostQuery) (driver.LostPage, error) {
	return unlessDown(ctx, f, f.driver.LostChanges, q)
}

func (f *failing) Recover(ctx context.Context, r driver.RecoverRequest) (driver.Recovered, error) {
	return unlessDown(ctx, f, f.driver.Recover, r)
}

func (f *failing) Now(ctx context.Context) (time.Time, error) {
	return readUnlessDown(ctx, f, f.driver.Now)
}
