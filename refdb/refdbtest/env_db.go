package refdbtest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
)

// open returns a DB on a driver of its own. It is closed when the row ends.
func (e *env) open(o refdb.Options) *refdb.DB {
	e.Helper()
	return e.openOn(e.db.Open(e), o)
}

// openFaulty is open, with a faultyDriver between the DB and its driver.
func (e *env) openFaulty(o refdb.Options) (*refdb.DB, *faultyDriver) {
	e.Helper()
	t := e.faulty()
	return e.openOn(t, o), t
}

func (e *env) openOn(d refdb.Driver, o refdb.Options) *refdb.DB {
	e.Helper()
	if o.Site == "" {
		o.Site = "site-x"
	}
	db, err := refdb.New(d, o)
	e.must(err)
	e.Cleanup(func() {
		if err := db.Close(); err != nil {
			e.Errorf("Close: %v", err)
		}
	})
	return db
}

// fastHeartbeat returns options with frequent beats, and locks that don't become stale.
func fastHeartbeat() refdb.Options {
	return refdb.Options{Heartbeat: 20 * time.Millisecond, StaleAfter: time.Hour}
}

// hold takes locks through db that are free or stale.
func (e *env) hold(db *refdb.DB, refs ...string) *refdb.Lock {
	e.Helper()
	l, err := db.TryLock(e.Context(), e.project, refs...)
	e.must(err)
	return l
}

// wantLocked checks the value that a ref had when it was locked.
func (e *env) wantLocked(l *refdb.Lock, ref string, want refdb.Value) {
	e.Helper()
	if v, err := l.Value(ref); v != want || err != nil {
		e.Errorf("the lock has %q for %s (%v), want %q", v, ref, err, want)
	}
}

// lockOf returns l as a driver knows it.
func lockOf(l *refdb.Lock) lock {
	return lock{
		refdb.AcquireRequest{Project: l.Project(), Refs: l.Refs(), Owner: l.Owner()},
		refdb.Acquired{Token: l.Token()},
	}
}

// seize reclaims a lock whose holder is alive, and may beat between the aging and the reclaim.
func (e *env) seize(l *refdb.Lock, refs ...string) lock {
	e.Helper()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		for _, ref := range refs {
			e.db.Age(e, e.project, ref, 2*time.Hour)
		}
		if got, err := e.tryAcquire(e.b, refs...); !e.refusal(err) {
			return got
		}
	}
	e.Fatal("the lock could not be seized")
	return lock{}
}

// wantClass checks an error and its class.
func (e *env) wantClass(err error, sentinel error, class refdb.Class) {
	e.Helper()
	if !errors.Is(err, sentinel) || refdb.ClassOf(err) != class {
		e.Errorf("got %v of class %v, want %v of class %v", err, refdb.ClassOf(err), sentinel, class)
	}
}

// patience is how long to wait for something that must happen.
const patience = 20 * time.Second

// receive waits for a value from a channel, or for the channel to be closed.
func receive[T any](e *env, c <-chan T, what string) (v T) {
	e.Helper()
	select {
	case v = <-c:
	case <-time.After(patience):
		e.Fatalf("it never came to this: %s", what)
	}
	return v
}

// wantEnd waits until the lock is done, and checks the reason.
func (e *env) wantEnd(l *refdb.Lock, reason error) {
	e.Helper()
	receive(e, l.Done(), "the holder is told")
	if err := l.Err(); !errors.Is(err, reason) {
		e.Errorf("Err is %v, want %v", err, reason)
	}
}

// wantCause waits until a lock's context ends, and checks the cause.
func (e *env) wantCause(ctx context.Context, reason error) {
	e.Helper()
	receive(e, ctx.Done(), "the lock's context ends")
	if cause := context.Cause(ctx); !errors.Is(cause, reason) {
		e.Errorf("the context's cause is %v, want %v", cause, reason)
	}
}

// wantHeld checks that the lock is held, in the database and for its holder.
func (e *env) wantHeld(l *refdb.Lock) {
	e.Helper()
	if err := l.Err(); err != nil {
		e.Errorf("Err is %v, want nil", err)
	}
	select {
	case <-l.Done():
		e.Error("Done is closed")
	default:
	}
	e.wantLock(lockOf(l))
}

// eventually polls until ok.
func (e *env) eventually(what string, ok func() bool) {
	e.Helper()
	for deadline := time.Now().Add(patience); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			e.Fatalf("it never came to this: %s", what)
		}
	}
}

