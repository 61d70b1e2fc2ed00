package site

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/site/internal/systemd"
	"github.com/globalrefdb/globalrefdb/site/pusher"
)

// reconcileEvery is how often the daemon reads the site's intents in the database. It also does so
// whenever something failed.
const reconcileEvery = 10 * time.Second

// lateRequests is the longest time for which a request to the database may be in flight.
const lateRequests = 24 * time.Hour

// reconcileLoop reconciles the database with the site's repositories until ctx ends: it retries
// whatever failed elsewhere. Err is the result of the first attempt.
func (d *Daemon) reconcileLoop(ctx context.Context, err error, failed func(error)) {
	retry := backoff.NewExponentialBackOff()
	retry.InitialInterval, retry.MaxInterval = 100*time.Millisecond, reconcileEvery/2
	for {
		failed(err)
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

// reconcile resolves the intents of this site that belong to no push in progress, and applies the
// decisions of operators.
func (d *Daemon) reconcile(ctx context.Context) error {
	if err := d.state.Presence.Lost(); err != nil {
		return err
	}
	// Intents that a server lacks may be lost, not ended.
	if err := d.witness.MayAct(ctx); err != nil {
		return err
	}
	done, start := d.state.Reconcile.Begin(), time.Now()
	if err := d.moving.Revoke(ctx); err != nil {
		return err
	}
	c := d.state.Config()
	pending, err := d.moving.Intents(ctx, driver.IntentFilter{Owner: c.Site})
	if err != nil {
		return err
	}
	decided, err := d.moving.Intents(ctx, driver.IntentFilter{Owner: c.Site, Decided: true})
	if err != nil {
		return err
	}
	d.moving.Alarms.Keep(slices.Concat(pending, decided))
	d.moving.ForgetEnded(start, pending)
	d.moving.Open.Found(start, pending)
	first := !d.state.Inherited()
	// Before any push is let through, the refs are claimed that operators have decided about, or
	// that transactions granted by earlier daemons may move.
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
	byAgent := map[string][]driver.Intent{}
	for _, i := range pending {
		if _, is := pusher.ParseTransaction(i.Agent); !is {
			byAgent[i.Agent] = append(byAgent[i.Agent], i)
		}
	}
	failures := []error{d.moving.DropLate(ctx, late)}
	for _, name := range slices.Sorted(maps.Keys(byAgent)) {
		failures = append(failures, d.hooks.Reconcile(ctx, name, byAgent[name]))
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
