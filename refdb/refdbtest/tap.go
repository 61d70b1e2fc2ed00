package refdbtest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
)

// A call is one request that a DB makes of its driver.
type call struct {
	method string
	ctx    context.Context
	arg    any          // what was asked
	do     func() error // asks the real driver
}

// A tap is a driver whose calls go through a function of the row's: it counts
// them, makes them fail, or loses their replies.
type tap struct {
	refdb.Driver // hides what else it can do, such as to notify

	mu    sync.Mutex
	on    func(call) error
	calls map[string]int
}

// tapped puts a tap on a driver of its own. Until the row says something else
// its calls are only counted.
func (e *env) tapped() *tap {
	e.Helper()
	return &tap{Driver: e.db.Open(e), calls: make(map[string]int)}
}

// do has the following calls go through f.
func (t *tap) do(f func(call) error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.on = f
}

// count returns how many calls of a method, or of any for "", there were.
func (t *tap) count(method string) int {
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

func (t *tap) call(ctx context.Context, method string, arg any, do func() error) error {
	t.mu.Lock()
	t.calls[method]++
	on := t.on
	t.mu.Unlock()
	if on == nil {
		return do()
	}
	return on(call{method, ctx, arg, do})
}

// What a tap may do to a call.
var (
	errLost = fmt.Errorf("a test lost the reply: %w", refdb.ErrOutcomeUnknown)
	errDown = fmt.Errorf("a test cut the connection: %w", refdb.ErrUnavailable)
)

// lose lets the first call of a method through and loses its reply.
func lose(method string) func(call) error {
	return first(method, func(c call) error { return errors.Join(errLost, c.do()) })
}

// drop loses the first call of a method on its way, which nobody can tell from a lost reply.
func drop(method string) func(call) error {
	return first(method, func(call) error { return errLost })
}

// first has only the first call of a method go through f.
func first(method string, f func(call) error) func(call) error {
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

// asked is what a call returns: nothing beside an error, unless that is a refusal.
func asked[T any](t *tap, ctx context.Context, method string, arg any, ask func() (T, error)) (T, error) {
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

func (t *tap) Get(ctx context.Context, project string, refs []string) ([]refdb.Ref, error) {
	return asked(t, ctx, "Get", refs, func() ([]refdb.Ref, error) { return t.Driver.Get(ctx, project, refs) })
}

func (t *tap) List(ctx context.Context, q refdb.RefQuery) (refdb.RefPage, error) {
	return asked(t, ctx, "List", q, func() (refdb.RefPage, error) { return t.Driver.List(ctx, q) })
}

func (t *tap) States(ctx context.Context, project string, refs []string) ([]refdb.State, error) {
	return asked(t, ctx, "States", refs, func() ([]refdb.State, error) { return t.Driver.States(ctx, project, refs) })
}

func (t *tap) Update(ctx context.Context, r refdb.UpdateRequest) error {
	return second(asked(t, ctx, "Update", r, func() (struct{}, error) { return struct{}{}, t.Driver.Update(ctx, r) }))
}

func (t *tap) Remove(ctx context.Context, r refdb.RemoveRequest) (int, error) {
	return asked(t, ctx, "Remove", r, func() (int, error) { return t.Driver.Remove(ctx, r) })
}

func (t *tap) PurgeTombstones(ctx context.Context, r refdb.TombstoneRequest) (int, error) {
	return asked(t, ctx, "PurgeTombstones", r, func() (int, error) { return t.Driver.PurgeTombstones(ctx, r) })
}

func (t *tap) Acquire(ctx context.Context, r refdb.AcquireRequest) (refdb.Acquired, error) {
	return asked(t, ctx, "Acquire", r, func() (refdb.Acquired, error) { return t.Driver.Acquire(ctx, r) })
}

func (t *tap) Beat(ctx context.Context, locks []refdb.LockID) ([]refdb.BeatResult, error) {
	return asked(t, ctx, "Beat", locks, func() ([]refdb.BeatResult, error) { return t.Driver.Beat(ctx, locks) })
}

func (t *tap) Release(ctx context.Context, r refdb.ReleaseRequest) (refdb.Released, error) {
	return asked(t, ctx, "Release", r, func() (refdb.Released, error) { return t.Driver.Release(ctx, r) })
}

func (t *tap) Purge(ctx context.Context, locks []refdb.StandingLock) ([]bool, error) {
	return asked(t, ctx, "Purge", locks, func() ([]bool, error) { return t.Driver.Purge(ctx, locks) })
}

func (t *tap) Abandon(ctx context.Context, r refdb.AbandonRequest) error {
	return t.call(ctx, "Abandon", r, func() error { return t.Driver.Abandon(ctx, r) })
}

func (t *tap) Locks(ctx context.Context, q refdb.LockQuery) (refdb.LockPage, error) {
	return asked(t, ctx, "Locks", q, func() (refdb.LockPage, error) { return t.Driver.Locks(ctx, q) })
}

func (t *tap) Prepare(ctx context.Context, r refdb.PrepareRequest) (refdb.Prepared, error) {
	return asked(t, ctx, "Prepare", r, func() (refdb.Prepared, error) { return t.Driver.Prepare(ctx, r) })
}

func (t *tap) Finish(ctx context.Context, r refdb.FinishRequest) error {
	return t.call(ctx, "Finish", r, func() error { return t.Driver.Finish(ctx, r) })
}

func (t *tap) Revoke(ctx context.Context, r refdb.PrepareRequest) error {
	return t.call(ctx, "Revoke", r, func() error { return t.Driver.Revoke(ctx, r) })
}

func (t *tap) Resolve(ctx context.Context, r refdb.ResolveRequest) ([]bool, error) {
	return asked(t, ctx, "Resolve", r, func() ([]bool, error) { return t.Driver.Resolve(ctx, r) })
}

func (t *tap) Forget(ctx context.Context, intents []refdb.LockID) error {
	return t.call(ctx, "Forget", intents, func() error { return t.Driver.Forget(ctx, intents) })
}

func (t *tap) Intents(ctx context.Context, q refdb.IntentQuery) (refdb.IntentPage, error) {
	return asked(t, ctx, "Intents", q, func() (refdb.IntentPage, error) { return t.Driver.Intents(ctx, q) })
}

func (t *tap) Now(ctx context.Context) (time.Time, error) {
	return asked(t, ctx, "Now", nil, func() (time.Time, error) { return t.Driver.Now(ctx) })
}
