package check

import (
	"context"
	"strings"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/site/compare"
)

// A namePair is two refs that the database seems to have and that git can't store both. Ref is
// below With.
type namePair struct{ Ref, With string }

// namePairs collects such pairs among refs that it sees in byte order.
type namePairs struct {
	above  []string // earlier names that are prefixes of the last one, the shortest first
	found  []namePair
	stands map[string]bool // refs in confirmed pairs
}

// see is called with each ref that has a value in the database.
func (n *namePairs) see(ref string) {
	for len(n.above) > 0 && !strings.HasPrefix(ref, n.above[len(n.above)-1]) {
		n.above = n.above[:len(n.above)-1]
	}
	for _, with := range n.above {
		if driver.Excludes(ref, with) {
			n.found = append(n.found, namePair{ref, with})
			break
		}
	}
	n.above = append(n.above, ref)
}

// excluded finds the pairs that still exist. Each copy lacks one of the two.
func (k *repositoryCheck) excluded(ctx context.Context, pairs *namePairs) error {
	for _, p := range pairs.found {
		rows, err := k.db.GetAll(ctx, k.Project, p.With, p.Ref)
		if err != nil {
			return err
		}
		if len(rows) < 2 || rows[0].Value.IsAbsent() || rows[1].Value.IsAbsent() {
			continue // one was deleted, and the other created since
		}
		k.find(NameConflict, p.Ref, compare.ExcludedText(k.Project, p.With), nil)
		if pairs.stands == nil {
			pairs.stands = make(map[string]bool)
		}
		pairs.stands[p.Ref], pairs.stands[p.With] = true, true
	}
	pairs.found = nil
	return nil
}
