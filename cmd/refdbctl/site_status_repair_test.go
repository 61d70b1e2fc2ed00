package main

import (
	"strings"
	"testing"

	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/exit"
	"github.com/globalrefdb/globalrefdb/refdb"
)

func TestRepairResolvesWhatCrashesHaveLeft(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.newSite(t, "a", mainRef, "refs/heads/done", "refs/heads/not", "refs/heads/other", "refs/heads/decided")
	old := refdb.Value(s.repo.commit)
	for _, name := range []string{"main", "done", "not", "other", "decided"} {
		w.InsertRef(t, "team/app", "refs/heads/"+name, old)
	}
	// Each was announced by a process of an earlier boot.
	intended := map[string]refdb.Value{}
	for _, name := range []string{"done", "not", "other", "decided"} {
		ref := "refs/heads/" + name
		to := s.repo.set(t, ref)
		intended[name] = refdb.Value(to)
		w.prepare(t, "a", "team/app", refdb.Update{Ref: ref, Old: old, New: refdb.Value(to)})
	}
	git(t, s.repo.path, "update-ref", "refs/heads/not", string(old))
	git(t, s.repo.path, "update-ref", "refs/heads/other", string(intended["done"]))
	git(t, s.repo.path, "update-ref", "refs/heads/decided", string(old))
	w.do(t, "locks", "resolve", "team/app", "refs/heads/decided", "--take-new", "--reason=x", "--yes")

	r := s.site(t, "repair", "-o", "json")
	r.is(t, exit.Failed, "1 stuck")
	type repairJSON struct {
		Stuck                    []struct{ Ref, Reason string }
		Updated, Dropped, Heeded int
		OK                       bool
	}
	got := decode[repairJSON](t, r.out)
	if got.Updated != 1 || got.Dropped != 1 || got.Heeded != 1 || got.OK || len(got.Stuck) != 1 || got.Stuck[0].Ref != "refs/heads/other" {
		t.Errorf("%+v", got)
	}
	for name, want := range map[string]refdb.Value{"done": intended["done"], "not": old, "decided": intended["decided"]} {
		if global := w.do(t, "refs", "get", "team/app", "refs/heads/"+name); global != string(want)+"\n" {
			t.Errorf("%s is %s in the database, want %s", name, global, want)
		}
		if local := git(t, s.repo.path, "rev-parse", "refs/heads/"+name); local != string(want) {
			t.Errorf("%s is %s here, want %s", name, local, want)
		}
	}
	if left := w.left(t, false); left != "team/app other" {
		t.Errorf("left: %s", left)
	}
	if _, ok := w.RowLock(t, "refdb/sites", "refs/sites/a"); ok {
		t.Error("the lock on the site's name still stands")
	}
	s.serve(t)
	eventually(t, "the daemon says what is stuck", func() bool {
		r := s.site(t, "repair")
		return r.code == exit.Failed && strings.Contains(r.err, "the daemon is running") && strings.Contains(r.err, "1 stuck")
	})
	w.do(t, "locks", "resolve", "team/app", "refs/heads/other", "--keep-old", "--reason=x", "--yes", "--force")
	eventually(t, "the daemon heeds the decision", func() bool {
		return git(t, s.repo.path, "rev-parse", "refs/heads/other") == string(old)
	})
	if _, err := s.push(t, "refs/heads/new"); err != nil {
		t.Error(err)
	}
}
