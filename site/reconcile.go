package site

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/globalrefdb/globalrefdb/internal/gitrepo"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/pusher"
	"github.com/globalrefdb/globalrefdb/site/wire"
)

// reconcileEvery is how often the daemon reads the site's intents in the database. It also does
// that whenever something could not be done.
const reconcileEvery = 10 * time.Second

// lateRequests is how long a request to the database may be under way.
const lateRequests = 24 * time.Hour

// reconcileLoop reconciles the database with the site's pushes until ctx ends: it catches whatever was
// missed. Err is the result of the first attempt.
func (d *Daemon) reconcileLoop(ctx context.Context, err error) {
	retry := backoff.NewExponentialBackOff()
	retry.InitialInterval, retry.MaxInterval = 100*time.Millisecond, reconcileEvery/2
	for {
		wait, hurry := reconcileEvery, d.reconcileNow
		if err != nil {
			d.o.Logger.WarnContext(ctx, "reconciling failed; trying again: see `refdbctl site status`", "class", refdb.ClassOf(err).String())
			wait, hurry = retry.NextBackOff(), nil
		} else {
			retry.Reset()
		}
		notifyStatus(d.status().Summary())
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		case <-hurry:
		}
		err = d.reconcile(ctx)
	}
}

// reconcile resolves the intents of this site that belong to no push under way, and carries out what
// an operator has decided meanwhile.
func (d *Daemon) reconcile(ctx context.Context) error {
	if err := d.presence.Lost(); err != nil {
		return err
	}
	// Intents that a server lacks may be lost, not ended.
	if err := d.mayAct(ctx); err != nil {
		return err
	}
	requested, start := d.reconcileRequested.Load(), time.Now()
	if err := d.revokeAll(ctx); err != nil {
		return err
	}
	c := d.config.Load()
	pending, err := d.intents(ctx, refdb.IntentFilter{Owner: c.Site})
	if err != nil {
		return err
	}
	decided, err := d.intents(ctx, refdb.IntentFilter{Owner: c.Site, Decided: true})
	if err != nil {
		return err
	}
	d.forgetAlarms(slices.Concat(pending, decided))
	d.forgetEnded(start, pending)
	d.open.found(start, pending)
	first := d.inherited.Load() == nil
	// Before anything is let through, what operators have decided is claimed, and so is what earlier daemons let guards do.
	d.claims.setDecided(decided)
	if err := d.adoptTransactions(ctx, decided, first); err != nil {
		return err
	}
	late, pending, err := d.inherit(c.State, pending)
	if err != nil {
		return err
	}
	byAgent := map[string][]refdb.Intent{}
	for _, i := range pending {
		if _, is := pusher.ParseTransaction(i.Agent); !is {
			byAgent[i.Agent] = append(byAgent[i.Agent], i)
		}
	}
	failures := []error{d.dropLate(ctx, late)}
	for _, name := range slices.Sorted(maps.Keys(byAgent)) {
		failures = append(failures, d.reconcileAgent(ctx, name, byAgent[name]))
	}
	failures = append(failures, d.adoptTransactions(ctx, pending, first))
	d.settleTransactions(ctx)
	d.tasks.Go(func() { d.settleCreations(d.work) })
	d.tasks.Go(func() { d.removeDeleted(d.work) })
	unheeded, err := d.applyDecisions(ctx, c, decided)
	d.claims.setDecided(unheeded)
	d.forgetSettled(start, slices.Concat(pending, unheeded))
	d.raiseSilence(ctx)
	failures = append(failures, err)
	if err := errors.Join(failures...); err != nil {
		return err
	}
	d.reconcileDone.Store(requested)
	d.counters.reconciled.Add(1)
	return nil
}

// dropLate drops intents that came too late: no push relies on them.
func (d *Daemon) dropLate(ctx context.Context, late []refdb.Intent) error {
	var failures []error
	for _, i := range late {
		p := refdb.Preparation{Project: i.Project, Owner: i.Owner, Token: i.Token, Updates: []refdb.Update{{Ref: i.Ref, Old: i.Old, New: i.New}}}
		err := d.db.Finish(ctx, p, nil, []string{i.Ref})
		d.recordHealth(err)
		if !errors.Is(err, refdb.ErrLockLost) {
			failures = append(failures, err)
		}
	}
	return errors.Join(failures...)
}

func (d *Daemon) revokeAll(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, reconcileEvery)
	defer cancel()
	return d.revoke(ctx)
}

func (d *Daemon) intents(ctx context.Context, f refdb.IntentFilter) (all []refdb.Intent, err error) {
	ctx, cancel := context.WithTimeout(ctx, reconcileEvery)
	defer cancel()
	for i, err := range d.db.Intents(ctx, f) {
		if err != nil {
			d.recordHealth(err)
			return nil, err
		}
		all = append(all, i)
	}
	d.recordHealth(nil)
	return all, nil
}

// reconcileAgent resolves or adopts the intents of one process.
func (d *Daemon) reconcileAgent(ctx context.Context, name string, intents []refdb.Intent) error {
	a, ok := pusher.ParseAgent(name)
	if !ok || a.Boot != d.boot {
		return d.resolveAbandoned(ctx, intents)
	}
	p, err := d.track(d.work, a)
	switch {
	case errors.Is(err, pusher.ErrGone):
		return d.resolveAbandoned(ctx, intents)
	case err != nil:
		return err
	case !p.tryEnter():
		// A hook of the push is being answered. What can't be ended then is reconciled later.
		return nil
	}
	defer p.leave()
	if p.dead {
		return nil
	}
	return d.adopt(ctx, p, intents)
}

