package rules

import (
	"cmp"
	"slices"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
)

// A LostRef is a ref with undecided lost changes.
type LostRef struct {
	Project, Ref string
	Lost         []driver.LostChange // in the order of their operations
	Value        driver.Value        // of the ref
	Intent       string              // the operation that recorded the intent on the ref; "" if none is pending
	Token        driver.Token        // of that intent
}

// LostRefs are refs with undecided lost changes, in the order of their names.
type LostRefs []LostRef

// Add adds an undecided lost change. It has to be called in the order of the changes' keys. now is
// the present state of the change's ref.
func (refs *LostRefs) Add(l driver.LostChange, now LostRef) {
	if n := len(*refs); n > 0 && (*refs)[n-1].Project == l.Project && (*refs)[n-1].Ref == l.Ref {
		(*refs)[n-1].Lost = append((*refs)[n-1].Lost, l)
		return
	}
	now.Project, now.Ref, now.Lost = l.Project, l.Ref, []driver.LostChange{l}
	*refs = append(*refs, now)
}

// A LostVerdict contains the writes of one step of a recovery for a ref.
type LostVerdict struct {
	Again     *driver.LostChange  // the change that is made again, or nil
	EndIntent bool                // the intent on the ref ends, with its lock: its operation had ended
	Decided   []driver.LostChange // with their fates; the other changes are left for the next step
}

// Origin is the origin of the change that is made again.
func (v LostVerdict) Origin() driver.Origin {
	return driver.Origin{ID: v.Again.Op, Owner: v.Again.Owner, By: v.Again.By}
}

// Decide decides about the lost changes of r. If one of them can be made again, Decide decides only
// about that change and others of the same operation: the next step continues from there. Otherwise
// it decides about all changes.
func (r LostRef) Decide() (v LostVerdict) {
	again := nextLost(r.Lost, r.Value, r.Intent)
	if again >= 0 {
		v.Again, v.EndIntent = &r.Lost[again], r.Intent != ""
	}
	for _, l := range r.Lost {
		switch {
		case again < 0 && l.Token != 0 && l.Move == driver.MoveUnmade:
			l.Fate = driver.Dropped
		case again < 0:
			l.Fate = driver.Opposed
		case driver.IntentOp(l.Op) == driver.IntentOp(v.Again.Op):
			l.Fate = driver.Rewritten
		default:
			continue
		}
		// The intent had ended: its repository may have moved on, and must not be consulted.
		v.EndIntent = v.EndIntent || again < 0 && l.Token == 0 && r.Intent != "" && driver.IntentOp(l.Op) == r.Intent
		v.Decided = append(v.Decided, l)
	}
	return v
}

// nextLost returns the index of the lost change to write next, or -1. Times are not exact, and a
// ref may hold the same value twice. So nextLost searches for an order of all changes in which each
// change begins with the value that the previous one leaves. If there is no such order, because a
// change is missing or two contradict each other, it takes the earliest change that fits.
func nextLost(lost []driver.LostChange, value driver.Value, intent string) int {
	var made []int
	for i, l := range lost {
		if l.Token == 0 || l.Move == driver.MoveMade {
			made = append(made, i)
		}
	}
	slices.SortFunc(made, func(a, b int) int {
		return cmp.Or(lost[a].At.Compare(lost[b].At), cmp.Compare(lost[a].Op, lost[b].Op))
	})
	fits := func(i int) bool {
		return lost[i].Old.Equivalent(value) && (intent == "" || intent == driver.IntentOp(lost[i].Op))
	}
	if whole := trail(lost, made, value); len(whole) > 0 && fits(whole[0]) {
		return whole[0]
	}
	if i := slices.IndexFunc(made, fits); i >= 0 {
		return made[i]
	}
	return -1
}

// trail returns all changes of made in such an order, beginning with value, or nil if there is
// none. It is Hierholzer's algorithm for Eulerian trails: values are vertices, changes are edges.
// It prefers edges that come first in made.
func trail(lost []driver.LostChange, made []int, value driver.Value) []int {
	vertex := func(v driver.Value) driver.Value {
		if v.IsAbsent() {
			return driver.Unknown
		}
		return v
	}
	from := make(map[driver.Value][]int)
	for _, i := range made {
		from[vertex(lost[i].Old)] = append(from[vertex(lost[i].Old)], i)
	}
	type stop struct {
		at  driver.Value
		via int
	}
	var backwards []int
	for stack := []stop{{vertex(value), -1}}; len(stack) > 0; {
		top := stack[len(stack)-1]
		if next := from[top.at]; len(next) > 0 {
			from[top.at] = next[1:]
			stack = append(stack, stop{vertex(lost[next[0]].New), next[0]})
			continue
		}
		stack = stack[:len(stack)-1]
		if top.via >= 0 {
			backwards = append(backwards, top.via)
		}
	}
	slices.Reverse(backwards)
	at := vertex(value)
	for _, i := range backwards {
		if vertex(lost[i].Old) != at {
			return nil
		}
		at = vertex(lost[i].New)
	}
	if len(backwards) != len(made) {
		return nil
	}
	return backwards
}

const (
	halted  = ""  // no server is admitted until a recovery ends
	awaited = "-" // no server is admitted until all witnesses have reported
)
