package drivers

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/globalrefdb/globalrefdb/refdb"
)

const (
	// firstAttempt is how long OpenLazy waits for a database that is probably up.
	firstAttempt = time.Second

	shortestPause = 100 * time.Millisecond
	longestPause  = 5 * time.Second
)

// OpenLazy returns a driver on a database that may be down at first. It calls open
// until that succeeds. Until then every request fails with [refdb.ErrUnavailable]
// and the reason, and Listen waits. The context of open lasts until the driver is
// closed.
func OpenLazy(open func(context.Context) (refdb.Driver, error), log *slog.Logger) refdb.Driver {
	ctx, cancel := context.WithCancel(context.Background())
	l := &lazy{open: open, log: log, cancel: cancel, done: make(chan struct{}), err: refdb.ErrUnavailable}
	tried := make(chan struct{})
	go func() {
		defer close(l.done)
		l.keepTrying(ctx, tried)
	}()
	select {
	case <-tried:
	case <-time.After(firstAttempt):
	}
	return l
}

// A lazy forwards to another driver, which may not be open yet.
type lazy struct {
	open   func(context.Context) (refdb.Driver, error)
	log    *slog.Logger
	cancel context.CancelFunc
	done   chan struct{} // closed after the last call of open

	mu     sync.Mutex
	driver refdb.Driver // nil before it is open
	err    error        // why it is not
}

var (
	_ refdb.Notifier      = (*lazy)(nil)
	_ refdb.Diagnoser     = (*lazy)(nil)
	_ refdb.SchemaChecker = (*lazy)(nil)
	_ refdb.Meter         = (*lazy)(nil)
)

// keepTrying tries until the database is open or ctx ends. It closes tried
// after the first attempt.
func (l *lazy) keepTrying(ctx context.Context, tried chan<- struct{}) {
	pause := backoff.NewExponentialBackOff()
	pause.InitialInterval, pause.MaxInterval = shortestPause, longestPause
	for attempt := 1; ; attempt++ {
		err := l.try(ctx)
		if attempt == 1 {
			close(tried)
		}
		if err == nil {
			return
		}
		l.log.WarnContext(ctx, "the database can't be opened; trying again", "attempt", attempt, "error", err)
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause.NextBackOff()):
		}
	}
}

func (l *lazy) try(ctx context.Context) error {
	d, err := l.open(ctx)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		l.err = fmt.Errorf("%w: %w", refdb.ErrUnavailable, err)
		return err
	}
	l.driver = d
	return nil
}

// get returns the open driver, or why there is none.
func (l *lazy) get() (refdb.Driver, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.driver == nil {
		return nil, l.err
	}
	return l.driver, nil
}

// Close ends the attempts, and closes the driver if one succeeded.
func (l *lazy) Close() error {
	l.cancel()
	<-l.done
	if d, err := l.get(); err == nil {
		return d.Close()
	}
	return nil
}

// ask forwards a request that has an answer.
func ask[R, A any](ctx context.Context, l *lazy, method func(refdb.Driver, context.Context, R) (A, error), request R) (answer A, err error) {
	d, err := l.get()
	if err != nil {
		return answer, err
	}
	return method(d, ctx, request)
}

// do forwards a request that has no answer.
func do[R any](ctx context.Context, l *lazy, method func(refdb.Driver, context.Context, R) error, request R) error {
	d, err := l.get()
	if err != nil {
		return err
	}
	return method(d, ctx, request)
}

func (l *lazy) Get(ctx context.Context, project string, refs []string) ([]refdb.Ref, error) {
	d, err := l.get()
	if err != nil {
		return nil, err
	}
	return d.Get(ctx, project, refs)
}

func (l *lazy) List(ctx context.Context, q refdb.RefQuery) (refdb.RefPage, error) {
	return ask(ctx, l, refdb.Driver.List, q)
}

func (l *lazy) Summaries(ctx context.Context, q refdb.SummaryQuery) (refdb.SummaryPage, error) {
	return ask(ctx, l, refdb.Driver.Summaries, q)
}

func (l *lazy) States(ctx context.Context, project string, refs []string) ([]refdb.State, error) {
	d, err := l.get()
	if err != nil {
		return nil, err
	}
	return d.States(ctx, project, refs)
}