// resolveAbandoned resolves the intents of a process that has ended.
func (d *Daemon) resolveAbandoned(ctx context.Context, intents []refdb.Intent) error {
	moves := make([]*pendingMove, len(intents))
	for i, intent := range intents {
		moves[i] = moveOf(intent)
	}
	// Once the intents have ended, others may lock those refs.
	leftovers := d.lockFilesOf(moves)
	ended, err := d.resolve(ctx, moves)
	if len(ended) == len(moves) {
		for dir, files := range leftovers {
			d.removeAbandoned(d.work, dir, files)
		}
	}
	return err
}

func moveOf(i refdb.Intent) *pendingMove {
	return &pendingMove{
		project: i.Project, owner: i.Owner, token: i.Token, by: i.By, op: i.Op, Update: refdb.Update{Ref: i.Ref, Old: i.Old, New: i.New},
		since: time.Now().Add(-i.Age), adopted: true,
	}
}

// adopt adds to p the intents of its process that this daemon does not know: an earlier daemon
// recorded them, or the reply to the request was lost. It resolves those whose transaction has ended.
func (d *Daemon) adopt(ctx context.Context, p *push, intents []refdb.Intent) error {
	var unknown, over []*pendingMove
	for _, i := range intents {
		m := p.find(i.Project, i.Ref)
		switch {
		case m == nil || m.token != i.Token:
			unknown = append(unknown, moveOf(i))
		case m.over.Load():
			over = append(over, m)
		}
	}
	// They may have ended since they were listed.
	slices.SortStableFunc(unknown, func(a, b *pendingMove) int { return strings.Compare(a.project, b.project) })
	for len(unknown) > 0 {
		n := slices.IndexFunc(unknown, func(m *pendingMove) bool { return m.project != unknown[0].project })
		if n < 0 {
			n = len(unknown)
		}
		still, err := d.stillPending(ctx, unknown[:n])
		if err != nil {
			return err
		}
		p.add(still...)
		unknown = unknown[n:]
	}
	ended, err := d.resolve(ctx, over)
	p.drop(ended)
	return err
}

// forgetAlarms removes the alarms about intents that are not among these.
func (d *Daemon) forgetAlarms(intents []refdb.Intent) {
	still := make(map[intentKey]bool, len(intents))
	for _, i := range intents {
		still[keyOf(i)] = true
	}
	d.alarms.mu.Lock()
	defer d.alarms.mu.Unlock()
	maps.DeleteFunc(d.alarms.stuck, func(k intentKey, _ alarm) bool { return !still[k] })
}

// forgetEnded drops moves that have ended by a request whose reply was lost: the database did not have
// them when it was asked, after start.
func (d *Daemon) forgetEnded(start time.Time, intents []refdb.Intent) {
	still := make(map[intentKey]bool, len(intents))
	for _, i := range intents {
		still[keyOf(i)] = true
	}
	for _, p := range d.pushes.all() {
		if !p.tryEnter() {
			continue
		}
		p.drop(slices.DeleteFunc(p.list(), func(m *pendingMove) bool {
			return !m.over.Load() || still[m.key()] || m.since.After(start)
		}))
		p.leave()
	}
}

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
		d.listMoved("", r.Path, i.Ref)
	}
}

// clearAlarmsOf removes the alarms about intents that have been resolved.
func (d *Daemon) clearAlarmsOf(intents []refdb.Intent) {
	moves := make([]*pendingMove, len(intents))
	for i, intent := range intents {
		moves[i] = moveOf(intent)
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
	if m := p.find(i.Project, i.Ref); m != nil && m.token == i.Token {
		p.drop([]*pendingMove{m})
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
	claim, err := d.claims.take(byDecision, i.Project, []refdb.Update{{Ref: i.Ref}}, d.claimOf(i))
	if err != nil {
		return false, nil // the next time
	}
	defer d.claims.release(claim)
	switch {
	case local.Equivalent(global.Value):
		return true, nil
	case global.Lock != nil && !global.Lock.Stale():
		return false, nil // whoever moves it now will be done soon
	case global.Value == refdb.Unknown && !local.Equivalent(i.New):
		d.raiseAlarm(ctx, moveOf(i), "an operator resolved it; it is not in the global database, and has another value here than was announced")
		return false, nil
	}
	// The hooks needn't be asked: while here and globally differ no push gets through.
	move := gitrepo.Move{Ref: i.Ref, From: string(local)}
	if !global.Value.IsAbsent() {
		move.To = string(global.Value)
	}
	if err := repo.MoveUnasked(ctx, move, "refdb: the global value"); err != nil {
		d.o.Logger.WarnContext(ctx, "a ref can't be brought to its global value yet", "ref", d.digest(i.Project, i.Ref))
		d.raiseAlarm(ctx, moveOf(i), fmt.Sprintf("an operator resolved it; it can't be brought to %s yet: %s",
			global.Value.Abbrev(), wire.OneLine(err.Error())))
		return false, nil
	}
	return true, nil
}
