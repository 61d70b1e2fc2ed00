package moving

import (
	"context"
	"errors"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/intents"
	"github.com/globalrefdb/globalrefdb/site/claims"
	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/objects"
	"github.com/globalrefdb/globalrefdb/site/refusal"
)

// An Announcement asks for leave to move refs of a repository.
type Announcement struct {
	objects.Announcement
	// Objects are those that were stored for the moves.
	Objects *objects.Pushed
	// Until is when a guard's transaction stops waiting for claims. It holds no lock files yet and
	// waits for locks in the database with nothing claimed, so that Announce does not wait for
	// these. Zero stands for a git process, which holds the refs' lock files. A guard that has a
	// claim needs them, so that Announce waits for claims of followers only, which wait for no lock
	// file. It waits for locks in the database.
	Until time.Time
	// Gone is closed when the git process has ended: Announce then stops waiting. Nil: never.
	Gone <-chan struct{}
	// Recheck is called once the refs are claimed: only from then on nobody else moves them here.
	Recheck func(ctx context.Context) error
}

// Announce claims the refs of an announcement and records its moves as intents. If the outcome of
// that request is not known, it returns the claim with the error, and reconcile revokes the
// request. After any other error nothing is claimed. After a nil error the caller releases the
// claim when nobody else may announce moves of these refs any more: a git process, when it has its
// answer; a transaction, when it is settled.
func (co *Coordinator) Announce(ctx context.Context, c *config.Config, a Announcement) (announced []*Move, claim *claims.Claim, err error) {
	if err := co.Mover.AwaitEarlier(ctx, a.Repo.Path); err != nil {
		return nil, nil, err
	}
	if a.Until.IsZero() {
		claim, err = co.take(ctx, c, a)
	} else {
		claim, err = co.Claims.Await(ctx, a.Repo.Project, a.Moves, a.Until)
	}
	if err != nil {
		return nil, nil, err
	}
	if err := a.Recheck(ctx); err != nil {
		co.Claims.Release(claim)
		return nil, nil, err
	}
	preparation, packs, err := co.prepare(ctx, c, a)
	if errors.Is(err, refdb.ErrOutcomeUnknown) {
		co.Claims.MarkUnknown(claim, preparation)
		co.State.Reconcile.Request()
		return nil, claim, refusal.DatabaseFailed(err)
	}
	if err != nil {
		co.Claims.Release(claim)
		return nil, nil, err
	}
	co.Made(a.Repo.Project, a.Repo.Path, packs)
	announced = MovesOf(preparation, a.Repo.Path, time.Now())
	co.Open.Begin(announced)
	return announced, claim, nil
}

// take claims the refs for a git process. It waits for followers as long as [Coordinator.prepare]
// waits for locks. If the daemon stops meanwhile, the next one answers.
func (co *Coordinator) take(ctx context.Context, c *config.Config, a Announcement) (*claims.Claim, error) {
	ctx, cancel := context.WithTimeout(ctx, min(c.LockWait, c.Timeout))
	defer cancel()
	go func() {
		select {
		case <-a.Gone:
		case <-co.State.Upkeep.Done():
		case <-ctx.Done():
		}
		cancel()
	}()
	claim, err := co.Claims.Take(ctx, claims.ByPush, a.Repo.Project, a.Moves, nil)
	if err != nil && co.State.Upkeep.Err() != nil {
		err = refusal.Stops()
	}
	return claim, err
}

// prepare records the moves of an announcement as intents. For a git process it waits for a short
// time while others have locked the refs: git holds its lock files meanwhile. It is refused at once
// if whoever has the lock can't leave the ref at the expected value.
func (co *Coordinator) prepare(ctx context.Context, c *config.Config, a Announcement) (p intents.Preparation, packs []string, err error) {
	prepare := func() error {
		p, packs, err = co.Storage.Prepare(ctx, c, a.Objects, a.Announcement)
		return err
	}
	if !a.Until.IsZero() {
		err = prepare()
		return p, packs, err
	}
	project, moves := a.Repo.Project, a.Moves
	// A comparison costs the database less than a preparation. It does not find a lock on another
	// ref whose name excludes one of these.
	refused := false
	w := Wait{Project: project, Moves: moves, Until: time.Now().Add(min(c.LockWait, c.Timeout)), Passes: Locked, Gone: a.Gone}
	err = co.Await(ctx, w, func() error {
		if refused {
			if err := co.compare(ctx, c, project, moves); err != nil {
				return err
			}
		}
		err := prepare()
		if !refused && Locked(err) {
			refused = true
			if err := co.compare(ctx, c, project, moves); err != nil {
				return err
			}
		}
		return err
	})
	return p, packs, err
}
