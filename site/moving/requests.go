package moving

import (
	"context"
	"errors"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/intents"
	"github.com/globalrefdb/globalrefdb/site/claims"
)

// requestLimit is how long the database may take for a request of reconcile.
const requestLimit = 10 * time.Second

// DropLate ends intents that came too late: no push relies on them.
func (co *Coordinator) DropLate(ctx context.Context, late []driver.Intent) error {
	var failures []error
	for _, i := range late {
		p := intents.Preparation{Project: i.Project, Owner: i.Owner, Token: i.Token, Time: i.Time, Updates: []refdb.Update{{Ref: i.Ref, Old: i.Old, New: i.New}}}
		err := co.DB.Intents().Finish(ctx, p, nil, []string{i.Ref})
		co.State.RecordHealth(err)
		if !errors.Is(err, refdb.ErrLockLost) {
			failures = append(failures, err)
		}
	}
	return errors.Join(failures...)
}

// Revoke makes sure that requests whose reply was lost never take effect.
func (co *Coordinator) Revoke(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, requestLimit)
	defer cancel()
	for _, c := range co.Claims.Revocable() {
		err := co.DB.Intents().Revoke(ctx, *c.Unknown)
		co.State.RecordHealth(err)
		if err != nil {
			return err
		}
		revoked := *c.Unknown
		co.Claims.Revoked(c)
		if c.By != claims.ByTransaction {
			// An operator may have decided about a transaction meanwhile: it keeps its claim until
			// it is settled.
			co.Claims.Release(c)
		}
		co.Wake(revoked.Project, c.Refs...)
	}
	return nil
}

// Intents returns the intents that f selects.
func (co *Coordinator) Intents(ctx context.Context, f driver.IntentFilter) (all []driver.Intent, err error) {
	ctx, cancel := context.WithTimeout(ctx, requestLimit)
	defer cancel()
	for i, err := range co.DB.Intents().All(ctx, f) {
		if err != nil {
			co.State.RecordHealth(err)
			return nil, err
		}
		all = append(all, i)
	}
	co.State.RecordHealth(nil)
	return all, nil
}
