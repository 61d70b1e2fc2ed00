package rules

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
)

// lostMoves are lost changes "old new", each a second later than the one before.
func lostMoves(moves ...[2]driver.Value) (lost []driver.LostChange) {
	for i, m := range moves {
		k := driver.Known{Old: m[0], New: m[1], Op: string(rune('a' + i)), At: time.Unix(int64(i), 0)}
		lost = append(lost, driver.LostChange{Known: k})
	}
	return lost
}

// recovered returns the operations that are written again, in their order, and what the ref then
// holds.
func recovered(t *testing.T, lost []driver.LostChange, value driver.Value) (ops string, end driver.Value) {
	t.Helper()
	for range len(lost) + 1 {
		v := LostRef{Lost: lost, Value: value}.Decide()
		if v.Again == nil {
			return ops, value
		}
		ops, value = ops+v.Again.Op, v.Again.New
		lost = slices.DeleteFunc(slices.Clone(lost), func(l driver.LostChange) bool {
			return slices.ContainsFunc(v.Decided, func(d driver.LostChange) bool { return d.Op == l.Op })
		})
	}
	t.Fatal("it goes on for ever")
	return "", ""
}

func TestLostChangesOfARefAreWrittenInAnOrderThatHasAllOfThem(t *testing.T) {
	const none, gone = driver.Unknown, driver.Deleted
	for name, row := range map[string]struct {
		lost  []driver.LostChange
		value driver.Value
		ops   string
		end   driver.Value
	}{
		"a chain":                           {lostMoves([2]driver.Value{"1", "2"}, [2]driver.Value{"2", "3"}), "1", "ab", "3"},
		"one whose times are wrong":         {lostMoves([2]driver.Value{"2", "3"}, [2]driver.Value{"1", "2"}), "1", "ba", "3"},
		"a value that returns":              {lostMoves([2]driver.Value{none, "1"}, [2]driver.Value{"1", gone}, [2]driver.Value{gone, "2"}), none, "abc", "2"},
		"the last one seems to be earliest": {lostMoves([2]driver.Value{none, "9"}, [2]driver.Value{none, "1"}, [2]driver.Value{"1", gone}), gone, "bca", "9"},
		"a part is not known":               {lostMoves([2]driver.Value{"1", "2"}, [2]driver.Value{"5", "6"}), "1", "a", "2"},
		"two contradict each other":         {lostMoves([2]driver.Value{"1", "2"}, [2]driver.Value{"1", "3"}), "1", "a", "2"},
		"nothing fits":                      {lostMoves([2]driver.Value{"1", "2"}), "7", "", "7"},
	} {
		t.Run(name, func(t *testing.T) {
			if ops, end := recovered(t, row.lost, row.value); ops != row.ops || !end.Equivalent(row.end) {
				t.Errorf("%s were written again, to %q; want %s, %q", ops, end, row.ops, row.end)
			}
		})
	}
}

func TestWhatAStepOfARecoveryWritesAboutARef(t *testing.T) {
	change := func(op string, old, new driver.Value) driver.LostChange {
		return driver.LostChange{Known: driver.Known{Project: "p", Ref: "r", Op: op, Old: old, New: new, Owner: "o", By: "b"}}
	}
	intent := func(op string, move driver.Move) driver.LostChange {
		l := change(op, "1", "2")
		l.Token, l.Move = 7, move
		return l
	}
	const again, opposed, dropped = driver.Rewritten, driver.Opposed, driver.Dropped
	for name, row := range map[string]struct {
		lost   []driver.LostChange
		value  driver.Value
		intent string
		again  string
		ends   bool
		fates  map[string]driver.Fate
	}{
		"one fits":                        {[]driver.LostChange{change("a", "1", "2")}, "1", "", "a", false, map[string]driver.Fate{"a": again}},
		"the next one is for later":       {[]driver.LostChange{change("a", "1", "2"), change("b", "2", "3")}, "1", "", "a", false, map[string]driver.Fate{"a": again}},
		"its intent is decided with it":   {[]driver.LostChange{intent("a", driver.MoveUnknown), change("a-1", "1", "2")}, "1", "", "a-1", false, map[string]driver.Fate{"a": again, "a-1": again}},
		"its intent is pending again":     {[]driver.LostChange{change("a-1", "1", "2")}, "1", "a", "a-1", true, map[string]driver.Fate{"a-1": again}},
		"another's intent stands":         {[]driver.LostChange{change("b", "1", "2")}, "1", "a", "", false, map[string]driver.Fate{"b": opposed}},
		"none fits":                       {[]driver.LostChange{change("a", "1", "2"), change("b", "3", "4")}, "9", "", "", false, map[string]driver.Fate{"a": opposed, "b": opposed}},
		"none fits, the intent had ended": {[]driver.LostChange{change("a-1", "1", "2")}, "9", "a", "", true, map[string]driver.Fate{"a-1": opposed}},
		"a move that was made":            {[]driver.LostChange{intent("a", driver.MoveMade)}, "1", "", "a", false, map[string]driver.Fate{"a": again}},
		"a move that was not made":        {[]driver.LostChange{intent("a", driver.MoveUnmade)}, "1", "", "", false, map[string]driver.Fate{"a": dropped}},
	} {
		v := LostRef{Lost: row.lost, Value: row.value, Intent: row.intent}.Decide()
		op := ""
		if v.Again != nil {
			op = v.Again.Op
			if want := (driver.Origin{ID: op, Owner: "o", By: "b"}); v.Origin() != want {
				t.Errorf("%s: it is made by %+v", name, v.Origin())
			}
		}
		fates := make(map[string]driver.Fate)
		for _, l := range v.Decided {
			fates[l.Op] = l.Fate
		}
		if op != row.again || v.EndIntent != row.ends || !maps.Equal(fates, row.fates) {
			t.Errorf("%s: %q is made again, the intent ends: %t, fates %v", name, op, v.EndIntent, fates)
		}
	}
}

func TestLostChangesAreGroupedByTheirRefs(t *testing.T) {
	var refs LostRefs
	for _, k := range [][3]string{{"p", "r", "a"}, {"p", "r", "b"}, {"p", "s", "a"}, {"q", "s", "a"}} {
		refs.Add(driver.LostChange{Known: driver.Known{Project: k[0], Ref: k[1], Op: k[2]}}, LostRef{Value: driver.Value("of " + k[0] + k[1]), Intent: "i", Token: 3})
	}
	var got []string
	for _, r := range refs {
		got = append(got, fmt.Sprint(r.Project, r.Ref, " ", len(r.Lost), " ", r.Value, r.Intent, r.Token))
	}
	if want := []string{"pr 2 of pri3", "ps 1 of psi3", "qs 1 of qsi3"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
