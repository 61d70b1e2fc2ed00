package suite

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/intents"
	"github.com/globalrefdb/globalrefdb/refdb/projects"
)

// Open returns a DB on a driver of its own, whose locks don't become stale unless o says otherwise.
// It is closed when the row ends.
func (e *Env) Open(o refdb.Options) *refdb.DB {
	e.Helper()
	return e.OpenOn(e.DB.Open(e), o)
}

// OpenFaulty is Open, with a FaultyDriver between the DB and its driver.
func (e *Env) OpenFaulty(o refdb.Options) (*refdb.DB, *FaultyDriver) {
	e.Helper()
	t := e.Faulty()
	return e.OpenOn(t, o), t
}

func (e *Env) OpenOn(d driver.Driver, o refdb.Options) *refdb.DB {
	e.Helper()
	if o.Site == "" {
		o.Site = "site-x"
	}
	if o.StaleAfter == 0 {
		o.StaleAfter = StaleAfter
	}
	db, err := refdb.New(d, o)
	e.Must(err)
	e.Cleanup(func() {
		if err := db.Close(); err != nil {
			e.Errorf("Close: %v", err)
		}
	})
	return db
}

// FastHeartbeat returns options with frequent beats, and locks that don't become stale.
func FastHeartbeat() refdb.Options {
	return refdb.Options{Heartbeat: 20 * time.Millisecond, StaleAfter: time.Hour}
}

// Hold takes locks through db that are free or stale. It asks again if the answer of a busy machine
// came too late for the locks to be kept.
func (e *Env) Hold(db *refdb.DB, refs ...string) *refdb.Lock {
	e.Helper()
	ctx, cancel := context.WithTimeout(e.Context(), e.Patience())
	defer cancel()
	l, err := db.TryLock(ctx, e.Project, refs...)
	for err != nil && strings.Contains(err.Error(), "granted too late") && ctx.Err() == nil {
		l, err = db.Lock(ctx, e.Project, refs...) // which waits until what was granted is given back
	}
	e.Must(err)
	return l
}

// WantLocked checks the value that a ref had when it was locked.
func (e *Env) WantLocked(l *refdb.Lock, ref string, want driver.Value) {
	e.Helper()
	if v, err := l.Value(ref); v != want || err != nil {
		e.Errorf("the lock has %q for %s (%v), want %q", v, ref, err, want)
	}
}

// LockOf returns l as a driver knows it.
func LockOf(l *refdb.Lock) Lock {
	return Lock{
		driver.AcquireRequest{Project: l.Project(), Refs: l.Refs(), Owner: l.Owner()},
		driver.Acquired{Token: l.Token()},
	}
}

// Seize reclaims a lock whose holder is alive, and may beat between the aging and the reclaim.
func (e *Env) Seize(l *refdb.Lock, refs ...string) Lock {
	e.Helper()
	for deadline := time.Now().Add(e.Patience()); time.Now().Before(deadline); {
		for _, ref := range refs {
			e.DB.Age(e, e.Project, ref, 2*time.Hour)
		}
		if got, err := e.TryAcquire(e.B, refs...); !e.Refusal(err) {
			return got
		}
	}
	e.Fatal("the lock could not be seized")
	return Lock{}
}

// WantClass checks an error and its class.
func (e *Env) WantClass(err error, sentinel error, class driver.Class) {
	e.Helper()
	if !errors.Is(err, sentinel) || driver.ClassOf(err) != class {
		e.Errorf("got %v of class %v, want %v of class %v", err, driver.ClassOf(err), sentinel, class)
	}
}

// Patience is how long to wait for something that must happen: so long that on a slow machine, too,
// only what never happens takes longer.
func (e *Env) Patience() time.Duration { return patienceOf(e.DB) }

func patienceOf(db Database) time.Duration {
	if p, ok := db.(patient); ok {
		return p.Patience()
	}
	return defaultPatience
}

