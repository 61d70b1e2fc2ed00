//go:build linux

package main

import (
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/exit"
	"github.com/globalrefdb/globalrefdb/refdb"
)

func TestTopOnATerminalRefreshesAndRestoresIt(t *testing.T) {
	t.Parallel()
	for name, key := range map[string]string{"q": "q", "Ctrl-C": "\x03"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			term := newTerminal(t)
			settings := func() unix.Termios {
				s, err := unix.IoctlGetTermios(int(term.slave.Fd()), unix.TCGETS)
				if err != nil {
					t.Fatal(err)
				}
				return *s
			}
			before := settings()
			cmd := w.program(t, "top")
			term.start(t, cmd)
			term.shows(t, "0 held")
			w.InsertLock(t, refdb.LockInfo{Project: "p", Ref: mainRef, Owner: "o", StaleAfter: time.Hour})
			term.shows(t, "1 held")
			if during := settings(); during == before {
				t.Error("keys are not read one by one")
			}
			term.types(t, "x"+key)
			if code := exitOf(t, cmd); code != exit.OK {
				t.Errorf("status %d: %q", code, term.shown.String())
			}
			if after := settings(); after != before {
				t.Errorf("the terminal is left with %+v, was %+v", after, before)
			}
			if shown := term.all(); !strings.HasSuffix(shown, leaveScreen) || strings.Count(shown, enterScreen) != 1 {
				t.Errorf("the screen is not left: %q", shown)
			}
		})
	}
}
