package waitqueue

import (
	"strings"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/internal/queue"
)

func TestPayloadsHoldAnyName(t *testing.T) {
	for _, project := range []string{"a", "a\nb", "\n", "ü,\n\n"} {
		w := wakeup{Wakeup: driver.Wakeup{Project: project, Ref: "refs/heads/ü,x", Waiter: "ID", After: 100 * time.Millisecond}}
		if got, ok := parsePayload(w.payload()); !ok || got != w.Wakeup {
			t.Errorf("%q: %+v", w.payload(), got)
		}
	}
	for _, other := range []string{"", "aprobe", "refdb_0123456789abcdef\nref\nproject", "\nref\nproject", "a.b\nref", " 1\nref\nproject", "a.b,c.d\nref\nproject"} {
		if w, ok := parsePayload(other); ok {
			t.Errorf("%q is taken for a wake-up: %+v", other, w)
		}
	}
}

func TestPayloadsAreShortEnoughForTheServer(t *testing.T) {
	const maxPayload = 7999 // bytes: https://www.postgresql.org/docs/current/sql-notify.html
	w := wakeup{Wakeup: driver.Wakeup{
		Project: strings.Repeat("p", driver.MaxNameBytes), Ref: strings.Repeat("r", driver.MaxNameBytes), Waiter: strings.Repeat("i", 32), After: time.Minute,
	}}
	if n := len(w.payload()); n > maxPayload {
		t.Errorf("a payload of %d bytes", n)
	}
}

func TestNothingIsSentToAChannelThatNobodyListensOn(t *testing.T) {
	n := New(nil)
	unheard := queue.Place{Ticket: 1, Turn: 5 * time.Second, ID: "a", Channel: queue.Unheard, Owner: "o"}
	heard := queue.Place{Ticket: 2, Turn: time.Second, ID: "b", Channel: "c", Owner: "o"}
	n.Notify("p", "refs/heads/main", []string{unheard.String(), heard.String()})
	want := wakeup{"c", driver.Wakeup{Project: "p", Ref: "refs/heads/main", Waiter: "b", After: 5 * time.Second}}
	if len(n.pending) != 1 || n.pending[0] != want {
		t.Errorf("%+v", n.pending)
	}
}
