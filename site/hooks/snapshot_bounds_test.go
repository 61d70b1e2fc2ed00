package hooks

import (
	"fmt"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/site/pusher"
)

func newSnapshot(refs int) *snapshot {
	s := &snapshot{project: "p", taken: time.Now(), lasts: time.Hour, values: map[string]refdb.Value{}}
	for i := range refs {
		s.values[fmt.Sprint("refs/heads/", i)] = "1"
	}
	return s
}

func TestASnapshotAllowsWhatItReadOfItsOwnProjectForAWhile(t *testing.T) {
	u := refdb.Update{Ref: "refs/heads/0", Old: "1", New: "2"}
	s := newSnapshot(1)
	for name, c := range map[string]struct {
		s       *snapshot
		project string
		u       refdb.Update
		want    bool
	}{
		"what was read":   {s, "p", u, true},
		"no snapshot":     {nil, "p", u, false},
		"another project": {s, "q", u, false},
		"another value":   {s, "p", refdb.Update{Ref: u.Ref, Old: "3", New: "2"}, false},
		"another ref":     {s, "p", refdb.Update{Ref: "refs/heads/1", New: "2"}, false},
		"an old one":      {&snapshot{project: "p", taken: time.Now().Add(-time.Hour), lasts: time.Minute, values: s.values}, "p", u, false},
	} {
		if got := c.s.allows(c.project, c.u); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestSnapshotsAreBounded(t *testing.T) {
	var ps pushes
	ps.byAgent = map[pusher.Agent]*push{}
	add := func(pid int) *push {
		p := &push{agent: pusher.Agent{PID: pid}}
		ps.byAgent[p.agent] = p
		return p
	}
	kept := func(p *push) bool { return ps.snapshot(p.agent) != nil }
	first, second := add(1), add(2)
	ps.remember(first, newSnapshot(snapshotRefs-1))
	ps.remember(second, newSnapshot(2))
	if !kept(first) || kept(second) {
		t.Errorf("kept: %v, %v", kept(first), kept(second))
	}
	ps.remember(second, newSnapshot(1))
	if !kept(first) || !kept(second) {
		t.Errorf("kept: %v, %v", kept(first), kept(second))
	}
	// Its own earlier one doesn't count, nor one that is too old to be of use.
	ps.remember(first, newSnapshot(snapshotRefs-1))
	if !kept(first) {
		t.Error("a push can't have a second one")
	}
	first.snapshot.taken = time.Now().Add(-2 * time.Hour)
	ps.remember(second, newSnapshot(2))
	if kept(first) || !kept(second) {
		t.Errorf("kept: %v, %v", kept(first), kept(second))
	}
	delete(ps.byAgent, second.agent)
	if kept(second) {
		t.Error("a push that has ended has one")
	}
}