func (l *lazy) Update(ctx context.Context, r refdb.UpdateRequest) error {
	return do(ctx, l, refdb.Driver.Update, r)
}

func (l *lazy) Remove(ctx context.Context, r refdb.RemoveRequest) (int, error) {
	return ask(ctx, l, refdb.Driver.Remove, r)
}

func (l *lazy) PurgeTombstones(ctx context.Context, r refdb.TombstoneRequest) (int, error) {
	return ask(ctx, l, refdb.Driver.PurgeTombstones, r)
}

func (l *lazy) Acquire(ctx context.Context, r refdb.AcquireRequest) (refdb.Acquired, error) {
	return ask(ctx, l, refdb.Driver.Acquire, r)
}

func (l *lazy) Beat(ctx context.Context, locks []refdb.LockID) ([]refdb.BeatResult, error) {
	return ask(ctx, l, refdb.Driver.Beat, locks)
}

func (l *lazy) Release(ctx context.Context, r refdb.ReleaseRequest) (refdb.Released, error) {
	return ask(ctx, l, refdb.Driver.Release, r)
}

func (l *lazy) Purge(ctx context.Context, locks []refdb.StandingLock) ([]bool, error) {
	return ask(ctx, l, refdb.Driver.Purge, locks)
}

func (l *lazy) Abandon(ctx context.Context, r refdb.AbandonRequest) error {
	return do(ctx, l, refdb.Driver.Abandon, r)
}

func (l *lazy) Locks(ctx context.Context, q refdb.LockQuery) (refdb.LockPage, error) {
	return ask(ctx, l, refdb.Driver.Locks, q)
}

func (l *lazy) Finish(ctx context.Context, r refdb.FinishRequest) error {
	return do(ctx, l, refdb.Driver.Finish, r)
}

func (l *lazy) Revoke(ctx context.Context, r refdb.PrepareRequest) error {
	return do(ctx, l, refdb.Driver.Revoke, r)
}

func (l *lazy) Resolve(ctx context.Context, r refdb.ResolveRequest) ([]bool, error) {
	return ask(ctx, l, refdb.Driver.Resolve, r)
}

func (l *lazy) Forget(ctx context.Context, intents []refdb.LockID) error {
	return do(ctx, l, refdb.Driver.Forget, intents)
}

func (l *lazy) Intents(ctx context.Context, q refdb.IntentQuery) (refdb.IntentPage, error) {
	return ask(ctx, l, refdb.Driver.Intents, q)
}

func (l *lazy) Projects(ctx context.Context, q refdb.ProjectQuery) ([]refdb.Project, error) {
	return ask(ctx, l, refdb.Driver.Projects, q)
}

func (l *lazy) PutProject(ctx context.Context, r refdb.ProjectRequest) (refdb.Project, error) {
	return ask(ctx, l, refdb.Driver.PutProject, r)
}

func (l *lazy) Record(ctx context.Context, e refdb.AuditEntry) (time.Time, error) {
	return ask(ctx, l, refdb.Driver.Record, e)
}

func (l *lazy) Conclude(ctx context.Context, e refdb.AuditCursor, outcome string) (bool, error) {
	d, err := l.get()
	if err != nil {
		return false, err
	}
	return d.Conclude(ctx, e, outcome)
}

func (l *lazy) Audit(ctx context.Context, q refdb.AuditQuery) (refdb.AuditPage, error) {
	return ask(ctx, l, refdb.Driver.Audit, q)
}

func (l *lazy) HistoryState(ctx context.Context) (refdb.HistoryState, error) {
	d, err := l.get()
	if err != nil {
		return refdb.HistoryState{}, err
	}
	return d.HistoryState(ctx)
}

func (l *lazy) Newest(ctx context.Context) (refdb.Change, refdb.HistoryState, error) {
	d, err := l.get()
	if err != nil {
		return refdb.Change{}, refdb.HistoryState{}, err
	}
	return d.Newest(ctx)
}

func (l *lazy) Tip(ctx context.Context, project string) (refdb.Tip, error) {
	return ask(ctx, l, refdb.Driver.Tip, project)
}

func (l *lazy) Changes(ctx context.Context, r refdb.ChangesRequest) (refdb.ChangesPage, error) {
	return ask(ctx, l, refdb.Driver.Changes, r)
}

