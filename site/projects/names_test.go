package projects

import "testing"

func TestANameStaysUntilItIsRemovedAsOftenAsAdded(t *testing.T) {
	t.Parallel()
	var n Names
	for step, c := range []struct {
		do  func(string)
		has bool
	}{{n.Add, true}, {n.Add, true}, {n.Remove, true}, {n.Remove, false}, {n.Add, true}} {
		if c.do("a"); n.Has("a") != c.has || n.Has("b") {
			t.Errorf("after step %d: has a %t, b %t", step+1, n.Has("a"), n.Has("b"))
		}
	}
}