// Receive waits for a value from a channel, or for the channel to be closed.
func Receive[T any](e *Env, c <-chan T, what string) (v T) {
	e.Helper()
	select {
	case v = <-c:
	case <-time.After(e.Patience()):
		e.Fatalf("it never came to this: %s", what)
	}
	return v
}

// WantEnd waits until the lock is done, and checks the reason.
func (e *Env) WantEnd(l *refdb.Lock, reason error) {
	e.Helper()
	Receive(e, l.Done(), "the holder is told")
	if err := l.Err(); !errors.Is(err, reason) {
		e.Errorf("Err is %v, want %v", err, reason)
	}
}

// WantCause waits until a lock's context ends, and checks the cause.
func (e *Env) WantCause(ctx context.Context, reason error) {
	e.Helper()
	Receive(e, ctx.Done(), "the lock's context ends")
	if cause := context.Cause(ctx); !errors.Is(cause, reason) {
		e.Errorf("the context's cause is %v, want %v", cause, reason)
	}
}

// WantHeld checks that the lock is held, in the database and for its holder.
func (e *Env) WantHeld(l *refdb.Lock) {
	e.Helper()
	if err := l.Err(); err != nil {
		e.Errorf("Err is %v, want nil", err)
	}
	select {
	case <-l.Done():
		e.Error("Done is closed")
	default:
	}
	e.WantLock(LockOf(l))
}

// Eventually polls until ok.
func (e *Env) Eventually(what string, ok func() bool) {
	e.Helper()
	if !e.Poll(ok) {
		e.Fatalf("it never came to this: %s", what)
	}
}

// Poll calls ok until it returns true, and reports whether it did before patience is over. The
// pauses grow to 20 ms, or to the time that ok takes: a database that is asked all the time does
// little else.
func (e *Env) Poll(ok func() bool) bool {
	pause := time.Millisecond
	for deadline := time.Now().Add(e.Patience()); ; pause = min(2*pause, 20*time.Millisecond) {
		start := time.Now()
		if ok() {
			return true
		}
		if time.Now().After(deadline) {
			return false
		}
		time.Sleep(max(pause, time.Since(start)))
	}
}

// Free reports whether no lock stands on the refs.
func (e *Env) Free(refs ...string) bool {
	e.Helper()
	return !slices.ContainsFunc(refs, func(ref string) bool {
		_, ok := e.DB.RowLock(e, e.Project, ref)
		return ok
	})
}

// A Call is a request of a DB to its driver.
type Call struct {
	Method string
	Ctx    context.Context
	Arg    any          // the request
	Do     func() error // sends it to the real driver
}

// A FaultyDriver counts the calls of a DB, and injects faults: calls go through a function
// of the row, which can fail them or lose their replies.
type FaultyDriver struct {
	driver.Driver // its other roles, such as Notifier, are hidden

	mu    sync.Mutex
	on    func(Call) error
	calls map[string]int
}

// Faulty opens a driver that injects no fault yet.
func (e *Env) Faulty() *FaultyDriver {
	e.Helper()
	return &FaultyDriver{Driver: e.DB.Open(e), calls: make(map[string]int)}
}

// Inject sends later calls through f; nil ends that.
func (t *FaultyDriver) Inject(f func(Call) error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.on = f
}

