// Package grants is for programs that lock refs on behalf of clients and keep no state: a service
// in front of the database, whose clients may send each request to a different process of the
// service. A grant is a lock that is identified only by its owner and its token. No process renews
// a grant by itself: the client extends it, through any process of the service.
//
// A write under a grant is fenced like a write under a lock: refdb.DB.Update with refdb.Under. A
// process that holds locks for itself uses refdb.DB.Lock, which renews them and reports their loss
// in time.
package grants

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/internal/engine"
	"github.com/globalrefdb/globalrefdb/refdb/internal/queue"
)

// A Handle acquires, extends and releases grants in a database: see refdb.DB.Grants. Its methods
// may be called concurrently.
type Handle struct{ engine *engine.Engine }

// New returns a Handle on e. Only package refdb calls it: programs get theirs from a refdb.DB.
func New(e *engine.Engine) *Handle { return &Handle{engine: e} }

// A Grant identifies the lock of an owner on refs of one project.
type Grant struct {
	Project string
	Refs    []string
	Owner   string // the client; other clients must not be able to guess it if they aren't trusted
	Token   driver.Token
}

// Acquired is a new grant.
type Acquired struct {
	Grant
	// Values are the rows that exist for the refs, as of the acquisition, in byte order.
	Values []driver.Ref
	// Reclaimed is the number of stale locks that were taken over.
	Reclaimed int
	// Existing says that an earlier call of [Handle.AcquireUnique] acquired the grant.
	Existing bool
}

// Acquire locks refs of a project, at most [driver.MaxLockRefs], all or none, for an owner, without
// waiting. It takes over stale locks. While some of the refs have fresh locks, the error is a
// [*driver.LockedError], even if the locks belong to the same owner: each acquisition is a separate
// grant. After an error that wraps [driver.ErrOutcomeUnknown] the locks may exist for a while: they
// are released in the background.
//
// The grant lasts for staleAfter, counted from before the call, and again from before each
// [Handle.Extend]. Later, other owners may take its locks. The client must stop its work by its own
// clock before that.
func (h *Handle) Acquire(ctx context.Context, owner string, staleAfter time.Duration, project string, refs ...string) (a Acquired, err error) {
	refs, err = engine.CheckRefs(project, refs, driver.MaxLockRefs)
	if err == nil {
		err = errors.Join(engine.CheckOwner(owner), engine.CheckStaleAfter(staleAfter))
	}
	if err != nil {
		return Acquired{}, fmt.Errorf("acquiring a grant: %w", err)
	}
	start := time.Now()
	defer func() {
		h.engine.Observed(driver.Event{Op: driver.OpTryLock, Refs: len(refs), Reclaimed: a.Reclaimed, Attempts: 1}, start, err)
	}()
	r := driver.AcquireRequest{Project: project, Refs: refs, Owner: owner, Nonce: rand.Text(), StaleAfter: staleAfter}
	got, abandoned, err := h.engine.Acquire(ctx, r)
	if err != nil {
		return Acquired{}, fmt.Errorf("acquiring a grant: %w", asUnknown(err, abandoned))
	}
	sortByName(got.Refs)
	return Acquired{Grant: Grant{project, refs, owner, got.Token}, Values: got.Refs, Reclaimed: len(got.Reclaimed)}, nil
}

// AcquireUnique is [Handle.Acquire] for an owner that the client uses for a single acquisition, so that
// the client can repeat the call, through any process: if the owner has the locks from an earlier call
// with the same refs and staleAfter, AcquireUnique extends that grant and returns it, with Existing
// set. The values are then the current ones.
//
// AcquireUnique never releases locks that a call may have acquired: after an error that wraps
// [driver.ErrOutcomeUnknown] the owner may have the locks until they are stale, and a repeat gets
// them. The end of ctx prevents a request, but does not interrupt one: a driver would release the
// locks. So the call lasts until the database answers, however long that takes, or the driver is
// closed.
func (h *Handle) AcquireUnique(ctx context.Context, owner string, staleAfter time.Duration, project string, refs ...string) (Acquired, error) {
	return h.acquireUnique(ctx, driver.Waiter{}, owner, staleAfter, project, refs)
}

// keptFor is how long free locks are reserved for a waiter of [Handle.AcquireInTurn].
const keptFor = 5 * time.Second