// free reports whether no lock stands on the refs.
func (e *env) free(refs ...string) bool {
	e.Helper()
	return !slices.ContainsFunc(refs, func(ref string) bool {
		_, ok := e.db.RowLock(e, e.project, ref)
		return ok
	})
}

// A call is a request of a DB to its driver.
type call struct {
	method string
	ctx    context.Context
	arg    any          // the request
	do     func() error // sends it to the real driver
}

// A faultyDriver counts the calls of a DB, and injects faults: calls go through a function
// of the row, which can fail them or lose their replies.
type faultyDriver struct {
	refdb.Driver // its other roles, such as Notifier, are hidden

	mu    sync.Mutex
	on    func(call) error
	calls map[string]int
}

// faulty opens a driver that injects no fault yet.
func (e *env) faulty() *faultyDriver {
	e.Helper()
	return &faultyDriver{Driver: e.db.Open(e), calls: make(map[string]int)}
}

// inject sends later calls through f; nil ends that.
func (t *faultyDriver) inject(f func(call) error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.on = f
}

// count returns the number of calls of a method, or of all methods for "".
func (t *faultyDriver) count(method string) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	if method != "" {
		return t.calls[method]
	}
	n := 0
	for _, calls := range t.calls {
		n += calls
	}
	return n
}

func (t *faultyDriver) call(ctx context.Context, method string, arg any, do func() error) error {
	t.mu.Lock()
	t.calls[method]++
	on := t.on
	t.mu.Unlock()
	if on == nil {
		return do()
	}
	return on(call{method, ctx, arg, do})
}

// Injected errors.
var (
	errLost = fmt.Errorf("a test lost the reply: %w", refdb.ErrOutcomeUnknown)
	errDown = fmt.Errorf("a test cut the connection: %w", refdb.ErrUnavailable)
)

// loseReply carries out the first call of a method, and loses its reply.
func loseReply(method string) func(call) error {
	return onFirst(method, func(c call) error { return errors.Join(errLost, c.do()) })
}

// loseRequest does not carry out the first call of a method. The caller can't tell it from loseReply.
func loseRequest(method string) func(call) error {
	return onFirst(method, func(call) error { return errLost })
}

// delayRequest carries out the first call of a method when the second one comes, right before
// it. The first caller can't tell it from loseRequest.
func (e *env) delayRequest(method string) func(call) error {
	var late func() error
	return func(c call) error {
		switch {
		case c.method != method:
			return c.do()
		case late == nil:
			late = c.do
			return errLost
		default:
			e.must(late())
			return c.do()
		}
	}
}

// onFirst sends only the first call of a method through f.
func onFirst(method string, f func(call) error) func(call) error {
	var once sync.Once
	return func(c call) error {
		err, done := error(nil), false
		if c.method == method {
			once.Do(func() { err, done = f(c), true })
		}
		if done {
			return err
		}
		return c.do()
	}
}

// asked makes a call. With an error it returns no answer, unless the error is a refusal.
func asked[T any](t *faultyDriver, ctx context.Context, method string, arg any, ask func() (T, error)) (T, error) {
	var answer T
	err := t.call(ctx, method, arg, func() (err error) {
		answer, err = ask()
		return err
	})
	if err != nil && !errors.Is(err, refdb.ErrLocked) {
		var none T
		return none, err
	}
	return answer, err
}

func (t *faultyDriver) Get(ctx context.Context, project string, refs []string) ([]refdb.Ref, error) {
	return asked(t, ctx, "Get", refs, func() ([]refdb.Ref, error) { return t.Driver.Get(ctx, project, refs) })
}

func (t *faultyDriver) Summaries(ctx context.Context, q refdb.SummaryQuery) (refdb.SummaryPage, error) {
	return asked(t, ctx, "Summaries", q, func() (refdb.SummaryPage, error) { return t.Driver.Summaries(ctx, q) })
}

func (t *faultyDriver) List(ctx context.Context, q refdb.RefQuery) (refdb.RefPage, error) {
	return asked(t, ctx, "List", q, func() (refdb.RefPage, error) { return t.Driver.List(ctx, q) })
}

func (t *faultyDriver) States(ctx context.Context, project string, refs []string) ([]refdb.State, error) {
	return asked(t, ctx, "States", refs, func() ([]refdb.State, error) { return t.Driver.States(ctx, project, refs) })
}

