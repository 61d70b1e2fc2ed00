package sessions

import (
	"context"
	"errors"
	"time"

	"github.com/globalrefdb/globalrefdb/site/internal/lockfiles"
	"github.com/globalrefdb/globalrefdb/site/presence"
)

// watchGuard watches the process of a guard, once, until ctx ends.
func (gs *Guards) watchGuard(g *guard) {
	gs.lock()
	watched := g.watched || g.dead
	g.watched = true
	gs.unlock()
	if watched {
		return
	}
	if g.id.Ended(gs.State.Boot) {
		gs.guardDied(g)
		return
	}
	process, err := g.id.Watch()
	if err != nil {
		// It may be in another PID namespace, or have ended just now. Reconcile looks again.
		gs.lock()
		g.watched = false
		gs.unlock()
		return
	}
	gs.State.Tasks.Go(func() {
		defer process.Close()
		defer context.AfterFunc(gs.State.Work, process.Close)()
		if process.Wait() == nil {
			gs.guardDied(g)
		}
	})
}

// guardDied marks a guard as dead, and settles what it left.
func (gs *Guards) guardDied(g *guard) {
	gs.lock()
	defer gs.unlock()
	if g.dead {
		return
	}
	g.dead = true
	if g.session != nil {
		g.session.close()
		g.session = nil
	}
	for _, t := range g.transactions {
		t.leave()
		t.end()
	}
	gs.leaveCreations(g)
	if len(g.transactions) > 0 {
		gs.State.Counts.Deaths.Add(1)
		gs.Logger.WarnContext(gs.State.Work, "a guard has died: its transactions are settled", "process", g.id.PID, "open", len(g.transactions))
	}
	gs.wake()
	if !g.settling {
		g.settling = true
		gs.State.Tasks.Go(func() { gs.settleDead(gs.State.Work, g) })
	}
}

// settleDead settles everything that a dead guard has left, repository by repository, and then
// forgets the guard. Reconcile calls it again for whatever can't be settled now.
func (gs *Guards) settleDead(ctx context.Context, g *guard) {
	decided := gs.await(ctx, time.Time{}, func() bool {
		for _, t := range g.transactions {
			if t.phase != over {
				return false
			}
		}
		return true
	})
	gs.lock()
	byPath := map[string][]*transaction{}
	for _, t := range g.transactions {
		byPath[t.repo.Path] = append(byPath[t.repo.Path], t)
	}
	gs.unlock()
	for path, all := range byPath {
		if decided {
			gs.settleDeadIn(ctx, path, all)
		}
	}
	gs.lock()
	g.settling = false
	gone, server := len(g.transactions) == 0 && gs.all[g.id] == g, g.server
	for _, other := range gs.all {
		server = server && (other == g || !other.server)
	}
	if gone {
		delete(gs.all, g.id)
	}
	gs.wake()
	gs.unlock()
	if gone {
		gs.SettleCreations(ctx)
		gs.logFailure(ctx, "the guards could not be noted", gs.saveGuards())
	}
	if gone && server {
		ctx, cancel := context.WithTimeout(ctx, gs.State.Config().Timeout)
		defer cancel()
		gs.logFailure(ctx, "the server of this site could not be forgotten", presence.ForgetServer(ctx, gs.DB, gs.State.Config().Site))
	}
}

// settleDeadIn removes the lock files of a dead guard in the repository at path, and then settles
// what the guard has left there.
func (gs *Guards) settleDeadIn(ctx context.Context, path string, all []*transaction) {
	for path != "" && ctx.Err() == nil {
		var refs []string
		gs.lock()
		for _, t := range all {
			refs = append(refs, t.refs()...)
		}
		gs.unlock()
		if len(lockFilesThere(path, refs)) == 0 {
			break
		}
		// While the dead guard's transactions stand, no other guard is granted any here.
		gs.await(ctx, time.Time{}, func() bool { return !gs.livingIn(path) })
		if err := gs.removeLeftByDead(ctx, path, refs); !errors.Is(err, lockfiles.ErrBusy) {
			gs.logFailure(ctx, "lock files of a guard that has died could not be removed: see `refdbctl site check`", err)
			break
		}
	}
	gs.lock()
	for _, t := range all {
		t.unlocked = true
	}
	gs.wake()
	gs.unlock()
	for _, t := range all {
		gs.settleNow(ctx, t)
	}
}
