package site

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"time"

	"github.com/globalrefdb/globalrefdb/internal/gitrepo"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/site/claims"
	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/intent"
	"github.com/globalrefdb/globalrefdb/site/internal/lockfiles"
	"github.com/globalrefdb/globalrefdb/site/internal/pause"
	"github.com/globalrefdb/globalrefdb/site/pusher"
	"github.com/globalrefdb/globalrefdb/site/wire"
)

const (
	// moveLimit is how long git may take to move a ref that an operator has decided about.
	moveLimit = time.Minute
	// lockPatience is for how long it is tried again while another process has git's lock file.
	lockPatience = 10 * time.Second
)

// applyDecisions moves refs to their global values if an operator has resolved their intents, and then
// removes the decisions. A ref whose object is not here yet waits for `refdbctl site sync`. It returns the decisions that are
// not heeded yet.
func (d *Daemon) applyDecisions(ctx context.Context, c *config.Config, decided []refdb.Intent) (unheeded []refdb.Intent, err error) {
	var failures []error
	var heeded []refdb.Intent
	for _, i := range decided {
		if i.Decision == refdb.Revoked {
			// Ours, not an operator's: it keeps a late request out.
			if i.Age-i.DecidedAt.Sub(i.Time) > lateRequests {
				heeded = append(heeded, i)
			}
			continue
		}
		if d.lives(i.Agent) {
			unheeded = append(unheeded, i)
			continue // it may move the ref yet
		}
		if !d.withoutAbandonedLocks(c, i) {
			unheeded = append(unheeded, i)
			continue // the next time
		}
		d.dropResolved(i)
		ok, err := d.applyDecision(ctx, c, i)
		failures = append(failures, err)
		if ok {
			d.listHeeded(c, i)
			d.counters.heeded.Add(1)
			heeded = append(heeded, i)
		} else {
			unheeded = append(unheeded, i)
		}
	}
	maps.DeleteFunc(d.removals, func(k intent.Key, _ <-chan struct{}) bool {
		return !slices.ContainsFunc(decided, func(i refdb.Intent) bool { return intent.KeyOf(i) == k })
	})
	if len(heeded) > 0 {
		ctx, cancel := context.WithTimeout(ctx, reconcileEvery)
		defer cancel()
		err := d.db.Forget(ctx, heeded)
		d.recordHealth(err)
		failures = append(failures, err)
		if err == nil {
			d.clearAlarmsOf(heeded)
		} else {
			unheeded = append(unheeded, heeded...)
		}
	}
	return unheeded, errors.Join(failures...)
}

// listHeeded lists a ref that an operator has decided about, before the database forgets the decision: a daemon that dies in between
// finds it again. Its transaction may have moved the ref, too.
func (d *Daemon) listHeeded(c *config.Config, i refdb.Intent) {
	if r, err := c.Repository(i.Project); err == nil {
		d.list.Moved("", r.Path, i.Ref)
	}
}

// clearAlarmsOf removes the alarms about intents that have been resolved.
func (d *Daemon) clearAlarmsOf(intents []refdb.Intent) {
	moves := make([]*intent.Move, len(intents))
	for i, one := range intents {
		moves[i] = intent.MoveOf(one)
	}
	d.clearAlarms(moves)
}

// dropResolved drops the move of a push whose intent an operator has resolved.
func (d *Daemon) dropResolved(i refdb.Intent) {
	a, _ := pusher.ParseAgent(i.Agent)
	p := d.pushes.get(a)
	if p == nil || !p.tryEnter() {
		return
	}
	defer p.leave()
	if m := p.find(i.Project, i.Ref); m != nil && m.Token == i.Token {
		p.drop([]*intent.Move{m})
	}
}

