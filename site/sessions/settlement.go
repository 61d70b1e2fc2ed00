package sessions

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/globalrefdb/globalrefdb/internal/gitrepo"
	"github.com/globalrefdb/globalrefdb/site/claims"
	"github.com/globalrefdb/globalrefdb/site/moving"
	"github.com/globalrefdb/globalrefdb/site/wire"
)

// settle ends a transaction that is over, by what the repository holds. Reconcile retries whatever
// fails here. The transactions of a dead guard are settled by settleDead, after the guard's lock
// files are removed.
func (gs *Guards) settle(ctx context.Context, t *transaction) {
	gs.lock()
	dead := t.guard.dead
	gs.unlock()
	if !dead {
		gs.settleNow(ctx, t)
	}
}

// settleNow is settle, whether or not the guard lives.
func (gs *Guards) settleNow(ctx context.Context, t *transaction) {
	gs.lock()
	if t.phase != over || t.settling || t.guard.transactions[t.id.TX] != t {
		gs.unlock()
		return
	}
	t.settling = true
	moves, mayHaveLocks, mayHaveMoved, claim := slices.Clone(t.moves), t.mayHaveLocks, t.mayHaveMoved, t.claim
	toList, who := t.toList()
	listed := maps.Clone(t.onList)
	gs.unlock()

	ctx, cancel := context.WithTimeout(ctx, gs.State.Config().Timeout)
	defer cancel()
	if mayHaveLocks {
		gs.Marks.Raise(t.repo.Path)
	}
	// Before the request to the database: a daemon that dies in between finds the intents, and
	// lists the moves again.
	gs.Moves.Moved(who, t.repo.Path, toList...)
	values := gs.valuesOf(ctx, t, claim)
	for _, m := range moves {
		m.Over.Store(true)
		m.OnList.Store(listed[m.Ref])
	}
	ended, err := gs.Moving.Resolve(ctx, moves)
	gs.logFailure(ctx, "the outcome of a transaction could not be recorded yet", err)
	if mayHaveMoved {
		gs.headMoved(t)
		gs.RecordHeads(ctx)
	}
	gs.Moving.Open.End(ended)
	gs.Logged.Over(t.repo.Project, t.lines)

	gs.lock()
	t.settling = false
	for _, m := range ended {
		t.endedByOthers = t.endedByOthers || m.EndedByOthers.Load()
	}
	t.moves = slices.DeleteFunc(t.moves, func(m *moving.Move) bool { return slices.Contains(ended, m) })
	settled := len(t.moves) == 0 && !t.endedByOthers && !t.unknown
	if settled {
		gs.forget(t)
	}
	// It settles this again: asked for without news, it would do nothing else.
	reconcile := !settled && (len(ended) > 0 || !t.reconciled)
	t.reconciled = true
	t.tellSettled(values)
	gs.unlock()
	if settled {
		gs.free(t)
	}
	if reconcile {
		gs.State.Reconcile.Request()
	}
}

// toList returns the refs of t that have to be listed now, and the guard as whose moves they are
// listed. The guards are locked.
func (t *transaction) toList() (refs []string, who string) {
	if !t.mayHaveMoved || t.repo.Path == "" {
		return nil, ""
	}
	if t.onList == nil {
		t.onList = map[string]bool{}
	}
	for _, ref := range t.refs() {
		if !t.onList[ref] {
			refs = append(refs, ref)
			t.onList[ref] = true
		}
	}
	if t.ownWord {
		who = t.guard.id.ID
	}
	return refs, who
}

// valuesOf returns what the repository holds of the announced refs that t has claimed: other refs
// may have been moved by other processes since. Refs that can't be read are left out.
func (gs *Guards) valuesOf(ctx context.Context, t *transaction, c *claims.Claim) (values []wire.RefValue) {
	if c == nil || t.repo.Path == "" {
		return nil
	}
	claimed := make(map[string]bool, len(c.Refs))
	for _, ref := range c.Refs {
		claimed[ref] = true
	}
	zeros, names := map[string]string{}, []string{}
	for _, l := range t.lines {
		if claimed[l.Ref] {
			names, zeros[l.Ref] = append(names, l.Ref), strings.Repeat("0", len(l.New))
		}
	}
	repo, err := gitrepo.OpenDir(t.repo.Path)
	if err != nil {
		return nil
	}
	local, err := repo.Values(ctx, names)
	for broken := (*gitrepo.BrokenError)(nil); errors.As(err, &broken) && slices.Contains(names, broken.Ref); {
		names = slices.DeleteFunc(names, func(name string) bool { return name == broken.Ref })
		local, err = repo.Values(ctx, names)
	}
	if err != nil {
		return nil
	}
	for _, name := range names {
		value := local[name]
		if value == "" {
			value = zeros[name]
		}
		if target, is := strings.CutPrefix(value, "ref: "); is {
			value = "ref:" + target
		}
		values = append(values, wire.RefValue{Value: value, Ref: name})
	}
	return values
}
