package rules

import (
	"slices"
	"strings"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
)

// Created returns the refs that updates create, provided that the refs hold the expected values.
func Created(updates []driver.Update) (refs []string) {
	for _, u := range updates {
		if u.Old.IsAbsent() && !u.New.IsAbsent() {
			refs = append(refs, u.Ref)
		}
	}
	return refs
}

// Above returns the valid ref names that are parent directories of any of refs, sorted: see
// [driver.RefsAbove].
func Above(refs []string) (above []string) {
	seen := make(map[string]bool)
	for _, ref := range refs {
		for name := range driver.RefsAbove(ref) {
			if seen[name] {
				break // and its parents, too
			}
			seen[name] = true
			above = append(above, name)
		}
	}
	slices.Sort(above)
	return above
}

// Below returns the bounds of the names below ref, both exclusive.
func Below(ref string) (after, before string) {
	return ref + "/", ref + "0" // the byte after the slash
}

// CheckNames checks the names of refs that a request creates. The argument around contains, in any
// order, rows of refs whose names exclude created ones and which the request itself does not move:
// for each created ref at least the first ref that holds a value, and the first ref whose lock
// belongs to an intent. CheckNames returns these locks, which take precedence over values, and the
// conflicts, or nil if there are none.
func CheckNames(project string, created []string, around []Row) (locks []driver.LockInfo, conflicts *driver.NameConflictError) {
	if len(around) == 0 {
		return nil, nil
	}
	around = slices.SortedFunc(slices.Values(around), func(a, b Row) int { return strings.Compare(a.Name, b.Name) })
	e := &driver.NameConflictError{Project: project}
	named := make(map[string]bool) // locks
	for _, ref := range created {
		var with string
		var intent *driver.LockInfo
		for _, row := range around {
			if !driver.Excludes(ref, row.Name) {
				continue
			}
			if with == "" && row.Ref != nil && !row.Ref.Value.IsAbsent() {
				with = row.Name
			}
			if intent == nil && row.Lock != nil && KindOf(*row.Lock) == Intent {
				intent = row.Lock
			}
		}
		if with != "" {
			e.Conflicts = append(e.Conflicts, driver.NameConflict{Ref: ref, With: with})
		}
		if intent != nil && !named[intent.Ref] {
			named[intent.Ref] = true
			locks = append(locks, *intent)
		}
	}
	if len(e.Conflicts) > 0 {
		conflicts = e
	}
	return locks, conflicts
}

// inOrder returns the locks of both lists in the order of their refs.
func inOrder(locks, more []driver.LockInfo) []driver.LockInfo {
	if len(more) == 0 {
		return locks
	}
	return slices.SortedFunc(slices.Values(slices.Concat(locks, more)), func(a, b driver.LockInfo) int { return strings.Compare(a.Ref, b.Ref) })
}
