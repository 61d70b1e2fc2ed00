package spanner

import (
	"context"
	"slices"
	"strings"

	"cloud.google.com/go/spanner"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/internal/rules"
)

// Prepare implements driver.IntentStore.
func (d *Driver) Prepare(ctx context.Context, r driver.PrepareRequest) (driver.Prepared, error) {
	const what = "prepare updates"
	if err := checkRefs(r.Updates); err != nil {
		return driver.Prepared{}, failed(what, err)
	}
	var packs []*foundPack
	names := askNames(r.Updates)
	a, err := d.acquire(ctx, request{tag: "refdb.prepare", what: what}, unrevokedStates(&r, names, &packs),
		func(b *batch, states []state) (acquisition, error) {
			return planPrepare(b, &r, states, names.around(states), packs)
		})
	return driver.Prepared{Token: a.Token, Time: a.Token.Time(), Reclaimed: a.Reclaimed}, err
}

// moves reports whether r moves a ref.
func moves(r *driver.PrepareRequest, ref string) bool {
	_, found := slices.BinarySearchFunc(r.Updates, ref, func(u driver.Update, ref string) int { return strings.Compare(u.Ref, ref) })
	return found
}

// planPrepare decides the outcome of r, given the states of its refs, the rows around them, and the
// packs that exist. There are no states if r was revoked.
func planPrepare(b *batch, r *driver.PrepareRequest, states []state, around []rules.Row, packs []*foundPack) (a acquisition, refused error) {
	if len(states) == 0 {
		return a, driver.ErrReleased
	}
	if refused = refuseBarred(states); refused != nil {
		return a, refused
	}
	all := slices.Clone(states)
	states = slices.DeleteFunc(states, func(s state) bool { return !moves(r, s.Name) })
	sortByRef(states)
	a.Acquisition, refused = rules.Prepare(*r, rulesIn(all), rowsOf(states), around)
	if refused != nil || a.Adopted {
		return a, refused
	}
	if missing := b.usePacks(r, packs, rowsOf(all)); missing != nil {
		return a, missing
	}
	for _, u := range r.Updates {
		b.insertIntent(u, r)
	}
	a.markers = b.take(claim{rules.PrepareClaim(*r), r.Project, driver.NeverStale}, states, a.After)
	return a, nil
}

// Revoke implements driver.IntentStore. It undoes r, and leaves a record that r reads before it
// does anything.
func (d *Driver) Revoke(ctx context.Context, r driver.PrepareRequest) error {
	_, _, err := decide(ctx, d, request{tag: "refdb.revoke", what: "revoke intents"}, sitesStates(r.Project, r.Owner, lockKeys(rules.RefsOf(r.Updates))),
		func(b *batch, states []state) (struct{}, error) {
			if err := refuseBarred(states); err != nil {
				return struct{}{}, err
			}
			c := rules.PrepareClaim(r)
			var ends []rowEnd
			for _, s := range states {
				if c.Took(s.Row) {
					b.deleteIntent(r.Project, s.Name, s.Lock.Token)
					ends = append(ends, ending{*s.Lock, s.Queue, s.now}.to(driver.Waiter{}))
				}
			}
			b.insertRevocation(&r)
			b.end(ends)
			return struct{}{}, nil
		})
	return err
}

// unrevokedSQL selects no rows if the preparation was revoked.
const unrevokedSQL = `
WHERE NOT EXISTS (SELECT 1 FROM intents WHERE project = @project AND ref = @first AND nonce = @nonce AND decision = '` + string(driver.Revoked) + `')`

// unrevokedStates returns a function that reads and locks the rows that decide about r: the states,
// none if r was revoked, and those of its packs that exist.
func unrevokedStates(r *driver.PrepareRequest, names nameQuestion, packs *[]*foundPack) func(context.Context, *transaction) ([]state, error) {
	keys := askBarred(r.Owner, askFreeze(r.Project, stateKeys(rules.RefsOf(r.Updates))))
	for _, b := range r.RequiredValues {
		if !moves(r, b.Ref) {
			keys = append(keys, key{Ref: b.Ref, Value: notNull(b.Ref)})
		}
	}
	s := stateStatement(r.Project)
	keys = names.ask(&s, keys)
	s.Params["first"], s.Params["nonce"] = r.Updates[0].Ref, r.Nonce
	var barred bool
	var packColumns string
	more := []any{&barred}
	if len(r.Packs) > 0 {
		packColumns, more = foundPacksSQL, append(more, packs)
		s.Params["packs"] = r.Packs
	}
	s.SQL = stateColumnsSQL + frozenColumnSQL + barredColumnSQL + packColumns + names.columns() + stateRowsSQL + frozenRowsSQL + unrevokedSQL
	return func(ctx context.Context, t *transaction) (states []state, err error) {
		err = queryKeys(ctx, t, s, keys, key.bytes, collect(&states, func(row *spanner.Row) (state, error) {
			s, err := names.readState(r.Project, row, more...)
			s.barred = barred
			return s, err
		}))
		return states, err
	}
}