func (t *faultyDriver) Update(ctx context.Context, r refdb.UpdateRequest) error {
	return errorOf(asked(t, ctx, "Update", r, func() (struct{}, error) { return struct{}{}, t.Driver.Update(ctx, r) }))
}

func (t *faultyDriver) Remove(ctx context.Context, r refdb.RemoveRequest) (int, error) {
	return asked(t, ctx, "Remove", r, func() (int, error) { return t.Driver.Remove(ctx, r) })
}

func (t *faultyDriver) PurgeTombstones(ctx context.Context, r refdb.TombstoneRequest) (int, error) {
	return asked(t, ctx, "PurgeTombstones", r, func() (int, error) { return t.Driver.PurgeTombstones(ctx, r) })
}

func (t *faultyDriver) Acquire(ctx context.Context, r refdb.AcquireRequest) (refdb.Acquired, error) {
	return asked(t, ctx, "Acquire", r, func() (refdb.Acquired, error) { return t.Driver.Acquire(ctx, r) })
}

func (t *faultyDriver) Beat(ctx context.Context, locks []refdb.LockID) ([]refdb.BeatResult, error) {
	return asked(t, ctx, "Beat", locks, func() ([]refdb.BeatResult, error) { return t.Driver.Beat(ctx, locks) })
}

func (t *faultyDriver) Release(ctx context.Context, r refdb.ReleaseRequest) (refdb.Released, error) {
	return asked(t, ctx, "Release", r, func() (refdb.Released, error) { return t.Driver.Release(ctx, r) })
}

func (t *faultyDriver) Purge(ctx context.Context, locks []refdb.StandingLock) ([]bool, error) {
	return asked(t, ctx, "Purge", locks, func() ([]bool, error) { return t.Driver.Purge(ctx, locks) })
}

func (t *faultyDriver) Abandon(ctx context.Context, r refdb.AbandonRequest) error {
	return t.call(ctx, "Abandon", r, func() error { return t.Driver.Abandon(ctx, r) })
}

func (t *faultyDriver) Locks(ctx context.Context, q refdb.LockQuery) (refdb.LockPage, error) {
	return asked(t, ctx, "Locks", q, func() (refdb.LockPage, error) { return t.Driver.Locks(ctx, q) })
}

func (t *faultyDriver) Prepare(ctx context.Context, r refdb.PrepareRequest) (refdb.Prepared, error) {
	return asked(t, ctx, "Prepare", r, func() (refdb.Prepared, error) { return t.Driver.Prepare(ctx, r) })
}

func (t *faultyDriver) Finish(ctx context.Context, r refdb.FinishRequest) error {
	return t.call(ctx, "Finish", r, func() error { return t.Driver.Finish(ctx, r) })
}

func (t *faultyDriver) Revoke(ctx context.Context, r refdb.PrepareRequest) error {
	return t.call(ctx, "Revoke", r, func() error { return t.Driver.Revoke(ctx, r) })
}

func (t *faultyDriver) Resolve(ctx context.Context, r refdb.ResolveRequest) ([]bool, error) {
	return asked(t, ctx, "Resolve", r, func() ([]bool, error) { return t.Driver.Resolve(ctx, r) })
}

func (t *faultyDriver) Forget(ctx context.Context, intents []refdb.LockID) error {
	return t.call(ctx, "Forget", intents, func() error { return t.Driver.Forget(ctx, intents) })
}

func (t *faultyDriver) Intents(ctx context.Context, q refdb.IntentQuery) (refdb.IntentPage, error) {
	return asked(t, ctx, "Intents", q, func() (refdb.IntentPage, error) { return t.Driver.Intents(ctx, q) })
}

func (t *faultyDriver) Changes(ctx context.Context, r refdb.ChangesRequest) (refdb.ChangesPage, error) {
	return asked(t, ctx, "Changes", r, func() (refdb.ChangesPage, error) { return t.Driver.Changes(ctx, r) })
}

func (t *faultyDriver) Look(ctx context.Context, witness string, known []refdb.Known) (refdb.Looked, error) {
	return asked(t, ctx, "Look", known, func() (refdb.Looked, error) { return t.Driver.Look(ctx, witness, known) })
}

func (t *faultyDriver) Report(ctx context.Context, r refdb.Report) (refdb.Admission, error) {
	return asked(t, ctx, "Report", r, func() (refdb.Admission, error) { return t.Driver.Report(ctx, r) })
}