func (l *lazy) Log(ctx context.Context, r refdb.LogRequest) (refdb.LogPage, error) {
	return ask(ctx, l, refdb.Driver.Log, r)
}

func (l *lazy) Past(ctx context.Context, r refdb.PastRequest) (refdb.PastPage, error) {
	return ask(ctx, l, refdb.Driver.Past, r)
}

func (l *lazy) PositionAt(ctx context.Context, t time.Time) (refdb.Position, refdb.HistoryState, error) {
	d, err := l.get()
	if err != nil {
		return 0, refdb.HistoryState{}, err
	}
	return d.PositionAt(ctx, t)
}

func (l *lazy) Prune(ctx context.Context, r refdb.PruneRequest) (refdb.Pruned, error) {
	return ask(ctx, l, refdb.Driver.Prune, r)
}

func (l *lazy) Followers(ctx context.Context) ([]refdb.Follower, error) {
	d, err := l.get()
	if err != nil {
		return nil, err
	}
	return d.Followers(ctx)
}

func (l *lazy) PutFollower(ctx context.Context, f refdb.Follower) error {
	return do(ctx, l, refdb.Driver.PutFollower, f)
}

func (l *lazy) RemoveFollower(ctx context.Context, name string) (bool, error) {
	return ask(ctx, l, refdb.Driver.RemoveFollower, name)
}

func (l *lazy) Admission(ctx context.Context) (refdb.Admission, error) {
	d, err := l.get()
	if err != nil {
		return refdb.Admission{}, err
	}
	return d.Admission(ctx)
}

func (l *lazy) Look(ctx context.Context, witness string, known []refdb.Known) (refdb.Looked, error) {
	d, err := l.get()
	if err != nil {
		return refdb.Looked{}, err
	}
	return d.Look(ctx, witness, known)
}

func (l *lazy) Report(ctx context.Context, r refdb.Report) (refdb.Admission, error) {
	d, err := l.get()
	if err != nil {
		return refdb.Admission{}, err
	}
	return d.Report(ctx, r)
}

func (l *lazy) LostChanges(ctx context.Context, q refdb.LostQuery) (refdb.LostPage, error) {
	d, err := l.get()
	if err != nil {
		return refdb.LostPage{}, err
	}
	return d.LostChanges(ctx, q)
}

func (l *lazy) Recover(ctx context.Context, r refdb.RecoverRequest) (refdb.Recovered, error) {
	d, err := l.get()
	if err != nil {
		return refdb.Recovered{}, err
	}
	return d.Recover(ctx, r)
}

func (l *lazy) Now(ctx context.Context) (time.Time, error) {
	d, err := l.get()
	if err != nil {
		return time.Time{}, err
	}
	return d.Now(ctx)
}

// Listen implements [refdb.Notifier]. It waits until the driver is open.
func (l *lazy) Listen(ctx context.Context, channel string, started func(), wake func(refdb.Wakeup)) error {
	select {
	case <-l.done:
	case <-ctx.Done():
		return ctx.Err()
	}
	d, err := l.get()
	if err != nil {
		return err
	}
	n, ok := refdb.RoleOf[refdb.Notifier](d)
	if !ok {
		return errors.ErrUnsupported
	}
	return n.Listen(ctx, channel, started, wake)
}

// CheckSchema implements [refdb.SchemaChecker]. Opening checked the schema first.
func (l *lazy) CheckSchema(ctx context.Context) error {
	d, err := l.get()
	if err != nil {
		return err
	}
	if c, ok := refdb.RoleOf[refdb.SchemaChecker](d); ok {
		return c.CheckSchema(ctx)
	}
	return nil
}

// Diagnose implements [refdb.Diagnoser].
func (l *lazy) Diagnose(ctx context.Context) ([]refdb.Diagnosis, error) {
	d, err := l.get()
	if err != nil {
		return nil, err
	}
	if g, ok := refdb.RoleOf[refdb.Diagnoser](d); ok {
		return g.Diagnose(ctx)
	}
	return nil, nil
}

// Stats implements [refdb.Meter]. It is zero before the driver is open, and if the driver is no
// Meter.
func (l *lazy) Stats() refdb.DriverStats {
	if d, err := l.get(); err == nil {
		if m, ok := refdb.RoleOf[refdb.Meter](d); ok {
			return m.Stats()
		}
	}
	return refdb.DriverStats{}
}
