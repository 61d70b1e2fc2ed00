package linearizability

import (
	"fmt"
	"hash/maphash"
	"slices"
	"strings"

	"github.com/globalrefdb/globalrefdb/refdb"
)

// A state is what a project's rows hold: one refState for each of its refs, in
// the order of partition.refs.
type state []refState

type refState struct {
	value   refdb.Value
	lock    refdb.Token // 0 if free
	leaving bool        // the lock's release was asked for, and may happen any time
	last    refdb.Token // the largest token so far
}

// free takes the lock away.
func (r *refState) free() { r.lock, r.leaving = 0, false }

func (s state) clone() state { return slices.Clone(s) }

func (s state) equal(o state) bool { return slices.Equal(s, o) }

func (s state) hash(seed maphash.Seed) (h uint64) {
	for _, r := range s {
		h = h*31 + maphash.Comparable(seed, r)
	}
	return h
}

// describe returns the state in words.
func (s state) describe(refs []string) string {
	all := make([]string, len(s))
	for i, r := range s {
		all[i] = refs[i] + "=" + show(r.value)
		if r.lock != 0 {
			all[i] += fmt.Sprint(" locked by ", r.lock)
		}
		if r.leaving {
			all[i] += " (being released)"
		}
	}
	return strings.Join(all, ", ")
}

// show returns the part of a value that tells it apart.
func show(v refdb.Value) string {
	switch {
	case v == refdb.Unknown:
		return "unknown"
	case v.IsDeleted():
		return "deleted"
	case v.IsObjectID():
		return strings.TrimLeft(string(v), "0")
	}
	return fmt.Sprintf("%q", string(v))
}