func (t *faultyDriver) Now(ctx context.Context) (time.Time, error) {
	return asked(t, ctx, "Now", nil, func() (time.Time, error) { return t.Driver.Now(ctx) })
}

func errorOf[T any](_ T, err error) error { return err }

// wantNotAsked checks that no request about a name went to the driver.
func (e *env) wantNotAsked(driver *faultyDriver, name string) {
	e.Helper()
	if n := driver.count(""); n != 0 {
		e.Fatalf("%.40q: the database was asked %d times", name, n)
	}
}

// refusedByAll checks that every operation of db refuses a key.
func (e *env) refusedByAll(db *refdb.DB, project, ref string) {
	e.Helper()
	ctx := e.Context()
	ended, cancel := context.WithCancel(ctx)
	cancel() // so that a Lock that is not refused doesn't wait
	type op struct {
		name string
		err  error
	}
	updates := []refdb.Update{move(refA, "", v1), move(ref, "", v1)}
	ops := []op{
		{"Get", errorOf(db.Get(ctx, project, ref))},
		{"GetAll", errorOf(db.GetAll(ctx, project, "HEAD", ref))},
		{"Exists", errorOf(db.Exists(ctx, project, ref))},
		{"IsUpToDate", errorOf(db.IsUpToDate(ctx, project, ref, v1))},
		{"Update", db.Update(ctx, project, updates[1:])},
		{"Update of several", db.Update(ctx, project, append(updates, move("HEAD", "", v1)))},
		{"Update under a lock", db.Update(ctx, project, []refdb.Update{move("HEAD", "", v1)}, refdb.Under("site/1", 1, ref))},
		{"CompareAndPut", errorOf(db.CompareAndPut(ctx, project, ref, "", v1))},
		{"Put", errorOf(db.Put(ctx, project, ref, v1))},
		{"TryLock", errorOf(db.TryLock(ctx, project, "HEAD", ref))},
		{"Prepare", errorOf(db.Prepare(ctx, project, updates, agent))},
		{"Finish", db.Finish(ctx, refdb.Preparation{Project: project, Token: 1, Updates: updates}, []string{ref}, nil)},
		{"States", errorOf(db.States(ctx, project, []string{"HEAD", ref}))},
		{"Lock", errorOf(db.Lock(ended, project, "HEAD", ref))},
	}
	if refdb.CheckProject(project) != nil {
		ops = append(ops,
			op{"Refs", firstError(db.Refs(ctx, project, ""))},
			op{"RemoveProject", errorOf(db.RemoveProject(ctx, project, refdb.Force()))},
			op{"PurgeTombstones", errorOf(db.PurgeTombstones(ctx, project, time.Hour))},
		)
	}
	// In a filter an empty name selects everything, and the lengths are limited one by one.
	if project != "" && ref != "" && (refdb.CheckProject(project) != nil || refdb.CheckRef(ref) != nil) {
		ops = append(ops,
			op{"Locks", firstError(db.Locks(ctx, refdb.LockFilter{Project: project, Ref: ref}))},
			op{"Intents", firstError(db.Intents(ctx, refdb.IntentFilter{Project: project, Ref: ref}))},
		)
	}
	for _, op := range ops {
		if op.err == nil {
			e.Errorf("%s of %.40q %.40q was not refused", op.name, project, ref)
			continue
		}
		e.wantClass(op.err, refdb.ErrInvalid, refdb.Permanent)
	}
}

func firstError[T any](all func(func(T, error) bool)) error {
	for _, err := range all {
		return err
	}
	return nil
}

func invalidRefs() []string {
	names := []string{
		"", "main", "head", "Head", "heads", "refs", "HEAD2", "/", "/refs/heads/a", "refs/heads/", "refs//heads/a",
		"refs/heads/.a", "refs/heads/a.lock", "refs/heads.lock/a", "refs/heads/a.", "refs/heads/a..b", "refs/heads/a@{b", "@",
		"refs/heads/a\xff", "refs/heads/\xc3", "refs/heads/\xed\xa0\x80", // a surrogate without its pair
		"refs/heads/" + strings.Repeat("x", refdb.MaxNameBytes),
	}
	for _, c := range []byte(" ~^:?*[\\\x00\x01\t\n\r\x1f\x7f") {
		names = append(names, "refs/heads/a"+string(c)+"b", "refs/heads/"+string(c), "H"+string(c))
	}
	return slices.Compact(names)
}