// AcquireInTurn is [Handle.AcquireUnique] for a client that repeats the call until it gets the
// locks. If the locks are refused, the client enters the queues of their rows, which also contain
// the processes that wait in refdb.DB.Lock. When the client's turn comes, the locks are reserved
// for it for 5 seconds. The place belongs to the waiter: calls with the same waiter and refs have
// the same place, whichever process makes them. The name of a waiter consists of 1 to 32 ASCII
// letters and digits, which other clients must not be able to guess.
//
// A client that gives up should call [Handle.Leave]: otherwise the waiters behind it have to wait
// until its turn is over.
func (h *Handle) AcquireInTurn(
	ctx context.Context, waiter, owner string, staleAfter time.Duration, project string, refs ...string,
) (Acquired, error) {
	return h.acquireUnique(ctx, driver.Waiter{ID: waiter, Channel: queue.Unheard, Turn: keptFor}, owner, staleAfter, project, refs)
}

// Leave removes a waiter of [Handle.AcquireInTurn] from the queues of refs.
func (h *Handle) Leave(ctx context.Context, waiter, owner, project string, refs ...string) error {
	refs, err := engine.CheckRefs(project, refs, driver.MaxLockRefs)
	if err == nil {
		r := driver.AbandonRequest{Project: project, Refs: refs, Owner: owner, Waiter: waiter}
		_, err = engine.Retry(ctx, h.engine, func(d driver.Driver) (struct{}, error) { return struct{}{}, engine.Repeatable(d.Abandon(ctx, r)) })
	}
	if err != nil {
		return fmt.Errorf("leaving the queues of locks: %w", err)
	}
	return nil
}

func (h *Handle) acquireUnique(
	ctx context.Context, waiter driver.Waiter, owner string, staleAfter time.Duration, project string, refs []string,
) (a Acquired, err error) {
	refs, err = engine.CheckRefs(project, refs, driver.MaxLockRefs)
	if err == nil {
		err = errors.Join(engine.CheckOwner(owner), engine.CheckStaleAfter(staleAfter))
	}
	if err == nil {
		err = h.engine.SchemaError()
	}
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return Acquired{}, fmt.Errorf("acquiring a grant: %w", err)
	}
	ctx = context.WithoutCancel(ctx)
	start := time.Now()
	defer func() {
		h.engine.Observed(driver.Event{Op: driver.OpTryLock, Refs: len(refs), Reclaimed: a.Reclaimed, Attempts: 1}, start, err)
	}()
	r := driver.AcquireRequest{Project: project, Refs: refs, Owner: owner, Nonce: rand.Text(), StaleAfter: staleAfter, Waiter: waiter}
	lostReply := false
	got, err := engine.Retry(ctx, h.engine, func(d driver.Driver) (driver.Acquired, error) {
		got, err := d.Acquire(ctx, r)
		lostReply = lostReply || errors.Is(err, driver.ErrOutcomeUnknown)
		if errors.Is(err, driver.ErrUnconfirmed) {
			return got, err // finding the rows again would not confirm them
		}
		return got, engine.Repeatable(err)
	})
	var locked *driver.LockedError
	switch {
	case err == nil:
		sortByName(got.Refs)
		return Acquired{Grant: Grant{project, refs, owner, got.Token}, Values: got.Refs, Reclaimed: len(got.Reclaimed)}, nil
	case lostReply:
		// Even after a refusal: the first request may be carried out late.
		err = asUnknown(err, lostReply)
	case errors.As(err, &locked):
		if g, ok := standing(locked, project, refs, owner); ok {
			if waiter.ID != "" {
				// The refusal has put the waiter into the queues of its own locks. If Leave fails,
				// the release of the locks reserves them for one turn.
				_ = h.Leave(ctx, waiter.ID, owner, project, refs...)
			}
			return h.existing(ctx, g, err)
		}
	}
	return Acquired{}, fmt.Errorf("acquiring a grant: %w", err)
}

// standing returns the owner's grant on refs, if all locks that refused the request belong to that
// grant.
func standing(e *driver.LockedError, project string, refs []string, owner string) (Grant, bool) {
	g := Grant{Project: project, Refs: refs, Owner: owner}
	held := map[string]bool{}
	for _, l := range e.Holders {
		if l.Owner != owner || l.Intended() || g.Token != 0 && l.Token != g.Token {
			return Grant{}, false
		}
		g.Token, held[l.Ref] = l.Token, true
	}
	return g, !slices.ContainsFunc(refs, func(ref string) bool { return !held[ref] })
}

// existing extends a grant and returns it. If the grant is lost in the meantime, the error wraps
// refusal, which named the grant.
func (h *Handle) existing(ctx context.Context, g Grant, refusal error) (Acquired, error) {
	err := h.Extend(ctx, g)
	if errors.Is(err, driver.ErrLockLost) {
		return Acquired{}, fmt.Errorf("acquiring a grant: %w", refusal)
	}
	var values []driver.Ref
	if err == nil {
		values, err = engine.Retry(ctx, h.engine, func(d driver.Driver) ([]driver.Ref, error) { return d.Get(ctx, g.Project, g.Refs) })
	}
	if err != nil {
		return Acquired{}, fmt.Errorf("acquiring a grant: %w: it stands, but could not be extended: %w", driver.ErrOutcomeUnknown, err)
	}
	sortByName(values)
	return Acquired{Grant: g, Values: values, Existing: true}, nil
}

