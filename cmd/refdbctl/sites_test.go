package main

import (
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/exit"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/site/client"
	"github.com/globalrefdb/globalrefdb/test/dbtest"
)

type siteJSON struct {
	Site       string
	Alive      bool
	Follows    bool
	Seen       *string
	LagChanges *int  `json:"lag_changes"`
	WaitedFor  *bool `json:"waited_for"`
	Followed   *int
	Behind     *int
	Store      *string
	Version    *string
}

func (w *world) sites(tb testing.TB) []siteJSON {
	tb.Helper()
	return decode[[]siteJSON](tb, w.do(tb, "sites", "list", "-o", "json"))
}

// worlds are worlds on the databases that one process serves alone and that many share.
var worlds = map[string]func(testing.TB) *world{
	"SQLite": newWorld,
	"PostgreSQL": func(tb testing.TB) *world {
		db := dbtest.Postgres(tb)
		return &world{Database: db, env: map[string]string{"REFDB_URL": db.URL(), "REFDB_SITE": "here"}}
	},
}

// unreachable fails the test unless operators read that these sites would block pushes after a restart of the database.
func (w *world) unreachable(tb testing.TB, sites ...string) {
	tb.Helper()
	if got := decode[struct{ Unreachable []string }](tb, w.do(tb, "recover", "--status", "-o", "json")).Unreachable; !slices.Equal(got, sites) {
		tb.Errorf("recover --status says %q are unreachable, want %q", got, sites)
	}
	d := decode[doctorJSON](tb, w.run(tb, "doctor", "-o", "json").out)
	if len(sites) == 0 {
		if d.status("unreachable sites") != checkOK {
			tb.Errorf("doctor says %q", d.detail("unreachable sites"))
		}
		return
	}
	for _, site := range sites {
		if said := d.detail("unreachable sites"); d.status("unreachable sites") != checkNote || !strings.Contains(said, "sites retire "+site) {
			tb.Errorf("doctor says %q", said)
		}
	}
}

func retiring(name string) []string {
	return []string{"sites", "retire", name, "--reason", "its disks are lost", "--yes"}
}

func TestASiteIsRetiredOnceItsDaemonHasEnded(t *testing.T) {
	t.Parallel()
	for name, open := range worlds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := open(t)
			s := w.newServed(t)
			if got := w.sites(t); len(got) != 1 || got[0].Site != "eu-1" || !got[0].Alive || got[0].Seen == nil || !*got[0].WaitedFor {
				t.Fatalf("while it runs: %+v", got)
			}
			eventually(t, "it says what it is", func() bool {
				got := w.sites(t)[0]
				return got.Version != nil && *got.Version != "" && *got.Store == "none" && *got.Followed == 0 && *got.Behind == 0
			})
			w.unreachable(t)
			w.run(t, retiring("eu-1")...).is(t, exit.Locked, "systemctl disable --now refdb-site")
			w.run(t, retiring("eu-2")...).is(t, exit.Failed, "no site of that name")
			s.end(t, syscall.SIGKILL)
			w.staysFresh(t)
			w.run(t, retiring("eu-1")...).is(t, exit.Locked, "until the lock is stale")

			w.goesStale(t)
			if got := w.sites(t); len(got) != 1 || got[0].Alive || !*got[0].WaitedFor {
				t.Fatalf("once it was killed: %+v", got)
			}
			w.unreachable(t, "eu-1")
			db := w.openAs(t, "looking")
			if out := w.do(t, retiring("eu-1")...); out != "retired eu-1\n" {
				t.Errorf("it says %q", out)
			}
			if got := w.sites(t); len(got) != 0 {
				t.Errorf("once it was retired: %+v", got)
			}
			w.unreachable(t)
			a, err := db.Recovery().Admission(t.Context())
			if err != nil || !a.Admitted || slices.ContainsFunc(a.Witnesses, func(w driver.Witness) bool { return w.Awaited("another") }) {
				t.Errorf("a new server of the database waits for it: %+v, %v", a, err)
			}
			if out := w.do(t, "audit", "list", "-o", "json"); !strings.Contains(out, "sites retire") || !strings.Contains(out, "its disks are lost") {
				t.Errorf("the audit has %s", out)
			}
			w.run(t, retiring("eu-1")...).is(t, exit.Failed, "no site of that name")

			s.refused(t, "the site was retired", "site take-over")
			w.do(t, "site", "take-over", "--config", s.config, "--yes")
			s.start(t)
			awaitStatus(t, s.dir, "serving", client.Status.OK)
			if got := w.sites(t); len(got) != 1 || !got[0].Alive {
				t.Errorf("once it came back: %+v", got)
			}
			s.end(t, syscall.SIGTERM)
		})
	}
}

