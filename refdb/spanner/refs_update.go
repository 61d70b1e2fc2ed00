package spanner

import (
	"context"
	"fmt"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/internal/rules"
)

// Update implements driver.RefStore.
func (d *Driver) Update(ctx context.Context, r driver.UpdateRequest) error {
	const what = "update refs"
	if err := checkRefs(r.Updates); err != nil {
		return failed(what, err)
	}
	var fenced []string
	if r.Fence != nil {
		fenced = r.Fence.Refs
	}
	var names nameQuestion
	if r.GitNames {
		names = askNames(r.Updates)
	}
	_, _, err := decide(ctx, d, request{tag: "refdb.update", what: what}, names.movableStates(r.Project, updateKeys(r.Updates, fenced)),
		func(b *batch, states []state) (struct{}, error) {
			return struct{}{}, planUpdate(b, &r, states, names.around(states))
		})
	return err
}

// checkRefs returns ErrTooMany if a request has more than MaxRefs updates.
func checkRefs(updates []driver.Update) error {
	if n := len(updates); n > MaxRefs {
		return fmt.Errorf("%w: %d refs, Cloud Spanner moves at most %d at once", driver.ErrTooMany, n, MaxRefs)
	}
	return nil
}

// planUpdate decides, given the states of r's refs and the rows around them, what r writes or why it
// is refused.
func planUpdate(b *batch, r *driver.UpdateRequest, states []state, around []rules.Row) error {
	if rules.Updated(r.ID, rowsOf(states)) {
		return nil
	}
	found := byRef(states)
	var missing []string
	if r.Fence != nil {
		missing = rules.Missing(r.Project, *r.Fence, rules.Lease, found.fence)
	}
	after, refused := rules.Update(*r, rulesIn(states), missing, found.rows(r.Updates), around, readAt(states))
	if refused != nil {
		return refused
	}
	ends := make([]rowEnd, len(r.Updates))
	for i, u := range r.Updates {
		b.putRef(r.Project, u.Ref, found[u.Ref].value(), u.New, r.Origin)
		ends[i] = rowEnd{r.Project, u.Ref, after[i]}
	}
	if f := r.Fence; f != nil && f.Release {
		ends = append(ends, found.ends(f.Refs, f.Next)...)
	}
	b.end(ends)
	return nil
}

// rowsOf returns the rows of states.
func rowsOf(states []state) []rules.Row {
	rows := make([]rules.Row, len(states))
	for i, s := range states {
		rows[i] = s.Row
	}
	return rows
}

// refStates holds states by their refs.
type refStates map[string]state

func byRef(states []state) refStates {
	found := make(refStates, len(states))
	for _, s := range states {
		found[s.Name] = s
	}
	return found
}

// rows returns the rows of the refs of updates, in their order.
func (f refStates) rows(updates []driver.Update) []rules.Row {
	rows := make([]rules.Row, len(updates))
	for i, u := range updates {
		rows[i] = f[u.Ref].Row
	}
	return rows
}

func (f refStates) fence(ref string) *driver.LockInfo { return f[ref].fence }

// ends returns the ends of the locks of a fence on refs.
func (f refStates) ends(refs []string, next driver.Waiter) []rowEnd {
	all := make([]rowEnd, len(refs))
	for i, ref := range refs {
		all[i] = ending{*f[ref].fence, f[ref].Queue, f[ref].now}.to(next)
	}
	return all
}