func sortByName(refs []driver.Ref) {
	slices.SortFunc(refs, func(a, b driver.Ref) int { return strings.Compare(a.Name, b.Name) })
}

// Extend renews a grant. If some of its locks no longer exist or have another owner, the grant is
// lost, and the error is a [*driver.LostError]; its other locks remain until they are released or
// stale. After any other error the grant lasts at least as long as before; if it may have been
// renewed, the error wraps [driver.ErrOutcomeUnknown].
func (h *Handle) Extend(ctx context.Context, g Grant) (err error) {
	refs, err := g.sortedRefs()
	if err != nil {
		return fmt.Errorf("extending a grant: %w", err)
	}
	ids := make([]driver.LockID, len(refs))
	for i, ref := range refs {
		ids[i] = driver.LockID{Project: g.Project, Ref: ref, Owner: g.Owner, Token: g.Token}
	}
	start := time.Now()
	defer func() { h.engine.Observed(driver.Event{Op: driver.OpBeat, Refs: len(refs)}, start, err) }()
	lostReply := false
	results, err := engine.Retry(ctx, h.engine, func(d driver.Driver) ([]driver.BeatResult, error) {
		results, err := d.Beat(ctx, ids)
		lostReply = lostReply || errors.Is(err, driver.ErrOutcomeUnknown)
		return results, engine.Repeatable(err)
	})
	if err != nil {
		return fmt.Errorf("extending a grant on refs of %s: %w", g.Project, asUnknown(err, lostReply))
	}
	lost := driver.LostError{Project: g.Project, Reason: "the database no longer has the lock, or another owner has it"}
	unknown := 0
	for i, r := range results {
		switch r {
		case driver.BeatLost:
			lost.Refs = append(lost.Refs, refs[i])
		case driver.BeatUnknown:
			unknown++
		}
	}
	switch {
	case len(lost.Refs) > 0:
		return fmt.Errorf("extending a grant: %w", &lost)
	case unknown > 0:
		err := fmt.Errorf("%w: %d of %d locks were not renewed", driver.ErrUnavailable, unknown, len(refs))
		return fmt.Errorf("extending a grant: %w", asUnknown(err, lostReply || unknown < len(refs)))
	}
	return nil
}

// Release ends a grant. If some of its locks no longer exist or have another owner, Release ends
// the others, and the error is a [*driver.LostError]: the grant did not guard the work until now.
// If a reply was lost, it is unknown whether Release itself ended the missing locks: then the error
// wraps [driver.ErrOutcomeUnknown], even if the database refused the repeated request.
func (h *Handle) Release(ctx context.Context, g Grant) (err error) {
	refs, err := g.sortedRefs()
	if err != nil {
		return fmt.Errorf("releasing a grant: %w", err)
	}
	start := time.Now()
	defer func() { h.engine.Observed(driver.Event{Op: driver.OpRelease, Refs: len(refs)}, start, err) }()
	r := driver.ReleaseRequest{Project: g.Project, Refs: refs, Owner: g.Owner, Token: g.Token}
	lostReply := false
	released, err := engine.Retry(ctx, h.engine, func(d driver.Driver) (driver.Released, error) {
		released, err := d.Release(ctx, r)
		lostReply = lostReply || errors.Is(err, driver.ErrOutcomeUnknown)
		return released, engine.Repeatable(err)
	})
	switch {
	case err != nil:
		return fmt.Errorf("releasing a grant on refs of %s: %w", g.Project, asUnknown(err, lostReply))
	case len(released.Missing) > 0 && lostReply:
		return fmt.Errorf("releasing a grant: %w: it was released, or lost before that", driver.ErrOutcomeUnknown)
	case len(released.Missing) > 0:
		return fmt.Errorf("releasing a grant: %w", &driver.LostError{Project: g.Project, Refs: released.Missing, Reason: "the database no longer has the lock, or another owner has it"})
	}
	return nil
}

// asUnknown makes err wrap driver.ErrOutcomeUnknown if the request may have been carried out.
func asUnknown(err error, possible bool) error {
	if !possible || errors.Is(err, driver.ErrOutcomeUnknown) {
		return err
	}
	return fmt.Errorf("%w: %w", driver.ErrOutcomeUnknown, err)
}

// sortedRefs returns the refs of g in the order that drivers require, or an error if g is not
// valid.
func (g Grant) sortedRefs() ([]string, error) {
	if err := engine.CheckOwner(g.Owner); err != nil {
		return nil, err
	}
	return engine.CheckRefs(g.Project, g.Refs, driver.MaxLockRefs)
}
