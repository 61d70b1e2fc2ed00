package main_test

import (
	"bytes"
	"fmt"
	"os"
	"testing"
)

func TestTheHookSaysWhoStartedIt(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	d := s.serve("ok\n")
	s.transaction("prepared", lines).do().is(0)
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", os.Getpid()))
	s.must(err)
	start := string(bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])[19])
	got := d.requests()
	if len(got) != 1 || got[0].Process == nil {
		t.Fatalf("the daemon was asked %+v", got)
	}
	if p := got[0].Process; p.Parent != os.Getpid() || p.ParentStart != start || p.PID <= 1 || p.PID == p.Parent {
		t.Errorf("it says %+v; this is process %d, started at %s", p, os.Getpid(), start)
	}
}
