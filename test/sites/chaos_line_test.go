//go:build linux

package sites

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// An outcome is what a client was told of one ref of a push.
type outcome string

const (
	acknowledged outcome = "acknowledged"
	refused      outcome = "refused"
	unknown      outcome = "unknown" // the client was cut off
)

// A move is one ref of a push. The values are "" for a ref that is absent; no two
// moves have the same new one, unless they delete.
type move struct {
	old, new   string
	start, end time.Duration // of the push
	outcome    outcome
	where      string // for the reader
}

func (m *move) String() string {
	return fmt.Sprintf("%s to %s %s: %.8q to %.8q %s", m.start, m.end, m.where, m.old, m.new, m.outcome)
}

// endedBefore reports whether m was over when other began. A move whose client was cut
// off is over, too: git has ended by then, so the ref has moved, or never will.
func (m *move) endedBefore(other *move) bool { return m.end < other.start }

// findLine returns an error unless the values of a ref form a single line, from
// absent to the last value. All acknowledged moves are on the line, none of the
// refused ones, and some of unknown outcome. Each move begins with the value at which
// the previous one ended. No move comes after one that began when it had ended.
func findLine(moves []*move, last string) error {
	b := &liner{last: last, into: make(map[string]*move), out: make(map[string]*move), on: make(map[*move]bool)}
	for _, m := range moves {
		if m.new != "" {
			if other := b.into[m.new]; other != nil {
				return fmt.Errorf("two moves lead to one value: %v; %v", other, m)
			}
			b.into[m.new] = m
		}
	}
	for _, m := range moves {
		if m.outcome != acknowledged {
			continue
		}
		if err := b.add(m); err != nil {
			return err
		}
	}
	if last != "" {
		m := b.into[last]
		if m == nil {
			return fmt.Errorf("nobody pushed the last value, %.8q", last)
		}
		if err := b.add(m); err != nil {
			return err
		}
	}
	if m := b.out[last]; last != "" && m != nil {
		return fmt.Errorf("the last value came back: %v", m)
	}
	return b.order(moves)
}

// A liner puts moves together. A line is made of lives: each begins with a
// creation and ends with a deletion. The last one may have no end.
type liner struct {
	last string
	into map[string]*move // all, by their new value
	out  map[string]*move // those on the line, by their old value
	on   map[*move]bool
}

// add puts m on the line, and all moves that must have come before it.
func (b *liner) add(m *move) error {
	for !b.on[m] {
		if m.outcome == refused {
			return fmt.Errorf("it was refused, and it is on the line: %v", m)
		}
		b.on[m] = true
		if m.old == "" {
			return nil
		}
		if other := b.out[m.old]; other != nil {
			return fmt.Errorf("two moves from one value: %v; %v", other, m)
		}
		b.out[m.old] = m
		before := b.into[m.old]
		if before == nil {
			return fmt.Errorf("nobody pushed what was there before: %v", m)
		}
		m = before
	}
	return nil
}

// order completes the lives, and checks that they can have followed one another.
func (b *liner) order(moves []*move) error {
	var lives [][]*move
	final := -1
	for _, m := range moves {
		if !b.on[m] || m.old != "" {
			continue
		}
		life := []*move{m}
		for m.new != "" && b.out[m.new] != nil {
			m = b.out[m.new]
			life = append(life, m)
		}
		switch {
		case m.new == "":
		case m.new == b.last:
			final = len(lives)
		default:
			end := b.end(moves, m.new)
			if end == nil {
				return fmt.Errorf("the value was lost: %v; the last one is %.8q", m, b.last)
			}
			life = append(life, end...)
		}
		for i, m := range life {
			for _, later := range life[i+1:] {
				if later.endedBefore(m) {
					return fmt.Errorf("it was done before the other began, and comes after it: %v; %v", later, m)
				}
			}
		}
		lives = append(lives, life)
	}
	return inOrder(lives, final)
}

// end finds moves of unknown outcome that delete a value.
func (b *liner) end(moves []*move, from string) []*move {
	var best []*move
	for _, m := range moves {
		if m.outcome != unknown || m.old != from || b.on[m] {
			continue
		}
		way := []*move{m}
		if m.new != "" {
			rest := b.end(moves, m.new)
			if rest == nil {
				continue
			}
			way = append(way, rest...)
		}
		// The move that began first restricts the order least.
		if best == nil || way[0].start < best[0].start {
			best = way
		}
	}
	return best
}

