package site

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/globalrefdb/globalrefdb/internal/gitrepo"
	"github.com/globalrefdb/globalrefdb/site/catchup"
	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/install"
	"github.com/globalrefdb/globalrefdb/site/wire"
)

// followedMoves are moves of a repository's refs to what the database holds: it is the [catchup.Mover] of the daemon.
//
// The order is that of docs/model: a ref is claimed before it is read, and until its git has ended, also if that outlives the daemon. The
// move is recorded in the list of moves before git starts, and listed when git has ended, before the claim ends.
type followedMoves struct {
	*Daemon
	r    config.Repository
	repo *gitrepo.Repo
}

// Claim is part of [catchup.Mover].
func (m *followedMoves) Claim(ctx context.Context, refs []string) (release func(), others map[string]error, err error) {
	if m.repo.Dir() != m.r.Path {
		return nil, nil, errors.New(wire.WorkTree(m.r.Path, m.repo.Dir()))
	}
	if err := m.awaitEarlierFollowers(ctx, m.r.Path); err != nil {
		return nil, nil, err
	}
	if err := m.witness.MayAct(ctx); err != nil {
		return nil, nil, err
	}
	claim, others := m.claims.Follow(ctx, m.r.Project, refs)
	return func() { m.claims.Release(claim) }, others, nil
}

// Move is part of [catchup.Mover].
func (m *followedMoves) Move(ctx context.Context, moves []gitrepo.Move) error {
	refs := make([]string, len(moves))
	for i, one := range moves {
		refs[i] = one.Ref
	}
	listed := m.list.About(m.r.Path, refs...)
	err := m.mover.Refs(ctx, m.repo, moves, catchup.Message)
	m.moved.Raise(m.r.Path)
	listed()
	return err
}

// catchUpAsked brings refs of the repository that q names to what the database holds, for a `site sync` or `site check --repair`.
func (d *Daemon) catchUpAsked(conn *net.UnixConn, q wire.Request) wire.Response {
	hook := d.waitingHook(conn)
	ctx, stop := hook.KeepWaiting(d.upkeep)
	lines, err := d.catchUpNow(ctx, q)
	stop()
	if err != nil {
		lines = append(lines, wire.OneLine(err.Error()))
	}
	return wire.Response{OK: err == nil, Lines: lines}
}

func (d *Daemon) catchUpNow(ctx context.Context, q wire.Request) (lines []string, err error) {
	c := d.config.Load()
	r, err := c.Find(q.Dir)
	if err == nil && !install.IsGuardedBy(c, r) {
		err = fmt.Errorf("%s is not guarded by this daemon", q.Dir)
	}
	if err == nil {
		err = d.awaitServing(ctx)
	}
	if err == nil {
		c, err = d.ruled(ctx, c, r)
	}
	if err != nil {
		return nil, err
	}
	repo, err := gitrepo.OpenDir(r.Path)
	if err != nil {
		return nil, err
	}
	release, err := d.share(ctx, r.Path)
	if err != nil {
		return nil, err
	}
	defer release()
	return catchup.Copy{Config: c, DB: d.db, Repo: repo, Project: r.Project, Mover: &followedMoves{d, r, repo}}.Answer(ctx, q.Body)
}
