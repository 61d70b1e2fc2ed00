package rules

import (
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
)

// lostMoves are lost changes "old new", each a second later than the one before.
func lostMoves(moves ...[2]refdb.Value) (lost []refdb.LostChange) {
	for i, m := range moves {
		k := refdb.Known{Old: m[0], New: m[1], Op: string(rune('a' + i)), At: time.Unix(int64(i), 0)}
		lost = append(lost, refdb.LostChange{Known: k})
	}
	return lost
}

// recovered returns the operations that are written again, in their order, and what the ref then holds.
func recovered(t *testing.T, lost []refdb.LostChange, value refdb.Value) (ops string, end refdb.Value) {
	t.Helper()
	for range len(lost) + 1 {
		v := DecideLost(lost, value, "")
		if v.Again < 0 {
			return ops, value
		}
		ops, value = ops+lost[v.Again].Op, lost[v.Again].New
		var rest []refdb.LostChange
		for i, l := range lost {
			if v.Fates[i] == refdb.Undecided {
				rest = append(rest, l)
			}
		}
		lost = rest
	}
	t.Fatal("it goes on for ever")
	return "", ""
}

func TestLostChangesOfARefAreWrittenInAnOrderThatHasAllOfThem(t *testing.T) {
	const none, gone = refdb.Unknown, refdb.Deleted
	for name, row := range map[string]struct {
		lost  []refdb.LostChange
		value refdb.Value
		ops   string
		end   refdb.Value
	}{
		"a chain":                           {lostMoves([2]refdb.Value{"1", "2"}, [2]refdb.Value{"2", "3"}), "1", "ab", "3"},
		"one whose times are wrong":         {lostMoves([2]refdb.Value{"2", "3"}, [2]refdb.Value{"1", "2"}), "1", "ba", "3"},
		"a value that returns":              {lostMoves([2]refdb.Value{none, "1"}, [2]refdb.Value{"1", gone}, [2]refdb.Value{gone, "2"}), none, "abc", "2"},
		"the last one seems to be earliest": {lostMoves([2]refdb.Value{none, "9"}, [2]refdb.Value{none, "1"}, [2]refdb.Value{"1", gone}), gone, "bca", "9"},
		"a part is not known":               {lostMoves([2]refdb.Value{"1", "2"}, [2]refdb.Value{"5", "6"}), "1", "a", "2"},
		"two contradict each other":         {lostMoves([2]refdb.Value{"1", "2"}, [2]refdb.Value{"1", "3"}), "1", "a", "2"},
		"nothing fits":                      {lostMoves([2]refdb.Value{"1", "2"}), "7", "", "7"},
	} {
		t.Run(name, func(t *testing.T) {
			if ops, end := recovered(t, row.lost, row.value); ops != row.ops || !end.Equivalent(row.end) {
				t.Errorf("%s were written again, to %q; want %s, %q", ops, end, row.ops, row.end)
			}
		})
	}
}