// inOrder repeatedly removes a life that no other must precede.
func inOrder(lives [][]*move, final int) error {
	before := func(i, k int) bool {
		return k == final || slices.ContainsFunc(lives[i], func(m *move) bool {
			return slices.ContainsFunc(lives[k], m.endedBefore)
		})
	}
	var left []int
	for i := range lives {
		left = append(left, i)
	}
	for len(left) > 0 {
		first := slices.IndexFunc(left, func(k int) bool {
			return !slices.ContainsFunc(left, func(i int) bool { return i != k && before(i, k) })
		})
		if first < 0 {
			var text strings.Builder
			for _, i := range left {
				fmt.Fprintf(&text, "\n\t%v … %v", lives[i][0], lives[i][len(lives[i])-1])
			}
			return fmt.Errorf("these can't have been one after the other, with %.8q at the end:%s", lives[max(final, 0)][0].new, &text)
		}
		left = slices.Delete(left, first, first+1)
	}
	return nil
}

// timed makes moves that follow each other. Each is "OLD>NEW", with ! behind it
// if it was refused, ? if the outcome is unknown, and = if it was at the
// same time as the one before it.
func timed(text string) (moves []*move) {
	at := time.Duration(0)
	for word := range strings.FieldsSeq(text) {
		m := &move{outcome: acknowledged}
		simple := strings.TrimRight(word, "!?=")
		m.old, m.new, _ = strings.Cut(simple, ">")
		for _, flag := range word[len(simple):] {
			switch flag {
			case '!':
				m.outcome = refused
			case '?':
				m.outcome = unknown
			case '=':
				at -= 2
			}
		}
		m.start, m.end = at, at+1
		at += 2
		moves = append(moves, m)
	}
	return moves
}

func TestWhatIsNoLineIsFound(t *testing.T) {
	for _, c := range []struct {
		name, moves, last, want string
	}{
		{"nothing", "", "", ""},
		{"a line", ">a a>b b>c", "c", ""},
		{"a line with lives", ">a a> >b b>c c>", "", ""},
		{"refused ones aside", ">a a>b a>x! b>c b>!", "c", ""},
		{"unknown that did nothing", ">a a>x? a>b", "b", ""},
		{"unknown that was done", ">a a>x? x>b", "b", ""},
		{"unknown at the end", ">a a>x?", "x", ""},
		{"unknown deletion between", ">a a>? >b", "b", ""},
		{"unknown moves to an unknown deletion", ">a a>b? b>? a>c? >d", "d", ""},
		{"at the same time", ">a b>c a>b=", "c", ""},
		{"two creations, one deletion, at the same time", ">a >b= b>=", "a", ""},

		{"unknown takes effect late", ">a? a>!  >b b>? b>!", "a", "one after the other"},
		{"lost update", ">a a>b b>c", "b", "came back"},
		{"lost at the end", ">a a>b", "a", "came back"},
		{"lost creation", ">a", "", "lost"},
		{"lost behind another creation", ">a >b", "b", "lost"},
		{"double acceptance", ">a a>b a>c=", "c", "two moves from one value"},
		{"double deletion", ">a a> a>=", "", "two moves from one value"},
		{"double creation", ">a >b= b>", "a", "one after the other"},
		{"two lives at the end", ">a >b= ", "a", "lost"},
		{"resurrected by deletion undone", ">a a>", "a", "came back"},
		{"resurrected and moved on", ">a a> >b b> a>c", "c", "two moves from one value"},
		{"refused and done", ">a a>b! b>c", "c", "refused"},
		{"refused and last", ">a a>b!", "b", "refused"},
		{"out of nowhere", ">a x>b", "b", "nobody pushed"},
		{"last out of nowhere", ">a", "x", "nobody pushed"},
		{"in the wrong order", "a>b >a", "b", "comes after it"},
		{"lives in the wrong order", ">b >a a>", "b", "one after the other"},
		{"a life within another", ">a >b b> a>", "", "one after the other"},
		{"the last life before another", ">a >b b>", "a", "one after the other"},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := findLine(timed(c.moves), c.last)
			if c.want == "" && err != nil {
				t.Errorf("%s to %q: %v", c.moves, c.last, err)
			}
			if c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("%s to %q: %v, want %q", c.moves, c.last, err, c.want)
			}
		})
	}
}
