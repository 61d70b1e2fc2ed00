package refdb

import (
	"testing"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
)

func TestAWindowKeepsTheLastChanges(t *testing.T) {
	var w window
	at := Position(0)
	for range 20 {
		var page []Change
		for range changesPage {
			at++
			page = append(page, Change{Project: "p", Ref: "r", Position: at})
		}
		w.add(page, driver.ChangeKey{Position: at + 1}, HistoryState{Upto: at})
		first := max(1, at-feedWindow+1)
		if n := len(w.page.Changes); n != int(at-first+1) || w.page.Changes[0].Position != first {
			t.Fatalf("at %d it has %d changes from %d on, not from %d", at, n, w.page.Changes[0].Position, first)
		}
		if first > 1 && w.start != (driver.ChangeKey{Position: first - 1, Project: "p", Ref: "r"}) {
			t.Fatalf("it begins after %+v, but its first change is at %d", w.start, first)
		}
	}
	if n := cap(w.page.Changes); n > 3*feedWindow {
		t.Errorf("it has room for %d changes", n)
	}
}

func TestAWindowHasTheChangesThatAreNotGone(t *testing.T) {
	w := window{start: driver.ChangeKey{Position: 5}}
	w.add([]Change{{Project: "p", Ref: "r", Position: 7, Op: "op"}}, driver.ChangeKey{Position: 10}, HistoryState{Upto: 9})
	for at, found := range map[Position]bool{4: true, 6: false, 7: true, 8: false} {
		key := driver.ChangeKey{Position: at, Project: "p", Ref: "r"}
		if p := w.after(Cursor{Mark: key, Last: key, LastOp: "op"}, ChangeQuery{}); p.LastFound != found || found && p.LastOp != "op" {
			t.Errorf("the change at %d: %+v", at, p)
		}
	}
}
