package memory

import (
	"context"
	"fmt"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/internal/rules"
)

// An intent is a row of the table of intents.
type intent struct {
	driver.Intent // without an age
}

func (d *connection) Prepare(ctx context.Context, r driver.PrepareRequest) (driver.Prepared, error) {
	return write(ctx, d, "prepare updates", func(t *tx) (p driver.Prepared, _ error) {
		refs := rules.RefsOf(r.Updates)
		if err := t.refuseBarred(r.Owner); err != nil {
			return p, err
		}
		if t.revoked(r) {
			return p, fmt.Errorf("memory: prepare updates: they were revoked: %w", driver.ErrReleased)
		}
		a, err := rules.Prepare(r, t.projects[r.Project].Rules, t.rows(r.Project, refs), t.around(r.Project, r.Updates))
		if err != nil {
			return p, err
		}
		p = driver.Prepared{Token: a.Token, Time: t.now, Reclaimed: a.Reclaimed}
		if a.Adopted {
			return p, nil
		}
		if err := t.usePacks(r); err != nil {
			p = driver.Prepared{}
			return p, err
		}
		p.Token = t.lock(r.Project, refs, r.Owner, r.Nonce, driver.NeverStale, a.After)
		for _, u := range r.Updates {
			t.record(r, u, p.Token)
		}
		return p, nil
	})
}

// record records u of r as an intent.
func (t *tx) record(r driver.PrepareRequest, u driver.Update, token driver.Token) *intent {
	i := &intent{driver.Intent{
		Project: r.Project, Ref: u.Ref, Token: token, Owner: r.Owner, Agent: r.Agent, By: r.By, Op: r.Nonce, Old: u.Old, New: u.New, Time: t.now,
	}}
	t.intents[intentKey{r.Project, u.Ref, token}] = i
	return i
}

// recorded returns the intent that id names, or nil.
func (t *tx) recorded(id driver.LockID) *intent {
	if i := t.intents[intentKey{id.Project, id.Ref, id.Token}]; i != nil && i.Owner == id.Owner {
		return i
	}
	return nil
}

// row returns what the rules need of the intent that id names, or nil.
func (t *tx) row(id driver.LockID) *rules.IntentRow {
	i := t.recorded(id)
	if i == nil {
		return nil
	}
	locked := rules.Stands(t.lockOn(key{id.Project, id.Ref}), id, rules.Intent)
	return &rules.IntentRow{New: i.New, Pending: i.Decision == driver.Pending, Locked: locked}
}

func (d *connection) Finish(ctx context.Context, r driver.FinishRequest) error {
	return d.write(ctx, "finish intents", func(t *tx) error {
		if err := t.refuseBarred(r.Owner); err != nil {
			return err
		}
		held := rules.Intents(r)
		missing := rules.Missing(r.Project, held, rules.Intent, t.locksIn(r.Project))
		if err := rules.Finish(r, missing, t.rows(r.Project, rules.RefsOf(r.Done))); err != nil {
			return err
		}
		t.write(r.Project, r.Done, r.Origin)
		t.end(r.Project, held.Refs, driver.Waiter{})
		for _, ref := range held.Refs {
			delete(t.intents, intentKey{r.Project, ref, r.Token})
		}
		return nil
	})
}

func (d *connection) Revoke(ctx context.Context, r driver.PrepareRequest) error {
	return d.write(ctx, "revoke intents", func(t *tx) error {
		if err := t.refuseBarred(r.Owner); err != nil {
			return err
		}
		for _, row := range t.rows(r.Project, rules.RefsOf(r.Updates)) {
			if rules.PrepareClaim(r).Took(row) {
				t.end(r.Project, []string{row.Name}, driver.Waiter{})
			}
		}
		for k, i := range t.intents {
			if i.of(r) && i.Decision == driver.Pending {
				delete(t.intents, k)
			}
		}
		i := t.record(r, r.Updates[0], t.token())
		i.Decision, i.DecidedBy, i.DecidedAt = driver.Revoked, r.Owner, t.now
		return nil
	})
}

// revoked reports whether r was revoked.
func (t *tx) revoked(r driver.PrepareRequest) bool {
	for _, i := range t.intents {
		if i.of(r) && i.Decision == driver.Revoked {
			return true
		}
	}
	return false
}

// of reports whether r recorded i.
func (i *intent) of(r driver.PrepareRequest) bool {
	return i.Project == r.Project && i.Owner == r.Owner && i.Op == r.Nonce
}

func (d *connection) Resolve(ctx context.Context, r driver.ResolveRequest) ([]bool, error) {
	return write(ctx, d, "resolve intents", func(t *tx) (ended []bool, _ error) {
		ended = make([]bool, len(r.Intents))
		for n, id := range r.Intents {
			row := t.row(id)
			if ended[n] = rules.Resolvable(row, r.Decision); !ended[n] {
				continue
			}
			if r.Decision == driver.TakeNew {
				t.write(id.Project, []driver.Update{{Ref: id.Ref, New: row.New}}, r.Origin)
			}
			if row.Locked {
				t.end(id.Project, []string{id.Ref}, driver.Waiter{})
			}
			i := t.recorded(id)
			i.Decision, i.DecidedBy, i.Reason, i.DecidedAt = r.Decision, r.By, r.Reason, t.now
		}
		return ended, nil
	})
}

func (d *connection) Forget(ctx context.Context, intents []driver.LockID) error {
	return d.write(ctx, "forget intents", func(t *tx) error {
		for _, id := range intents {
			if i := t.recorded(id); i != nil && i.Decision != driver.Pending {
				delete(t.intents, intentKey{id.Project, id.Ref, id.Token})
			}
		}
		return nil
	})
}

func (d *connection) Intents(ctx context.Context, q driver.IntentQuery) (driver.IntentPage, error) {
	return transact(ctx, d, "list intents", func(t *tx) (p driver.IntentPage, _ error) {
		for _, k := range sorted(t.intents) {
			i := t.intents[k].Intent
			if k.compare(intentKey(q.After)) > 0 && selectsIntent(q.IntentFilter, i) && len(p.Intents) < q.Limit {
				i.Age = t.now.Sub(i.Time)
				p.Intents = append(p.Intents, i)
			}
		}
		if n := len(p.Intents); n == q.Limit {
			last := p.Intents[n-1]
			p.Next = driver.IntentCursor{Project: last.Project, Ref: last.Ref, Token: last.Token}
		}
		return p, nil
	})
}

func selectsIntent(f driver.IntentFilter, i driver.Intent) bool {
	return (f.Project == "" || i.Project == f.Project) &&
		(f.Ref == "" || i.Ref == f.Ref) &&
		ownedBy(i.Owner, f.Owner) &&
		f.Decided == (i.Decision != driver.Pending)
}
