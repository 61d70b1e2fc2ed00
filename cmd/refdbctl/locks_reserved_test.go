package main

import (
	"strings"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
)

// A reservation for a waiter is not a lock: it has no holder, and its times are not those of a
// holder.
func TestAReservationIsNotListedAsALock(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	token := driver.TokenOf(time.Now().Add(-2 * time.Hour))
	w.InsertLock(t, refdb.LockInfo{Project: "p", Ref: "refs/heads/free", Owner: driver.ReservedFor(""), Token: token})
	w.Exec(t, `UPDATE locks SET heartbeat = 0`)
	w.InsertLock(t, refdb.LockInfo{Project: "p", Ref: "refs/heads/kept", Owner: driver.ReservedFor("eu/x:1:A"), Token: token, Age: 20 * time.Second})
	for _, l := range decode[[]struct {
		lockJSON
		Reserved bool
	}](t, w.do(t, "locks", "list", "-o", "json")) {
		if !l.Reserved || l.HeldSeconds != nil || l.AgeSeconds != nil || l.Heartbeat != nil {
			t.Errorf("%+v", l)
		}
	}
	for line := range strings.Lines(w.do(t, "locks", "list")) {
		switch fields := strings.Fields(line); fields[1] {
		case "refs/heads/free":
			if fields[2] != "-" || fields[3] != "-" || fields[4] != "-" || fields[5] != "free" {
				t.Errorf("%s", line)
			}
		case "refs/heads/kept":
			if !strings.Contains(line, "eu/x:1:A (waits)  -") || !strings.Contains(line, "reserved") || strings.Contains(line, "ago") {
				t.Errorf("%s", line)
			}
		}
	}
	if d := decode[doctorJSON](t, w.do(t, "doctor", "-o", "json")); d.status("stale locks") != checkOK {
		t.Errorf("a row that anybody may take is a stale lock: %+v", d)
	}
}