// What the database does not have the objects of, it can't complete.
func TestRetiringLeavesTheDecisionAboutPushesWithoutObjects(t *testing.T) {
	t.Parallel()
	for name, open := range worlds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := open(t)
			w.InsertRef(t, presenceProject, "refs/sites/there", "generation")
			w.InsertRef(t, presenceProject, "refs/modes/x/there", "grant 1")
			w.InsertRef(t, presenceProject, "refs/modes/x/elsewhere", "grant 1")
			db := w.openAs(t, "there")
			end, err := db.HistoryEnd(t.Context())
			if err == nil {
				err = db.Followers().Put(t.Context(), "site/there", end)
			}
			if err != nil {
				t.Fatal(err)
			}
			w.prepare(t, "there", "p", refdb.Update{Ref: mainRef, New: refdb.Value(id("b"))})
			w.prepare(t, "elsewhere", "p", refdb.Update{Ref: "refs/heads/other", New: refdb.Value(id("c"))})

			if got := w.sites(t); len(got) != 1 || got[0].Site != "there" || !got[0].Follows || *got[0].LagChanges != 0 {
				t.Errorf("it lists %+v", got)
			}
			w.run(t, retiring("there")...).is(t, exit.Failed, "p refs/heads/main: nothing to bbbbbbb")
			if left := w.left(t, false); left != "p main, p other" || len(w.sites(t)) != 1 {
				t.Fatalf("it has left %q", left)
			}
			w.do(t, "locks", "resolve", "--site", "there", "--take-new", "--reason", "its pushes were accepted", "--yes")
			w.do(t, retiring("there")...)
			if left := w.left(t, false); left != "p other" || len(w.sites(t)) != 0 {
				t.Errorf("then it has left %q", left)
			}
			if out := w.do(t, "refs", "list", presenceProject, "-o", "json"); strings.Contains(out, "/there") || !strings.Contains(out, "/elsewhere") {
				t.Errorf("of what sites say there is left %s", out)
			}
			if out := w.do(t, "followers", "list", "-o", "json"); strings.Contains(out, "there") {
				t.Errorf("of the followers there is left %s", out)
			}
		})
	}
}

func TestTheListSaysHowFarASiteIsBehind(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	db := w.openAs(t, "there")
	if err := db.Update(t.Context(), "p", []refdb.Update{{Ref: mainRef, New: refdb.Value(id("a"))}}); err != nil {
		t.Fatal(err)
	}
	end, err := db.HistoryEnd(t.Context())
	if err == nil {
		err = db.Followers().Put(t.Context(), "site/there", end)
	}
	if err == nil {
		err = db.Followers().Put(t.Context(), "mirror", end)
	}
	if err == nil {
		err = db.Update(t.Context(), "p", []refdb.Update{{Ref: "refs/heads/x", New: refdb.Value(id("a"))}, {Ref: "refs/heads/y", New: refdb.Value(id("b"))}})
	}
	if err == nil { // what sites say about themselves is nothing to follow
		err = db.Update(t.Context(), presenceProject, []refdb.Update{{Ref: "refs/modes/x/there", New: "grant 1"}})
	}
	if err != nil {
		t.Fatal(err)
	}
	if got := w.sites(t); len(got) != 1 || got[0].Site != "there" || got[0].Alive || got[0].LagChanges == nil || *got[0].LagChanges != 2 {
		t.Errorf("%+v", got)
	}
}
