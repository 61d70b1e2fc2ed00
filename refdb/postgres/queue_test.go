package postgres

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/globalrefdb/globalrefdb/refdb"
)

func waiter(n int) refdb.Waiter { return refdb.Waiter{Channel: fmt.Sprint("channel", n), Client: "c"} }

// longest are waiters with the longest names.
func longest(n int) (queue refdb.Queue) {
	for i := range n {
		queue = append(queue, refdb.Waiter{Channel: fmt.Sprintf("%032d", i), Client: strings.Repeat("c", 32)})
	}
	return queue
}

func TestPayloadsHoldAnyName(t *testing.T) {
	for _, project := range []string{"a", "a\nb", "\n", "ü,\n\n"} {
		w := refdb.Wakeup{Project: project, Ref: "refs/heads/ü,x", Queue: refdb.Queue{waiter(1), waiter(2), waiter(3)}}
		got, ok := parsePayload(payloadOf(w))
		if !ok || got.Project != w.Project || got.Ref != w.Ref || !slices.Equal(got.Queue, w.Queue) {
			t.Errorf("%q: %+v", payloadOf(w), got)
		}
	}
	for _, other := range []string{"", "aprobe", "refdb_0123456789abcdef\nref\nproject", "\nref\nproject", "a.b\nref"} {
		if w, ok := parsePayload(other); ok {
			t.Errorf("%q is taken for a wake-up: %+v", other, w)
		}
	}
}

func TestPayloadsAreShortEnoughForTheServer(t *testing.T) {
	for _, w := range []refdb.Wakeup{
		{Project: strings.Repeat("p", 1000), Ref: strings.Repeat("r", 1000), Queue: longest(maxWaiting)},
		{Project: "p", Ref: "r", Queue: longest(10 * maxWaiting)},
	} {
		payload := payloadOf(w)
		got, ok := parsePayload(payload)
		if n := len(got.Queue); !ok || len(payload) > maxPayload || n < 80 || n > maxWaiting || !slices.Equal(got.Queue, w.Queue[:n]) || got.Project != w.Project {
			t.Errorf("%d bytes of payload have %d in the queue", len(payload), n)
		}
	}
}

func TestEntriesThatNameNobodyAreIgnored(t *testing.T) {
	nobody := []string{"", ".", "a.", ".a", "channel", "refdb_0123456789abcdef", "a.b.c", "a b.c", "ü.a", "a.b\n",
		strings.Repeat("x", 33) + ".a", "a." + strings.Repeat("x", 33)}
	all := slices.Concat(nobody, []string{"a.b"}, nobody, []string{strings.Repeat("x", 32) + "." + strings.Repeat("9", 32)})
	want := refdb.Queue{{Channel: "a", Client: "b"}, {Channel: strings.Repeat("x", 32), Client: strings.Repeat("9", 32)}}
	if got := queueOf(all, refdb.Handoff{}); !slices.Equal(got, want) {
		t.Errorf("got %v", got)
	}
}

func TestAHandoffChangesTheQueue(t *testing.T) {
	row := strings.Split(entriesOf(refdb.Queue{waiter(1), waiter(2), waiter(3)}), ",")
	for _, test := range []struct {
		name  string
		h     refdb.Handoff
		queue refdb.Queue
	}{
		{"none", refdb.Handoff{}, refdb.Queue{waiter(1), waiter(2), waiter(3)}},
		{"the next is taken out", refdb.Handoff{Next: waiter(2)}, refdb.Queue{waiter(1), waiter(3)}},
		{"the last goes to the end", refdb.Handoff{Last: waiter(1)}, refdb.Queue{waiter(2), waiter(3), waiter(1)}},
		{"or comes to it", refdb.Handoff{Last: waiter(4)}, refdb.Queue{waiter(1), waiter(2), waiter(3), waiter(4)}},
	} {
		if got := queueOf(row, test.h); !slices.Equal(got, test.queue) {
			t.Errorf("%s: %v", test.name, got)
		}
	}
	if got := queueOf(nil, refdb.Handoff{Last: waiter(1)}); !slices.Equal(got, refdb.Queue{waiter(1)}) {
		t.Errorf("an empty queue becomes %v", got)
	}
	if got := queueOf(strings.Split(entriesOf(longest(maxWaiting)), ","), refdb.Handoff{Last: waiter(1)}); len(got) != maxWaiting {
		t.Errorf("a full queue becomes one of %d", len(got))
	}
}
