// Package grants is for programs that lock refs on behalf of others, and keep no state about it: a
// service in front of the database, whose clients may send each request to another of its
// processes. A grant is a lock that is named by its owner and its token alone. No process renews it
// by itself: the client extends it, through any process of the service.
//
// A write under a grant is fenced as one under a lock: refdb.DB.Update with refdb.Under. A process
// that holds locks for itself uses refdb.DB.Lock, which renews them and reports their loss in time.
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
)

// A Handle acquires, extends and releases grants in a database: see refdb.DB.Grants. Its methods
// may be called concurrently.
type Handle struct{ engine *engine.Engine }

// New returns a Handle on e. Only package refdb calls it: programs get theirs from a refdb.DB.
func New(e *engine.Engine) *Handle { return &Handle{engine: e} }

// A Grant is the lock on refs of one project, as its owner names it.
type Grant struct {
	Project string
	Refs    []string
	Owner   string // the client; other clients must not be able to guess it if they aren't trusted
	Token   driver.Token
}

// Acquired is a new grant.
type Acquired struct {
	Grant
	// Values are the rows of those refs that have one, as of the acquisition, in byte order.
	Values []driver.Ref
	// Reclaimed is how many stale locks were taken over.
	Reclaimed int
}

// Acquire locks refs of a project, at most [driver.MaxLockRefs], all or none, for an owner, without
// waiting. It takes stale locks over. While fresh locks stand on some of the refs, the error is a
// [*driver.LockedError], even if they are the same owner's: each acquisition is another grant.
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
	got, err := h.engine.Acquire(ctx, r)
	if err != nil {
		return Acquired{}, fmt.Errorf("acquiring a grant: %w", err)
	}
	slices.SortFunc(got.Refs, func(a, b driver.Ref) int { return strings.Compare(a.Name, b.Name) })
	return Acquired{Grant{project, refs, owner, got.Token}, got.Refs, len(got.Reclaimed)}, nil
}

// Extend renews a grant. If some of its locks are gone or another owner's, the grant is lost, and
// the error is a [*driver.LostError]; the others stand until they are released or stale. After any
// other error the grant lasts as long as before.
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
	results, err := engine.Retry(ctx, h.engine, func(d driver.Driver) ([]driver.BeatResult, error) {
		results, err := d.Beat(ctx, ids)
		return results, engine.Repeatable(err)
	})
	if err != nil {
		return fmt.Errorf("extending a grant on refs of %s: %w", g.Project, err)
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
		return fmt.Errorf("extending a grant: %w: %d of %d locks were not renewed", driver.ErrUnavailable, unknown, len(refs))
	}
	return nil
}

// Release ends a grant. If some of its locks are gone or another owner's, Release ends the others,
// and the error is a [*driver.LostError]: the grant did not guard the work until now. If a reply
// was lost, Release can't tell whether it ended the missing locks itself: then the error wraps
// [driver.ErrOutcomeUnknown].
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
		return fmt.Errorf("releasing a grant on refs of %s: %w", g.Project, err)
	case len(released.Missing) > 0 && lostReply:
		return fmt.Errorf("releasing a grant: %w: it was released, or lost before that", driver.ErrOutcomeUnknown)
	case len(released.Missing) > 0:
		return fmt.Errorf("releasing a grant: %w", &driver.LostError{Project: g.Project, Refs: released.Missing, Reason: "the database no longer has the lock, or another owner has it"})
	}
	return nil
}

// sortedRefs returns the refs of g as drivers expect them, or an error if g can't be a grant.
func (g Grant) sortedRefs() ([]string, error) {
	if err := engine.CheckOwner(g.Owner); err != nil {
		return nil, err
	}
	return engine.CheckRefs(g.Project, g.Refs, driver.MaxLockRefs)
}
