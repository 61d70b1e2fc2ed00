package linearizability

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/anishathalye/porcupine"
)

// shown is how many of the calls before a fault are shown.
const shown = 12

// fault describes where one of the longest possible orders ends: its last calls,
// the state that they lead to, and the calls that can't follow.
func (p *partition) fault(info porcupine.LinearizationInfo) string {
	var longest []porcupine.Operation
	for _, order := range info.PartialLinearizationsOperations()[0] {
		if len(order) > len(longest) {
			longest = order
		}
	}
	states := []any{make(state, len(p.refs))}
	placed := make(map[*event]bool)
	for _, op := range longest {
		e := op.Input.(*event)
		placed[e] = true
		var next []any
		for _, s := range states {
			next = append(next, e.next(s.(state))...)
		}
		states = next
	}
	var text strings.Builder
	fmt.Fprintf(&text, "  %d of its %d calls have an order, which ends with\n", len(longest), len(p.events))
	for _, op := range longest[max(0, len(longest)-shown):] {
		fmt.Fprintf(&text, "    %s\n", op.Input.(*event))
	}
	fmt.Fprintf(&text, "  in the state\n    %s\n  in which none of these can have come next:\n", states[0].(state).describe(p.refs))
	for _, e := range p.candidates(placed) {
		fmt.Fprintf(&text, "    %s\n", e)
	}
	return text.String()
}

// candidates returns the events of which one has to come next: those that were
// called before the first of the remaining ones returned.
func (p *partition) candidates(placed map[*event]bool) (all []*event) {
	first := int64(Never)
	for i := range p.events {
		if e := &p.events[i]; !placed[e] {
			first = min(first, e.ret)
		}
	}
	for i := range p.events {
		if e := &p.events[i]; !placed[e] && e.call <= first {
			all = append(all, e)
		}
	}
	slices.SortFunc(all, func(a, b *event) int { return cmp.Compare(a.call, b.call) })
	return all
}
