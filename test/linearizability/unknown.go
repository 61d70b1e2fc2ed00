package linearizability

import (
	"slices"

	"github.com/globalrefdb/globalrefdb/refdb"
)

// Unknown outcomes would make the search exponential: each may have happened
// at any time from its call to the end. But what happened leaves traces, and
// the first who saw one says until when. So an update that wrote a value of its own which was seen has
// happened, before that answer came; one none of whose values was ever seen changed
// nothing that anybody could tell, for a compare-and-put that replaced them would
// have named them. Only the rest, such as deletions, is left to the search.

// A written value is a value that a ref was given.
type written struct {
	ref   string
	value refdb.Value
}

// settle returns ops in which it has resolved unknown outcomes as far as possible,
// without ops that changed nothing. Ops that remain unknown never returned.
func settle(ops []Op) []Op {
	ops = slices.Clone(ops)
	var unknown []*Op
	for i := range ops {
		if op := &ops[i]; op.Input.Kind == Update && op.Output.Result == Unknown {
			op.Return = Never
			unknown = append(unknown, op)
		}
	}
	writers, seen := writers(ops), seen(ops)
	for again := true; again; {
		again = false
		for _, op := range unknown {
			by, ok := witness(*op, writers, seen)
			if by = max(by, op.Call); ok && by < op.Return {
				op.Output, op.Return = Output{Result: Done}, by
				seen.add(*op) // the values that it replaced
				again = true
			}
		}
	}
	return slices.DeleteFunc(ops, func(op Op) bool {
		return op.Input.Kind == Update && op.Output.Result == Unknown && !op.Input.Release && writers.own(op.Input)
	})
}

// A census counts who wrote a value.
type census map[written]int

func writers(ops []Op) census {
	c := make(census)
	for _, op := range ops {
		if r := op.Output.Result; op.Input.Kind == Update && (r == Done || r == Unknown) {
			for _, u := range op.Input.Updates {
				c[written{u.Ref, stored(u)}]++
			}
		}
	}
	return c
}

// one reports whether nobody else wrote what u wrote.
func (c census) one(u refdb.Update) bool {
	return !u.New.IsAbsent() && c[written{u.Ref, u.New}] == 1
}

// own reports whether all that an update wrote is its own.
func (c census) own(in Input) bool {
	return !slices.ContainsFunc(in.Updates, func(u refdb.Update) bool { return !c.one(u) })
}

// sightings say, for each value, when the first answer that shows it returned.
type sightings map[written]int64

func seen(ops []Op) sightings {
	s := make(sightings)
	for _, op := range ops {
		s.add(op)
	}
	return s
}

func (s sightings) add(op Op) {
	see := func(ref string, v refdb.Value) {
		if at, ok := s[written{ref, v}]; !ok || op.Return < at {
			s[written{ref, v}] = op.Return
		}
	}
	for ref, v := range op.Output.Values {
		see(ref, v)
	}
	for _, m := range op.Output.Mismatches {
		see(m.Ref, m.Have)
	}
	if op.Input.Kind == Update && op.Output.Result == Done && !op.Input.Adopt {
		for _, u := range op.Input.Updates {
			see(u.Ref, u.Old)
		}
	}
}

// witness returns when the first answer that proves that op happened returned.
func witness(op Op, writers census, seen sightings) (at int64, ok bool) {
	at = Never
	for _, u := range op.Input.Updates {
		if t, found := seen[written{u.Ref, u.New}]; found && writers.one(u) {
			at, ok = min(at, t), true
		}
	}
	return at, ok
}