// applyDecision moves a ref to its global value, and reports whether the ref has it.
func (d *Daemon) applyDecision(ctx context.Context, c *config.Config, i refdb.Intent) (bool, error) {
	r, err := c.Repository(i.Project)
	var repo *gitrepo.Repo
	if err == nil {
		repo, err = gitrepo.OpenDir(r.Path)
	}
	if errors.Is(err, config.ErrNotConfigured) || errors.Is(err, fs.ErrNotExist) {
		// Nothing is here that could have another value. If the repository comes back,
		// its ref differs from the database, and pushes to it are refused.
		return true, nil
	}
	if err != nil {
		return false, err
	}
	limited, cancel := context.WithTimeout(ctx, c.Timeout)
	release, err := d.share(limited, r.Path)
	cancel()
	if err != nil {
		return false, nil // it is being pruned: the next time
	}
	defer release()
	// The local value is read before the global one: otherwise a push that is acknowledged in
	// between would be undone.
	values, err := repo.Values(ctx, []string{i.Ref})
	if err != nil {
		return false, err
	}
	local := refdb.Value(values[i.Ref])
	states, err := d.states(ctx, c, i.Project, []string{i.Ref})
	if err != nil {
		return false, err
	}
	global := states[0]
	// A push that is about to be announced must not see the ref move and move back.
	limited, cancel = context.WithTimeout(ctx, c.Timeout)
	claim, err := d.claims.Take(limited, claims.ByDecision, i.Project, []refdb.Update{{Ref: i.Ref}}, d.guards.ClaimOf(i))
	cancel()
	if err != nil {
		return false, nil // the next time
	}
	defer d.claims.Release(claim)
	switch {
	case local.Equivalent(global.Value):
		return true, nil
	case global.Lock != nil && !global.Lock.Stale():
		return false, nil // whoever moves it now will be done soon
	case global.Value == refdb.Unknown && !local.Equivalent(i.New):
		d.raiseAlarm(ctx, intent.MoveOf(i), "an operator resolved it; it is not in the global database, and has another value here than was announced")
		return false, nil
	}
	// The hooks needn't be asked: while here and globally differ no push gets through.
	move := gitrepo.Move{Ref: i.Ref, From: string(local)}
	if !global.Value.IsAbsent() {
		move.To = string(global.Value)
	}
	if err := d.moveDecided(ctx, repo, move); err != nil {
		d.o.Logger.WarnContext(ctx, "a ref can't be brought to its global value yet", "ref", d.digest(i.Project, i.Ref))
		d.raiseAlarm(ctx, intent.MoveOf(i), fmt.Sprintf("an operator resolved it; it can't be brought to %s yet: %s",
			global.Value.Abbrev(), wire.OneLine(err.Error())))
		return false, nil
	}
	return true, nil
}

// moveDecided moves a ref that is claimed. A push that has git's lock file is refused because of the claim: it ends soon.
func (d *Daemon) moveDecided(ctx context.Context, repo *gitrepo.Repo, move gitrepo.Move) error {
	ctx, cancel := context.WithTimeout(ctx, moveLimit)
	defer cancel()
	until := time.Now().Add(lockPatience)
	for {
		err := d.mover.Refs(ctx, repo, []gitrepo.Move{move}, "refdb: the global value")
		refused := (*gitrepo.RefusedError)(nil)
		if !errors.As(err, &refused) || !refused.Locked || time.Now().After(until) || !pause.For(ctx, 50*time.Millisecond) {
			return err
		}
	}
}

// withoutAbandonedLocks reports whether lock files are gone that the process which announced i, and has ended, left at its ref, or can't be
// removed now: until then git can't move the ref. It has them removed in the background, once.
func (d *Daemon) withoutAbandonedLocks(c *config.Config, i refdb.Intent) bool {
	r, err := c.Repository(i.Project)
	if err != nil {
		return true
	}
	if _, is := pusher.ParseTransaction(i.Agent); is {
		return !d.guards.MayHaveLeftLocksIn(r.Path)
	}
	files := lockfiles.There(d.lockFilesOf([]*intent.Move{intent.MoveOf(i)})[r.Path])
	if len(files) == 0 {
		return true
	}
	removal, begun := d.removals[intent.KeyOf(i)]
	if !begun {
		ended := make(chan struct{})
		removal = ended
		d.removals[intent.KeyOf(i)] = removal
		d.tasks.Go(func() {
			<-d.removeAbandoned(d.work, r.Path, files)
			d.requestReconcile()
			close(ended)
		})
	}
	select {
	case <-removal:
		return true
	default:
		return false
	}
}

// awaitRemovals waits until no lock file is about to be removed of a process whose intent an operator has decided about, until a time at most.
func (d *Daemon) awaitRemovals(ctx context.Context, until time.Time) {
	ctx, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	for _, removal := range d.removals {
		select {
		case <-removal:
		case <-ctx.Done():
			return
		}
	}
}
