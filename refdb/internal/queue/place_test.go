package queue

import (
	"slices"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
)

func TestPlaceRoundTrip(t *testing.T) {
	for _, p := range []Place{
		{Ticket: 1795402678628854, Passed: 3, Turn: 100 * time.Millisecond, ID: "A1", Channel: "c", Owner: "eu/host.example:1:X"},
		{Ticket: 1, Turn: maxTurn, ID: "x", Owner: ""},
		{Ticket: 1, Passed: driver.MaxPassed, Turn: time.Millisecond, ID: "x", Owner: "a.b.c\n ü"},
	} {
		if got, ok := Parse(p.String()); !ok || got != p {
			t.Errorf("%q is read as %+v", p.String(), got)
		}
	}
	for _, s := range []string{"", "channel.client", "1234567890123456.00.00100", "1234567890123456.00.00100.id.c", "123456789012345x.00.00100.id.c.o",
		"1234567890123456.-1.00100.id.c.o", "1234567890123456.00.00100..c.o", "1234567890123456.00.00100.i d.c.o", "1234567890123456.00.00100.id.c c.o"} {
		if p, ok := Parse(s); ok {
			t.Errorf("%q is taken for %+v", s, p)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("1795402678628854.03.00100.A1.c.eu/host.example:1:X")
	f.Add("0000000000000001.00.20000.x..")
	f.Fuzz(func(t *testing.T, s string) {
		p, ok := Parse(s)
		if !ok {
			return
		}
		if again, ok := Parse(p.String()); !ok || again != p {
			t.Errorf("%q is %+v, and then %+v", s, p, again)
		}
	})
}

// A queue of the maximum length keeps the earliest places.
func TestQueueIsSortedByTicketAndBounded(t *testing.T) {
	var q Queue
	for n := range MaxPlaces + 1 {
		q = q.with(Place{Ticket: int64(MaxPlaces + 1 - n), ID: "w" + string(rune('A'+n%26)) + string(rune('A'+n/26))})
	}
	if len(q) != MaxPlaces || q[0].Ticket != 1 || !slices.IsSortedFunc(q, Place.compare) {
		t.Errorf("%d places from %d to %d", len(q), q[0].Ticket, q[len(q)-1].Ticket)
	}
	if got := Read(q.Texts()); !slices.Equal(got, q) {
		t.Errorf("Read(Texts()) = %v, want %v", got, q)
	}
}
