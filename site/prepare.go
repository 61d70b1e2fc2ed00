package site

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/globalrefdb/globalrefdb/internal/gitrepo"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/site/wire"
)

// prepared decides about a transaction of git, which holds the locks of its
// refs. A nil error lets it through: then all that it may move stands in the database.
func (d *Daemon) prepared(ctx context.Context, hook peer, q wire.Request) error {
	c := d.config.Load()
	r, err := c.Find(q.Dir)
	if err != nil {
		return err
	}
	lines, err := guarded(c, r.Project, q.Body)
	if err != nil || len(lines) == 0 {
		return err
	}
	if q.Replica {
		if err := d.informed(ctx); err != nil {
			return err
		}
		moves, err := d.moves(ctx, r, lines, true)
		if err == nil {
			err = d.doubts.none(r.Project, moves)
		}
		if err != nil || len(moves) == 0 {
			return err
		}
		return d.replicated(ctx, c, r, moves)
	}
	if err := d.serving(ctx); err != nil {
		return err
	}
	p, err := d.pushing(c, hook, q.Process)
	if err != nil {
		return err
	}
	p.transacted()
	if err := p.enter(ctx); err != nil {
		return databaseFailed(err)
	}
	defer p.leave()
	if p.dead || hook.stillOf(p.agent) != nil {
		return errOrphan
	}
	moves, err := d.moves(ctx, r, lines, true)
	if err == nil {
		moves, err = d.unannounced(ctx, p, r.Project, moves)
	}
	if err != nil || len(moves) == 0 {
		return err
	}
	announced, err := d.announce(ctx, c, p, hook, r, moves)
	if err != nil {
		return p.remember(err)
	}
	if hook.stillOf(p.agent) != nil {
		// The hook gave up before it had the answer, and so vetoed: git may have
		// told that it aborted, before there was anything to end.
		d.end(ctx, p, announced)
		return errOrphan
	}
	return nil
}

// guarded are the lines of a transaction that the database has a say in.
func guarded(c *Config, project string, body []byte) ([]wire.Line, error) {
	lines, err := wire.ParseLines(body)
	if err != nil {
		return nil, err
	}
	var kept []wire.Line
	var why refused
	for _, l := range lines {
		if !c.Guards(project, l.Ref) {
			continue
		}
		if reason := unfit(project, l); reason != "" {
			why = append(why, reason)
		}
		kept = append(kept, l)
	}
	return kept, why.or()
}

// unfit says why a line can't be guarded.
func unfit(project string, l wire.Line) string {
	if err := refdb.CheckKey(project, l.Ref); err != nil {
		return fmt.Sprintf("%s: its name can't be guarded: %s", name(l.Ref), oneLine(err.Error()))
	}
	if l.Symbolic() {
		return fmt.Sprintf("%s: a symbolic ref can't be guarded: make it a branch, or have it skipped (guard.skipRef)", name(l.Ref))
	}
	return ""
}

// informed waits until the daemon knows what its predecessor left, at most until
// ctx ends. Before that no ref may move here: see [Daemon.inherit].
func (d *Daemon) informed(ctx context.Context) error {
	select {
	case <-d.started:
	case <-ctx.Done():
		return errors.New("the site daemon is starting: nothing was changed, retry in a few seconds")
	}
	if d.inherited.Load() == nil {
		return errors.New("the site daemon is waiting for the global ref database: nothing was changed, try again later")
	}
	return nil
}

// serving waits until the daemon can decide about pushes, at most until ctx ends.
func (d *Daemon) serving(ctx context.Context) error {
	if err := d.informed(ctx); err != nil {
		return err
	}
	if d.stopping.Load() {
		return errors.New("the site daemon is stopping: nothing was changed, retry in a few seconds")
	}
	if err := d.presence.lost(); err != nil {
		return unserved(err)
	}
	return nil
}

// moves compares the lines with the repository, and leaves out those that move
// nothing. What a ref holds is read there: a zero old value of a line may
// mean that the ref is created, or that whoever moves it doesn't care. locked says that
// git holds its locks, by which a deletion can be told from what only looks like one.
func (d *Daemon) moves(ctx context.Context, r Repository, lines []wire.Line, locked bool) ([]refdb.Update, error) {
	repo, err := gitrepo.OpenDir(r.Path)
	if err != nil {
		return nil, err
	}
	if repo.Dir() != r.Path {
		return nil, fmt.Errorf("%s is a work tree of %s: configure that one", r.Path, repo.Dir())
	}
	names := make([]string, len(lines))
	for i, l := range lines {
		names[i] = l.Ref
	}
	values, err := repo.Values(ctx, names)
	if err != nil {
		return nil, err
	}
	var moves []refdb.Update
	var why refused
	for _, l := range lines {
		local := values[l.Ref]
		switch {
		case strings.HasPrefix(local, "ref: "):
			why = append(why, fmt.Sprintf("%s: it is a symbolic ref here, which can't be guarded: push to %s", name(l.Ref), name(local[len("ref: "):])))
			continue
		case l.New == local, l.NewZero() && local == "":
			continue
		case locked && l.NewZero() && l.Old == local:
			// Packing refs removes the loose ones in the guise of deleting them.
			prune, err := repo.Prune(l.Ref, local)
			if err != nil {
				return nil, err
			}
			if prune {
				continue
			}
		}
		moves = append(moves, refdb.Update{Ref: l.Ref, Old: refdb.Value(local), New: refdb.Value(l.New)})
	}
	return moves, why.or()
}

