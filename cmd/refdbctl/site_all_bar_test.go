//go:build linux

package main

import (
	"testing"
)

func TestAFleetHasABar(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.newSite(t, "a", mainRef)
	s.fleet(t, 10)
	s.serve(t)
	term := newTerminal(t)
	cmd := w.program(t, "site", "enable", "--config", s.config, "--all", "--new", "--hook", s.hook)
	term.start(t, cmd)
	if code := exitOf(t, cmd); code != 0 {
		t.Errorf("status %d", code)
	}
	term.shows(t, "repositories")
	term.shows(t, "11 repositories: 11 guarded")
}
