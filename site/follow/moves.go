package follow

import (
	"context"
	"errors"
	"time"

	"github.com/globalrefdb/globalrefdb/internal/gitrepo"
	"github.com/globalrefdb/globalrefdb/site/catchup"
	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/mover"
	"github.com/globalrefdb/globalrefdb/site/wire"
)

// claimedMoves makes the moves of one repository's refs to the database's values.
//
// The order is that of docs/model. A ref is claimed before it is read, and until its git has ended,
// even if git outlives the daemon. The move is recorded before git starts, and listed when git has
// ended, before the claim ends.
type claimedMoves struct {
	*Follower
	r    config.Repository
	repo *gitrepo.Repo
	// waits: git waits for a lock file that every move in the repository needs. Pushes to other refs
	// may hold such a file in turn, in a reftable for as long as their hooks run. A git that did not
	// wait would seldom find it free.
	waits bool
	held  bool // git has met such a lock file, and waits for it from now on
}

// lockWait is how long git waits for such a file. A push to the same ref, which may hold the file,
// waits as long: its hook waits for the claim.
const lockWait = 300 * time.Millisecond

// Mover returns the mover of a repository's refs to the database's values, beside pushes and guards.
func (f *Follower) Mover(r config.Repository, repo *gitrepo.Repo) catchup.Mover {
	return &claimedMoves{Follower: f, r: r, repo: repo}
}

// Claim implements [catchup.Mover].
func (m *claimedMoves) Claim(ctx context.Context, refs []string) (release func(), others map[string]error, err error) {
	if m.repo.Dir() != m.r.Path {
		return nil, nil, errors.New(wire.WorkTree(m.r.Path, m.repo.Dir()))
	}
	if err := m.o.Mover.AwaitEarlier(ctx, m.r.Path); err != nil {
		return nil, nil, err
	}
	claim, others := m.o.Claims.Follow(ctx, m.r.Project, refs)
	// Claiming, and what the caller did before, may have taken long: the repository, the project's
	// mode and the database may be others by now.
	if err := m.mayMove(ctx); err != nil {
		m.o.Claims.Release(claim)
		return nil, nil, err
	}
	return func() {
		m.o.Claims.Release(claim)
		m.o.Changed(m.r.Project, refs...)
	}, others, nil
}

// mayMove returns an error if hooks would refuse moves in the repository, by the project's ID or mode,
// or if the database must not be followed now. It is called before refs are read, and again before
// they are moved: in between, another server may have been admitted that lacks what was read.
func (m *claimedMoves) mayMove(ctx context.Context) error {
	c := m.o.State.Config()
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	if _, err := m.o.Policy.Ruled(ctx, c, m.r); err != nil {
		return err
	}
	return m.o.Witness.MayAct(ctx)
}

// Move implements [catchup.Mover].
func (m *claimedMoves) Move(ctx context.Context, all []gitrepo.Move) error {
	refs := make([]string, len(all))
	for i, one := range all {
		refs[i] = one.Ref
	}
	attempt := m.o.Moves.About(m.r.Path, refs...)
	wait := time.Duration(0)
	if m.waits || m.held {
		wait = m.lockWait
	}
	// The values that were read are those of a database that this site may still follow.
	err := m.mayMove(ctx)
	if err != nil {
		attempt.Drop()
		return err
	}
	err = m.o.Mover.Refs(ctx, m.repo, all, catchup.Message, wait)
	refused := (*gitrepo.RefusedError)(nil)
	if errors.As(err, &refused) && !refused.Begun || errors.Is(err, mover.ErrNotStarted) {
		attempt.Drop() // the follower may repeat it for hours
	} else {
		m.o.Marks.Raise(m.r.Path)
		attempt.End()
	}
	if err != nil && refused == nil && !errors.Is(err, mover.ErrNotStarted) {
		m.o.Killed(m.r.Path, refs)
	}
	m.held = m.held || refused != nil && refused.AllLocked
	return err
}

// Answer brings refs of a repository to the database's values for a `site sync` or a
// `site check --repair`, whose request is in body. It returns the lines of the answer, also beside
// an error. The configuration c has the project's rules.
func (f *Follower) Answer(ctx context.Context, c *config.Config, r config.Repository, body []byte) (lines []string, err error) {
	repo, err := gitrepo.OpenDir(r.Path)
	if err != nil {
		return nil, err
	}
	release, err := f.o.Pruning.Protect(ctx, r.Path)
	if err != nil {
		return nil, err
	}
	defer release()
	return catchup.Copy{Config: c, DB: f.db, Repo: repo, Project: r.Project, Mover: f.Mover(r, repo)}.Answer(ctx, body)
}
