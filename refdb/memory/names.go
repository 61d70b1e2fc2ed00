package memory

import (
	"maps"
	"slices"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/internal/rules"
)

// around returns the rows of the refs that exclude one that updates create, but for those that
// updates move.
func (t *tx) around(project string, updates []driver.Update) []rules.Row {
	created := rules.Created(updates)
	if len(created) == 0 {
		return nil
	}
	moved, above := rules.RefsOf(updates), rules.Above(created)
	found := make(map[string]bool)
	look := func(k key) {
		if k.Project != project || contains(moved, k.Ref) {
			return
		}
		excludes := contains(above, k.Ref)
		for name := range driver.RefsAbove(k.Ref) {
			excludes = excludes || contains(created, name)
		}
		if excludes {
			found[k.Ref] = true
		}
	}
	for k := range t.refs {
		look(k)
	}
	for k := range t.locks {
		look(k)
	}
	return t.rows(project, slices.Collect(maps.Keys(found)))
}

// contains reports whether ref is one of refs, which are sorted.
func contains(refs []string, ref string) bool {
	_, found := slices.BinarySearch(refs, ref)
	return found
}
