package refdbtest_test

import (
	"slices"
	"strings"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
)

// excluding returns the refs that exclude one that updates create, each with the first of those, in
// order.
func (d *connection) excluding(project string, updates []driver.Update) (intents []driver.LockInfo, conflicts []driver.NameConflict) {
	if d.bug == "names exclude nothing" {
		return nil, nil
	}
	var names []string
	for k := range d.refs {
		if k.project == project || d.bug == "names of all projects" {
			names = append(names, k.ref)
		}
	}
	for k := range d.locks {
		if k.project == project {
			names = append(names, k.ref)
		}
	}
	slices.Sort(names)
	if d.bug == "the last name is named" {
		slices.Reverse(names)
	}
	for _, u := range updates {
		if creates := u.Old.IsAbsent() && !u.New.IsAbsent(); creates || d.bug == "moves are judged" && !u.New.IsAbsent() || d.bug == "deletions are judged" {
			var with string
			var locked bool
			for _, name := range names {
				k := key{project, name}
				if !d.excludes(u.Ref, name) || d.leaves(updates, name) {
					continue
				}
				if with == "" && (!d.refs[k].Value.IsAbsent() || d.bug == "deleted refs exclude" && d.refs[k].Value.IsDeleted() || d.bug == "names of all projects") {
					with = name
				}
				row, ok := d.standing(k)
				if ok && !locked && d.bug != "intents exclude nothing" && (row.Intended() || d.bug == "all locks exclude") {
					locked = true
					intents = append(intents, row.LockInfo)
				}
				if d.bug == "looks at the first name below" && strings.HasPrefix(name, u.Ref+"/") {
					break
				}
			}
			if with != "" && (len(conflicts) == 0 || d.bug != "the first conflict only") {
				conflicts = append(conflicts, driver.NameConflict{Ref: u.Ref, With: with})
			}
		}
	}
	slices.SortFunc(intents, func(a, b driver.LockInfo) int { return strings.Compare(a.Ref, b.Ref) })
	return slices.CompactFunc(intents, func(a, b driver.LockInfo) bool { return a.Ref == b.Ref }), conflicts
}

// excludes reports whether name excludes created.
func (d *connection) excludes(created, name string) bool {
	switch d.bug {
	case "names above exclude nothing":
		return strings.HasPrefix(name, created+"/")
	case "names below exclude nothing":
		return strings.HasPrefix(created, name+"/")
	case "the next name above excludes":
		return strings.HasPrefix(name, created+"/") || created[:max(0, strings.LastIndexByte(created, '/'))] == name
	case "the next name below excludes":
		return strings.HasPrefix(created, name+"/") || name[:max(0, strings.LastIndexByte(name, '/'))] == created
	case "names exclude by prefix":
		return created != name && (strings.HasPrefix(name, created) || strings.HasPrefix(created, name))
	case "names exclude whatever their case":
		return driver.Excludes(strings.ToLower(created), strings.ToLower(name))
	case "names exclude by like":
		return like(name, created+"/%")
	}
	return driver.Excludes(created, name)
}

// leaves reports whether the request itself decides about name: it deletes that ref, or is about
// that alone.
func (d *connection) leaves(updates []driver.Update, name string) bool {
	i := slices.IndexFunc(updates, func(u driver.Update) bool { return u.Ref == name })
	return i >= 0 && d.bug != "what goes with the request excludes"
}
