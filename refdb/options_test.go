package refdb

import (
	"errors"
	"strings"
	"testing"
	"time"
)

func TestOptionsAreRefusedOrCompleted(t *testing.T) {
	o, err := Options{}.resolve("host")
	if err != nil || o.Site != "host" || o.Heartbeat != 2*time.Second || o.StaleAfter != 30*time.Second {
		t.Errorf("defaults are Gerrit's: %+v, %v", o, err)
	}
	if o, err := (Options{StaleAfter: 3 * time.Second}).resolve("host"); err != nil || o.Heartbeat != 600*time.Millisecond {
		t.Errorf("the heartbeat follows a short stale-after: %v, %v", o.Heartbeat, err)
	}
	for _, bad := range []Options{
		{Site: "a/b"}, {Site: "\xff"}, {Site: strings.Repeat("x", 201)},
		{StaleAfter: time.Millisecond}, {StaleAfter: -1}, {Heartbeat: -1}, {MaxWait: -1},
		{Heartbeat: 10*time.Second + 1}, {Heartbeat: time.Second, StaleAfter: 2 * time.Second},
	} {
		if _, err := bad.resolve("host"); !errors.Is(err, ErrInvalid) {
			t.Errorf("%+v: %v, want ErrInvalid", bad, err)
		}
	}
}
