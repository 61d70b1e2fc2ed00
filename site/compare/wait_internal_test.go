package compare

import (
	"testing"

	"github.com/globalrefdb/globalrefdb/refdb"
)

// A follower may have looked before the wait began, so that its first move brings less than was waited for.
func TestWhatWasWaitedForOrSomethingLater(t *testing.T) {
	t.Parallel()
	id := func(n string) refdb.Value {
		return refdb.Value(n + "000000000000000000000000000000000000000"[len(n)-1:])
	}
	for name, c := range map[string]struct {
		local, global []refdb.Value // as they are found, one look after the other
		want          bool          // of the last look
	}{
		"nothing has moved":                 {[]refdb.Value{id("1")}, []refdb.Value{id("3")}, false},
		"it came":                           {[]refdb.Value{id("3")}, []refdb.Value{id("4")}, true},
		"it is as the database":             {[]refdb.Value{id("4")}, []refdb.Value{id("4")}, true},
		"one move, to something earlier":    {[]refdb.Value{id("2")}, []refdb.Value{id("4")}, false},
		"it stays there":                    {[]refdb.Value{id("2"), id("2")}, []refdb.Value{id("4"), id("4")}, false},
		"a second move, to something later": {[]refdb.Value{id("2"), id("5")}, []refdb.Value{id("4"), id("6")}, true},
		"a deletion that both sides have":   {[]refdb.Value{refdb.Unknown}, []refdb.Value{refdb.Deleted}, true},
		"a deletion that is not waited for": {[]refdb.Value{refdb.Unknown}, []refdb.Value{id("4")}, false},
	} {
		a := newAwaited(Pair{Ref: "refs/heads/x", Local: id("1"), Global: id("3")})
		got := false
		for i := range c.local {
			got = a.came(Pair{Ref: "refs/heads/x", Local: c.local[i], Global: c.global[i]})
		}
		if got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