// unannounced leaves out the moves that p announced already: git runs
// transactions within others. Any other move of a ref shows that the
// earlier transaction is over, because git does one thing at a time.
func (d *Daemon) unannounced(ctx context.Context, p *push, project string, moves []refdb.Update) ([]refdb.Update, error) {
	var over, again []*pending
	var left []refdb.Update
	for _, u := range moves {
		m := p.find(project, u.Ref)
		switch {
		case m == nil:
			left = append(left, u)
		case m.over || m.adopted || !same(m.Old, u.Old) || !same(m.New, u.New):
			over = append(over, m)
			left = append(left, u)
		default:
			again = append(again, m)
		}
	}
	if len(again) > 0 {
		// An operator may have ended some in our place.
		still, err := d.standing(ctx, again)
		if err != nil {
			return nil, databaseFailed(err)
		}
		for _, m := range again {
			if !slices.Contains(still, m) {
				p.drop([]*pending{m})
				left = append(left, m.Update)
			}
		}
	}
	if len(over) > 0 {
		if err := d.end(ctx, p, over); err != nil {
			return nil, databaseFailed(err)
		}
	}
	return left, nil
}

// same reports whether two values are equal, all absent ones being so.
func same(a, b refdb.Value) bool { return a == b || a.IsAbsent() && b.IsAbsent() }

// announce records the moves as intents, and waits a little for pushes that are in
// the way.
func (d *Daemon) announce(ctx context.Context, c *Config, p *push, hook peer, r Repository, moves []refdb.Update) (announced []*pending, err error) {
	doubt, err := d.doubts.begin(r.Project, moves)
	if err != nil {
		return nil, err
	}
	// If git has let go of its locks since, others may have moved the refs there and
	// back. From here on nobody can.
	if err := hook.stillOf(p.agent); err != nil {
		d.doubts.end(doubt)
		return nil, err
	}
	var preparation refdb.Preparation
	err = d.patiently(ctx, c, func(ctx context.Context) (err error) {
		preparation, err = d.db.Prepare(ctx, r.Project, moves, p.agent.String())
		return err
	})
	if errors.Is(err, refdb.ErrOutcomeUnknown) {
		d.doubts.unknown(doubt, preparation)
		d.dirty()
		return nil, databaseFailed(err)
	}
	// Before this push counts on it, no other asks for these refs: git has their locks.
	defer d.doubts.end(doubt)
	if err != nil {
		return nil, notPrepared(c, err)
	}
	now := time.Now()
	for _, u := range preparation.Updates {
		announced = append(announced, &pending{project: r.Project, path: r.Path, owner: preparation.Owner, token: preparation.Token, Update: u, since: now})
	}
	p.add(announced...)
	return announced, nil
}

// patiently repeats a request that finds locks, for at most c.LockWait.
func (d *Daemon) patiently(ctx context.Context, c *Config, request func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	pause := backoff.NewExponentialBackOff()
	pause.InitialInterval, pause.MaxInterval = 20*time.Millisecond, 200*time.Millisecond
	last := time.Now().Add(c.LockWait)
	for {
		err := request(ctx)
		d.heard(err)
		if !errors.Is(err, refdb.ErrLocked) || time.Now().After(last) {
			return err
		}
		select {
		case <-time.After(pause.NextBackOff()):
		case <-ctx.Done():
			return err
		}
	}
}

// notPrepared makes of an error what the pusher is told.
func notPrepared(c *Config, err error) error {
	var why refused
	var mismatch *refdb.MismatchError
	var conflict *refdb.LockedError
	switch {
	case errors.As(err, &conflict):
		for _, l := range conflict.Holders {
			if !l.Stale() {
				why = append(why, locked(l, c.Site))
			}
		}
	case errors.As(err, &mismatch):
		for _, m := range mismatch.Mismatches {
			why = append(why, mismatched(m.Ref, m.Want, m.Have))
		}
	}
	if len(why) == 0 {
		return databaseFailed(err)
	}
	return why
}
