package queue

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
)

// A Place is a waiter's place in the queue of a lock.
type Place struct {
	Ticket  int64         // µs since 1970, of the database's clock
	Passed  int           // how many later waiters got the lock before it
	Turn    time.Duration // how long the lock is kept for it; in whole milliseconds
	ID      string
	Channel string // "" if it polls
	Owner   string
}

// String returns the place as a row stores it. The first three fields have a fixed width, so that
// the strings sort like the places. Only the last field, the owner, may contain a dot.
func (p Place) String() string {
	return fmt.Sprintf("%016d.%02d.%05d.%s.%s.%s", p.Ticket, p.Passed, p.Turn.Milliseconds(), p.ID, p.Channel, p.Owner)
}

// Parse is the inverse of String. Another version of this program may have stored places in another
// form, for which ok is false.
func Parse(s string) (p Place, ok bool) {
	fields := strings.SplitN(s, ".", 6)
	if len(fields) < 6 || len(fields[0]) != 16 || len(fields[1]) != 2 || len(fields[2]) != 5 || !isName(fields[3]) || fields[4] != "" && !isName(fields[4]) {
		return Place{}, false
	}
	ticket, err1 := strconv.ParseUint(fields[0], 10, 63)
	passed, err2 := strconv.ParseUint(fields[1], 10, 8)
	turn, err3 := strconv.ParseUint(fields[2], 10, 32)
	if err1 != nil || err2 != nil || err3 != nil {
		return Place{}, false
	}
	return Place{int64(ticket), int(passed), time.Duration(turn) * time.Millisecond, fields[3], fields[4], fields[5]}, true
}

func isName(s string) bool {
	for _, c := range []byte(s) {
		if !('0' <= c && c <= '9' || 'A' <= c && c <= 'Z' || 'a' <= c && c <= 'z') {
			return false
		}
	}
	return 1 <= len(s) && len(s) <= 32
}

// PlaceOf returns the place of w, a waiter of owner, as far as it is known to w.
func PlaceOf(w driver.Waiter, owner string) Place {
	p := Place{
		Passed: min(w.Place.Passed, driver.MaxPassed), Turn: min(max(w.Turn.Truncate(time.Millisecond), time.Millisecond), maxTurn),
		ID: w.ID, Channel: w.Channel, Owner: owner,
	}
	if !w.Place.Ticket.IsZero() {
		p.Ticket = w.Place.Ticket.UnixMicro()
	}
	return p
}

func (p Place) compare(o Place) int {
	return cmp.Or(cmp.Compare(p.Ticket, o.Ticket), strings.Compare(p.ID, o.ID))
}

// before reports whether p has a ticket and precedes o.
func (p Place) before(o Place) bool { return p.Ticket != 0 && p.compare(o) < 0 }
