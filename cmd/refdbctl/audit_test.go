package main

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/cli"
	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/exit"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/test/dbtest"
)

type auditJSON struct {
	Time, Who, Origin, Action, Detail, ID string
	Project, Reason, Outcome              *string
}

func text(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

func (w *world) audit(t *testing.T, args ...string) []auditJSON {
	t.Helper()
	return decode[[]auditJSON](t, w.do(t, append([]string{"audit", "list", "-o", "json"}, args...)...))
}

func TestWhatOperatorsDoIsRecorded(t *testing.T) {
	t.Parallel()
	for _, kind := range dbtest.All() {
		t.Run(string(kind.Dialect), func(t *testing.T) {
			t.Parallel()
			db := kind.New(t)
			w := &world{Database: db, env: map[string]string{"REFDB_URL": db.URL(), "SUDO_USER": "jane", "SSH_CONNECTION": "192.0.2.7 5000 10.0.0.1 22"}}
			put := func(project string) {
				w.InsertRef(t, project, mainRef, refdb.Value(id("a")))
			}
			for _, c := range []struct {
				prepare         func()
				args            []string
				action, project string
				detail, outcome string
			}{
				{func() { w.InsertLock(t, refdb.LockInfo{Project: "p", Ref: mainRef, Owner: "dead", Age: time.Hour}) },
					[]string{"locks", "purge", "--stale", "--yes"}, "locks purge", "", "p refs/heads/main by dead", "purged 1 of 1"},
				{func() { w.InsertLock(t, refdb.LockInfo{Project: "p", Ref: mainRef, Owner: "live"}) },
					[]string{"locks", "purge", "p", mainRef, "--force", "--yes"}, "locks purge --force", "p", "p refs/heads/main by live", "purged 1 of 1"},
				{func() { put("p") }, []string{"refs", "put", "p", mainRef, id("b"), "--force"}, "refs put --force", "p", mainRef + " to " + id("b"), "it held " + id("a")},
				{func() {}, []string{"refs", "delete", "p", mainRef, "--force"}, "refs delete --force", "p", mainRef, "it held " + id("b")},
				{func() { put("p") }, []string{"refs", "delete", "p", "--prefix=refs/heads/", "--yes"}, "refs delete --prefix", "p", "1 ref below refs/heads/", "deleted 1"},
				{func() { put("p") }, []string{"refs", "purge-tombstones", "p", "--older-than=30d", "--yes"}, "refs purge-tombstones", "p", "older than 720h", "removed 0"},
				{func() { put("gone") }, []string{"project", "remove", "gone", "--yes"}, "project remove", "gone", "all refs and locks", "removed 1"},
			} {
				c.prepare()
				before := len(w.audit(t))
				w.do(t, append(c.args, "--reason", "o'brien asked")...)
				all := w.audit(t)
				if len(all) != before+1 {
					t.Errorf("%v: %d entries instead of %d", c.args, len(all), before+1)
					continue
				}
				e := all[before]
				if e.Action != c.action || text(e.Project) != c.project || text(e.Reason) != "o'brien asked" || text(e.Outcome) != c.outcome ||
					!strings.Contains(e.Detail, c.detail) || !strings.Contains(e.Who, "@") || !strings.Contains(e.Who, "sudo by jane") || !strings.Contains(e.Origin, "ssh from 192.0.2.7") {
					t.Errorf("%v: %+v %s %s %s", c.args, e, text(e.Project), text(e.Reason), text(e.Outcome))
				}
			}
			if got := w.audit(t, "--project", "gone"); len(got) != 1 {
				t.Errorf("of one project: %+v", got)
			}
			if got := w.audit(t, "--since", "1d"); len(got) != len(w.audit(t)) {
				t.Errorf("since yesterday: %+v", got)
			}
			if got := w.audit(t, "--since", "2099-01-31"); len(got) != 0 {
				t.Errorf("since later: %+v", got)
			}
		})
	}
}

func TestResolutionsAreRecordedWithTheirReason(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	if _, err := w.open(t).Intents().Prepare(t.Context(), "p", []refdb.Update{{Ref: mainRef, New: refdb.Value(id("a"))}}, "agent"); err != nil {
		t.Fatal(err)
	}
	w.do(t, "locks", "resolve", "p", mainRef, "--keep-old", "--reason", "it burnt down", "--yes", "--force")
	got := w.audit(t)
	if len(got) != 1 || got[0].Action != "locks resolve --keep-old --force" || text(got[0].Reason) != "it burnt down" ||
		!strings.Contains(got[0].Detail, "p "+mainRef) || text(got[0].Outcome) != "resolved 1 of 1" {
		t.Errorf("%+v", got)
	}
}

func TestRefusedCommandsAndDryRunsAreNotRecorded(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.InsertLock(t, refdb.LockInfo{Project: "p", Ref: mainRef, Owner: "live"})
	w.run(t, "locks", "purge", "p", mainRef, "--yes").is(t, exit.Locked, "fresh lock")
	w.do(t, "locks", "purge", "p", mainRef, "--force", "--dry-run")
	w.run(t, "locks", "purge", "--stale", "--yes").is(t, exit.OK, "")
	if got := w.audit(t); len(got) != 0 {
		t.Errorf("%+v", got)
	}
}

// An act is recorded also if it fails, or if the program dies.
func TestAnActIsRecordedBeforeItIsDone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := &cli.Run{User: "jane@host", Streams: cli.Streams{Env: func(string) string { return "" }}}
	db := w.open(t)
	failed := errors.New("it broke")
	err := a.Audited(t.Context(), db, cli.Act{Action: "purge", Detail: "all"}, func() (string, error) {
		if got := w.audit(t); len(got) != 1 || got[0].Outcome != nil {
			t.Errorf("meanwhile: %+v", got)
		}
		return "1 of 2", failed
	})
	if !errors.Is(err, failed) {
		t.Error(err)
	}
	if got := w.audit(t); len(got) != 1 || text(got[0].Outcome) != "1 of 2; it broke" {
		t.Errorf("afterwards: %+v", got)
	}
	w.Exec(t, `CREATE TRIGGER full BEFORE INSERT ON audit BEGIN SELECT raise(ABORT, 'full'); END`)
	err = a.Audited(t.Context(), db, cli.Act{Action: "purge"}, func() (string, error) {
		t.Error("it was done without its line")
		return "", nil
	})
	if err == nil || !strings.Contains(err.Error(), "nothing was done") {
		t.Error(err)
	}
}
