package recipes

import (
	"errors"
	"testing"

	"github.com/globalrefdb/globalrefdb/lease"
	"github.com/globalrefdb/globalrefdb/refdb"
)

// A gate is what a resource outside the database remembers, together with what it guards: in the same
// file, row or transaction.
type gate struct{ shared, exclusive refdb.Token } // the largest tickets seen

// pass reports whether a holder may write, and remembers its ticket.
func (g *gate) pass(mode lease.Mode, ticket refdb.Token) bool {
	switch {
	case ticket < g.exclusive || mode == lease.Exclusive && ticket < g.shared:
		return false
	case mode == lease.Exclusive:
		g.exclusive = ticket
	default:
		g.shared = max(g.shared, ticket)
	}
	return true
}

func TestALaterConflictingHolderClosesTheGate(t *testing.T) {
	w := newWorld(t)
	db := w.machine()
	tickets := map[string]refdb.Token{}
	modes := map[string]lease.Mode{"writer 1": lease.Shared, "writer 2": lease.Shared, "cleaner 1": lease.Exclusive,
		"writer 3": lease.Shared, "cleaner 2": lease.Exclusive}
	for _, name := range []string{"writer 1", "writer 2", "cleaner 1", "writer 3", "cleaner 2"} {
		l, err := lease.Acquire(t.Context(), db, "ops", "archive", modes[name])
		if err := errors.Join(err, l.Release(t.Context())); err != nil {
			t.Fatal(err)
		}
		tickets[name] = l.Ticket()
	}
	var g gate
	for i, c := range []struct {
		name   string
		passes bool
	}{
		{"writer 2", true},
		{"writer 1", true}, // both hold the lease
		{"cleaner 1", true},
		{"cleaner 1", true}, // it writes several times
		{"writer 2", false},
		{"writer 3", true},
		{"cleaner 1", false},
		{"cleaner 2", true},
		{"writer 3", false},
		{"writer 1", false},
	} {
		if got := g.pass(modes[c.name], tickets[c.name]); got != c.passes {
			t.Errorf("step %d, %s: %v, want %v", i, c.name, got, c.passes)
		}
	}
}