// Count returns the number of calls of a method, or of all methods for "".
func (t *FaultyDriver) Count(method string) int {
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

func (t *FaultyDriver) Call(ctx context.Context, method string, arg any, do func() error) error {
	t.mu.Lock()
	t.calls[method]++
	on := t.on
	t.mu.Unlock()
	if on == nil {
		return do()
	}
	return on(Call{method, ctx, arg, do})
}

// Injected errors.
var (
	ErrLost = fmt.Errorf("a test lost the reply: %w", driver.ErrOutcomeUnknown)
	ErrDown = fmt.Errorf("a test cut the connection: %w", driver.ErrUnavailable)
)

// LoseReply carries out the first call of a method, and loses its reply.
func LoseReply(method string) func(Call) error {
	return OnFirst(method, func(c Call) error { return errors.Join(ErrLost, c.Do()) })
}

// LoseRequest does not carry out the first call of a method. The caller can't tell it from
// LoseReply.
func LoseRequest(method string) func(Call) error {
	return OnFirst(method, func(Call) error { return ErrLost })
}

// DelayRequest carries out the first call of a method when the second one comes, right before
// it. The first caller can't tell it from LoseRequest.
func (e *Env) DelayRequest(method string) func(Call) error {
	var late func() error
	return func(c Call) error {
		switch {
		case c.Method != method:
			return c.Do()
		case late == nil:
			late = c.Do
			return ErrLost
		default:
			e.Must(late())
			return c.Do()
		}
	}
}

// OnFirst sends only the first call of a method through f.
func OnFirst(method string, f func(Call) error) func(Call) error {
	var once sync.Once
	return func(c Call) error {
		err, done := error(nil), false
		if c.Method == method {
			once.Do(func() { err, done = f(c), true })
		}
		if done {
			return err
		}
		return c.Do()
	}
}

// asked makes a call. With an error it returns no answer, unless the error is a refusal.
func asked[T any](t *FaultyDriver, ctx context.Context, method string, arg any, ask func() (T, error)) (T, error) {
	var answer T
	err := t.Call(ctx, method, arg, func() (err error) {
		answer, err = ask()
		return err
	})
	if err != nil && !errors.Is(err, driver.ErrLocked) {
		var none T
		return none, err
	}
	return answer, err
}

func (t *FaultyDriver) Get(ctx context.Context, project string, refs []string) ([]driver.Ref, error) {
	return asked(t, ctx, "Get", refs, func() ([]driver.Ref, error) { return t.Driver.Get(ctx, project, refs) })
}

func (t *FaultyDriver) Summaries(ctx context.Context, q driver.SummaryQuery) (driver.SummaryPage, error) {
	return asked(t, ctx, "Summaries", q, func() (driver.SummaryPage, error) { return t.Driver.Summaries(ctx, q) })
}

func (t *FaultyDriver) List(ctx context.Context, q driver.RefQuery) (driver.RefPage, error) {
	return asked(t, ctx, "List", q, func() (driver.RefPage, error) { return t.Driver.List(ctx, q) })
}

func (t *FaultyDriver) States(ctx context.Context, project string, refs []string) ([]driver.State, error) {
	return asked(t, ctx, "States", refs, func() ([]driver.State, error) { return t.Driver.States(ctx, project, refs) })
}

func (t *FaultyDriver) Update(ctx context.Context, r driver.UpdateRequest) error {
	return ErrorOf(asked(t, ctx, "Update", r, func() (struct{}, error) { return struct{}{}, t.Driver.Update(ctx, r) }))
}

func (t *FaultyDriver) Remove(ctx context.Context, r driver.RemoveRequest) (int, error) {
	return asked(t, ctx, "Remove", r, func() (int, error) { return t.Driver.Remove(ctx, r) })
}

func (t *FaultyDriver) PurgeTombstones(ctx context.Context, r driver.TombstoneRequest) (int, error) {
	return asked(t, ctx, "PurgeTombstones", r, func() (int, error) { return t.Driver.PurgeTombstones(ctx, r) })
}

func (t *FaultyDriver) Acquire(ctx context.Context, r driver.AcquireRequest) (driver.Acquired, error) {
	return asked(t, ctx, "Acquire", r, func() (driver.Acquired, error) { return t.Driver.Acquire(ctx, r) })
}

func (t *FaultyDriver) Beat(ctx context.Context, locks []driver.LockID) ([]driver.BeatResult, error) {
	return asked(t, ctx, "Beat", locks, func() ([]driver.BeatResult, error) { return t.Driver.Beat(ctx, locks) })
}

func (t *FaultyDriver) Release(ctx context.Context, r driver.ReleaseRequest) (driver.Released, error) {
	return asked(t, ctx, "Release", r, func() (driver.Released, error) { return t.Driver.Release(ctx, r) })
}

func (t *FaultyDriver) Purge(ctx context.Context, locks []driver.StandingLock) ([]bool, error) {
	return asked(t, ctx, "Purge", locks, func() ([]bool, error) { return t.Driver.Purge(ctx, locks) })
}

func (t *FaultyDriver) Abandon(ctx context.Context, r driver.AbandonRequest) error {
	return t.Call(ctx, "Abandon", r, func() error { return t.Driver.Abandon(ctx, r) })
}

func (t *FaultyDriver) Locks(ctx context.Context, q driver.LockQuery) (driver.LockPage, error) {
	return asked(t, ctx, "Locks", q, func() (driver.LockPage, error) { return t.Driver.Locks(ctx, q) })
}

func (t *FaultyDriver) Prepare(ctx context.Context, r driver.PrepareRequest) (driver.Prepared, error) {
	return asked(t, ctx, "Prepare", r, func() (driver.Prepared, error) { return t.Driver.Prepare(ctx, r) })
}

func (t *FaultyDriver) Finish(ctx context.Context, r driver.FinishRequest) error {
	return t.Call(ctx, "Finish", r, func() error { return t.Driver.Finish(ctx, r) })
}

func (t *FaultyDriver) Revoke(ctx context.Context, r driver.PrepareRequest) error {
	return t.Call(ctx, "Revoke", r, func() error { return t.Driver.Revoke(ctx, r) })
}

func (t *FaultyDriver) Resolve(ctx context.Context, r driver.ResolveRequest) ([]bool, error) {
	return asked(t, ctx, "Resolve", r, func() ([]bool, error) { return t.Driver.Resolve(ctx, r) })
}

func (t *FaultyDriver) Forget(ctx context.Context, intents []driver.LockID) error {
	return t.Call(ctx, "Forget", intents, func() error { return t.Driver.Forget(ctx, intents) })
}

func (t *FaultyDriver) Intents(ctx context.Context, q driver.IntentQuery) (driver.IntentPage, error) {
	return asked(t, ctx, "Intents", q, func() (driver.IntentPage, error) { return t.Driver.Intents(ctx, q) })
}

func (t *FaultyDriver) Changes(ctx context.Context, r driver.ChangesRequest) (driver.ChangesPage, error) {
	return asked(t, ctx, "Changes", r, func() (driver.ChangesPage, error) { return t.Driver.Changes(ctx, r) })
}

func (t *FaultyDriver) Look(ctx context.Context, witness string, known []driver.Known) (driver.Looked, error) {
	return asked(t, ctx, "Look", known, func() (driver.Looked, error) { return t.Driver.Look(ctx, witness, known) })
}

func (t *FaultyDriver) Report(ctx context.Context, r driver.Report) (driver.Admission, error) {
	return asked(t, ctx, "Report", r, func() (driver.Admission, error) { return t.Driver.Report(ctx, r) })
}

func (t *FaultyDriver) Now(ctx context.Context) (time.Time, error) {
	return asked(t, ctx, "Now", nil, func() (time.Time, error) { return t.Driver.Now(ctx) })
}

func ErrorOf[T any](_ T, err error) error { return err }

// WantNotAsked checks that no request about a name went to the driver.
func (e *Env) WantNotAsked(driver *FaultyDriver, name string) {
	e.Helper()
	if n := driver.Count(""); n != 0 {
		e.Fatalf("%.40q: the database was asked %d times", name, n)
	}
}

// RefusedByAll checks that every operation of db refuses a key.
func (e *Env) RefusedByAll(db *refdb.DB, project, ref string) {
	e.Helper()
	ctx := e.Context()
	ended, cancel := context.WithCancel(ctx)
	cancel() // so that a Lock that is not refused doesn't wait
	type op struct {
		name string
		err  error
	}
	updates := []driver.Update{Move(RefA, "", V1), Move(ref, "", V1)}
	ops := []op{
		{"Get", ErrorOf(db.Get(ctx, project, ref))},
		{"GetAll", ErrorOf(db.GetAll(ctx, project, "HEAD", ref))},
		{"Exists", ErrorOf(db.Exists(ctx, project, ref))},
		{"IsUpToDate", ErrorOf(db.IsUpToDate(ctx, project, ref, V1))},
		{"Update", db.Update(ctx, project, updates[1:])},
		{"Update of several", db.Update(ctx, project, append(updates, Move("HEAD", "", V1)))},
		{"Update under a lock", db.Update(ctx, project, []driver.Update{Move("HEAD", "", V1)}, refdb.Under("site/1", 1, ref))},
		{"CompareAndPut", ErrorOf(db.CompareAndPut(ctx, project, ref, "", V1))},
		{"Put", ErrorOf(db.Put(ctx, project, ref, V1))},
		{"TryLock", ErrorOf(db.TryLock(ctx, project, "HEAD", ref))},
		{"Prepare", ErrorOf(db.Intents().Prepare(ctx, project, updates, Agent))},
		{"Finish", db.Intents().Finish(ctx, intents.Preparation{Project: project, Token: 1, Updates: updates}, []string{ref}, nil)},
		{"States", ErrorOf(db.Intents().States(ctx, project, []string{"HEAD", ref}))},
		{"Lock", ErrorOf(db.Lock(ended, project, "HEAD", ref))},
	}
	if driver.CheckProject(project) != nil {
		ops = append(ops,
			op{"Refs", FirstError(db.Refs(ctx, project, ""))},
			op{"RemoveProject", ErrorOf(db.Projects().Remove(ctx, project, projects.Force()))},
			op{"PurgeTombstones", ErrorOf(db.Operator().PurgeTombstones(ctx, project, time.Hour))},
		)
	}
	// In a filter an empty name selects everything, and the lengths are limited one by one.
	if project != "" && ref != "" && (driver.CheckProject(project) != nil || driver.CheckRef(ref) != nil) {
		ops = append(ops,
			op{"Locks", FirstError(db.Locks(ctx, driver.LockFilter{Project: project, Ref: ref}))},
			op{"Intents", FirstError(db.Intents().All(ctx, driver.IntentFilter{Project: project, Ref: ref}))},
		)
	}
	for _, op := range ops {
		if op.err == nil {
			e.Errorf("%s of %.40q %.40q was not refused", op.name, project, ref)
			continue
		}
		e.WantClass(op.err, driver.ErrInvalid, driver.Permanent)
	}
}

func FirstError[T any](all func(func(T, error) bool)) error {
	for _, err := range all {
		return err
	}
	return nil
}

func InvalidRefs() []string {
	names := []string{
		"", "main", "head", "Head", "heads", "refs", "HEAD2", "/", "/refs/heads/a", "refs/heads/", "refs//heads/a",
		"refs/heads/.a", "refs/heads/a.lock", "refs/heads.lock/a", "refs/heads/a.", "refs/heads/a..b", "refs/heads/a@{b", "@",
		"refs/heads/a\xff", "refs/heads/\xc3", "refs/heads/\xed\xa0\x80", // a surrogate without its pair
		"refs/heads/" + strings.Repeat("x", driver.MaxNameBytes),
	}
	for _, c := range []byte(" ~^:?*[\\\x00\x01\t\n\r\x1f\x7f") {
		names = append(names, "refs/heads/a"+string(c)+"b", "refs/heads/"+string(c), "H"+string(c))
	}
	return slices.Compact(names)
}
