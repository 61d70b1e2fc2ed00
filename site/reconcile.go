package site

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/site/claims"
	"github.com/globalrefdb/globalrefdb/site/internal/systemd"
	"github.com/globalrefdb/globalrefdb/site/moving"
	"github.com/globalrefdb/globalrefdb/site/pusher"
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
		wait, hurry := reconcileEvery, d.state.Reconcile.Wanted()
		if err != nil {
			d.o.Logger.WarnContext(ctx, "reconciling failed; trying again: see `refdbctl site status`", "class", refdb.ClassOf(err).String())
			wait, hurry = retry.NextBackOff(), nil
		} else {
			retry.Reset()
		}
		systemd.Status(d.status().Summary())
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
	if err := d.state.Presence.Lost(); err != nil {
		return err
	}
	// Intents that a server lacks may be lost, not ended.
	if err := d.witness.MayAct(ctx); err != nil {
		return err
	}
	done, start := d.state.Reconcile.Begin(), time.Now()
	if err := d.revokeAll(ctx); err != nil {
		return err
	}
	c := d.state.Config()
	pending, err := d.intents(ctx, refdb.IntentFilter{Owner: c.Site})
	if err != nil {
		return err
	}
	decided, err := d.intents(ctx, refdb.IntentFilter{Owner: c.Site, Decided: true})
	if err != nil {
		return err
	}
	d.moving.Alarms.Keep(slices.Concat(pending, decided))
	d.moving.ForgetEnded(start, pending)
	d.moving.Open.Found(start, pending)
	first := !d.state.Inherited()
	// Before anything is let through, what operators have decided is claimed, and so is what earlier daemons let guards do.
	d.claims.SetDecided(decided)
	if err := d.guards.AdoptTransactions(ctx, decided, first); err != nil {
		return err
	}
	late, pending, err := d.inherited.Separate(c.State, d.db.Owner(), pending)
	if err != nil {
		return err
	}
	if first {
		d.state.Inherit()
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
	failures = append(failures, d.guards.AdoptTransactions(ctx, pending, first))
	d.guards.SettleTransactions(ctx)
	d.guards.RecordHeads(ctx)
	d.state.Tasks.Go(func() { d.guards.SettleCreations(d.state.Work) })
	d.state.Tasks.Go(func() { d.lifecycle.RemoveDeleted(d.state.Work) })
	unheeded, err := d.applyDecisions(ctx, c, decided)
	d.claims.SetDecided(unheeded)
	d.guards.ForgetSettled(start, slices.Concat(pending, unheeded))
	d.guards.RaiseSilence(ctx)
	failures = append(failures, err)
	if err := errors.Join(failures...); err != nil {
		return err
	}
	done()
	d.state.Counts.Reconciled.Add(1)
	return nil
}

// dropLate drops intents that came too late: no push relies on them.
func (d *Daemon) dropLate(ctx context.Context, late []refdb.Intent) error {
	var failures []error
	for _, i := range late {
		p := refdb.Preparation{Project: i.Project, Owner: i.Owner, Token: i.Token, Time: i.Time, Updates: []refdb.Update{{Ref: i.Ref, Old: i.Old, New: i.New}}}
		err := d.db.Finish(ctx, p, nil, []string{i.Ref})
		d.state.RecordHealth(err)
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

// revoke makes sure that requests whose reply was lost never take effect.
func (d *Daemon) revoke(ctx context.Context) error {
	for _, c := range d.claims.Revocable() {
		err := d.db.Revoke(ctx, *c.Unknown)
		d.state.RecordHealth(err)
		if err != nil {
			return err
		}
		d.claims.Revoked(c)
		if c.By != claims.ByTransaction {
			// Of a transaction an operator may have decided meanwhile: see [guards.Guards.ForgetSettled].
			d.claims.Release(c)
		}
	}
	return nil
}

func (d *Daemon) intents(ctx context.Context, f refdb.IntentFilter) (all []refdb.Intent, err error) {
	ctx, cancel := context.WithTimeout(ctx, reconcileEvery)
	defer cancel()
	for i, err := range d.db.Intents(ctx, f) {
		if err != nil {
			d.state.RecordHealth(err)
			return nil, err
		}
		all = append(all, i)
	}
	d.state.RecordHealth(nil)
	return all, nil
}

// reconcileAgent resolves or adopts the intents of one process.
func (d *Daemon) reconcileAgent(ctx context.Context, name string, intents []refdb.Intent) error {
	a, ok := pusher.ParseAgent(name)
	if !ok || a.Boot != d.state.Boot {
		return d.resolveAbandoned(ctx, intents)
	}
	p, err := d.track(d.state.Work, a)
	switch {
	case errors.Is(err, pusher.ErrGone):
		return d.resolveAbandoned(ctx, intents)
	case err != nil:
		return err
	case !p.pending.TryEnter():
		// A hook of the push is being answered. What can't be ended then is reconciled later.
		return nil
	}
	defer p.pending.Leave()
	if p.dead {
		return nil
	}
	return d.moving.Adopt(ctx, p.pending, intents)
}

// resolveAbandoned resolves the intents of a process that has ended.
func (d *Daemon) resolveAbandoned(ctx context.Context, intents []refdb.Intent) error {
	moves := make([]*moving.Move, len(intents))
	for i, one := range intents {
		moves[i] = moving.MoveOf(one)
	}
	// Once the intents have ended, others may lock those refs.
	leftovers := d.moving.LockFiles(moves)
	ended, err := d.moving.Resolve(ctx, moves)
	if len(ended) == len(moves) {
		for dir, files := range leftovers {
			d.guards.RemoveLeft(d.state.Work, dir, files)
		}
	}
	return err
}
