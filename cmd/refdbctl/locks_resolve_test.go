package main

import (
	"context"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/exit"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/intents"
)

type intentJSON struct {
	Result, Project, Ref, Owner, Decision string
	Old, New                              *string
	AgeSeconds                            float64 `json:"age_seconds"`
}

// newIntents makes a world in which site there has announced a push to two
// refs of p and one to q, and site third one to p; refs/heads/plain has a lock.
func newIntents(tb testing.TB) *world {
	tb.Helper()
	w := newWorld(tb)
	w.InsertRef(tb, "p", mainRef, refdb.Value(id("a")))
	w.InsertLock(tb, refdb.LockInfo{Project: "p", Ref: "refs/heads/plain", Owner: "there/1"})
	w.prepare(tb, "there", "p", refdb.Update{Ref: mainRef, Old: refdb.Value(id("a")), New: refdb.Value(id("b"))},
		refdb.Update{Ref: "refs/heads/new", New: refdb.Value(id("c"))})
	w.prepare(tb, "there", "q", refdb.Update{Ref: mainRef, New: refdb.Value(id("d"))})
	w.prepare(tb, "third", "p", refdb.Update{Ref: "refs/heads/third", New: refdb.Value(id("e"))})
	return w
}

func (w *world) openAs(tb testing.TB, site string) *refdb.DB {
	tb.Helper()
	db, err := refdb.New(w.Open(tb), refdb.Options{Site: site})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { db.Close() })
	return db
}

func (w *world) prepare(tb testing.TB, site, project string, updates ...refdb.Update) {
	tb.Helper()
	if _, err := w.openAs(tb, site).Intents().Prepare(tb.Context(), project, updates, "boot:1:2", intents.AskedBy("alice of "+site)); err != nil {
		tb.Fatal(err)
	}
}

// left returns the intents that are still pending, or those that were decided.
func (w *world) left(tb testing.TB, decided bool) string {
	tb.Helper()
	var all []string
	for i, err := range w.openAs(tb, "looking").Intents().All(tb.Context(), driver.IntentFilter{Decided: decided}) {
		if err != nil {
			tb.Fatal(err)
		}
		all = append(all, i.Project+" "+strings.TrimPrefix(i.Ref, "refs/heads/"))
	}
	return strings.Join(all, ", ")
}

func TestResolveEndsWhatIsSelected(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"p refs/heads/main":        "p main",
		"--project=p":              "p main, p new, p third",
		"--site=there":             "p main, p new, q main",
		"--site=there --project=p": "p main, p new",
		"--site=ther":              "",
	} {
		for _, decision := range []string{"keep-old", "take-new"} {
			t.Run(args+" "+decision, func(t *testing.T) {
				t.Parallel()
				w := newIntents(t)
				before := w.left(t, false)
				full := append(strings.Fields("locks resolve -o json --by me@here --"+decision+" "+args), "--reason", "eu-1 lost its disk")
				var got []string
				r := w.run(t, append(full, "--dry-run")...)
				for _, i := range decode[[]intentJSON](t, r.out) {
					if got = append(got, i.Project+" "+strings.TrimPrefix(i.Ref, "refs/heads/")); i.Result != "would_resolve" || i.Decision != decision {
						t.Errorf("%+v", i)
					}
				}
				if s := strings.Join(got, ", "); r.code != exit.OK || s != want {
					t.Fatalf("would resolve %q, want %q: %s", s, want, r.err)
				}
				if now := w.left(t, false); now != before {
					t.Fatalf("a dry run has left %s", now)
				}
				r = w.run(t, append(full, "--yes")...)
				r.is(t, exit.OK, "")
				for _, i := range decode[[]intentJSON](t, r.out) {
					if i.Result != "resolved" {
						t.Errorf("%+v", i)
					}
				}
				if now := w.left(t, true); now != want {
					t.Errorf("resolved %q, want %q", now, want)
				}
				if strings.Contains(want, "p main") {
					w.isFree(t, mainRef)
					value := map[string]string{"keep-old": id("a"), "take-new": id("b")}[decision]
					if got := w.do(t, "refs", "get", "p", mainRef); got != value+"\n" {
						t.Errorf("main is %s", got)
					}
				}
			})
		}
	}
}

// Numbers that a site has taken from a counter of Gerrit's are in use: they are not given out again.
func TestResolveLetsNoCounterGoBack(t *testing.T) {
	t.Parallel()
	const counter = "refs/sequences/changes"
	w := newWorld(t)
	for _, ref := range []string{mainRef, counter} {
		w.InsertRef(t, "All-Projects", ref, refdb.Value(id("a")))
	}
	w.prepare(t, "there", "All-Projects", refdb.Update{Ref: mainRef, Old: refdb.Value(id("a")), New: refdb.Value(id("b"))},
		refdb.Update{Ref: counter, Old: refdb.Value(id("a")), New: refdb.Value(id("b"))})
	w.prepare(t, "there", "q", refdb.Update{Ref: mainRef, New: refdb.Value(id("d"))})
	r := w.run(t, "locks", "resolve", "--site", "there", "--keep-old", "--reason", "it is gone", "--yes", "-o", "json")
	r.is(t, exit.OK, "")
	got := map[string]string{}
	for _, i := range decode[[]intentJSON](t, r.out) {
		got[i.Project+" "+i.Ref] = i.Result + " " + i.Decision
	}
	want := map[string]string{"All-Projects " + mainRef: "resolved keep-old", "All-Projects " + counter: "resolved take-new", "q " + mainRef: "resolved keep-old"}
	if !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	for ref, want := range map[string]string{mainRef: id("a"), counter: id("b")} {
		if got := w.do(t, "refs", "get", "All-Projects", ref); got != want+"\n" {
			t.Errorf("%s is %s", ref, got)
		}
	}
}

func TestResolveRecordsWhoAndWhy(t *testing.T) {
	t.Parallel()
	w := newIntents(t)
	w.do(t, "locks", "resolve", "p", mainRef, "--keep-old", "--reason", "its disk is lost", "--yes")
	for i, err := range w.open(t).Intents().All(t.Context(), driver.IntentFilter{Decided: true}) {
		host, _ := os.Hostname()
		if err != nil || i.Reason != "its disk is lost" || !strings.HasSuffix(i.DecidedBy, "@"+host) || i.Decision != driver.KeepOld {
			t.Errorf("%+v, %v", i, err)
		}
	}
}

func TestResolveAsksFor(t *testing.T) {
	t.Parallel()
	w := newIntents(t)
	for args, says := range map[string]string{
		"--keep-old --reason=x --yes":                               "specify intents",
		"p refs/heads/main --reason=x --yes":                        "keep-old take-new",
		"p refs/heads/main --keep-old --take-new --reason=x":        "keep-old take-new",
		"p refs/heads/main --keep-old --yes":                        "reason",
		"p refs/heads/main --keep-old --yes --reason=":              "give a reason",
		"p refs/heads/main --keep-old --reason=x":                   "add --yes",
		"p --keep-old --reason=x":                                   "both PROJECT and REF",
		"p refs/heads/main --project=p --keep-old --reason=x --yes": "leave out --project",
		"p refs/heads/two..dots --keep-old --reason=x --yes":        "two..dots",
	} {
		r := w.run(t, append([]string{"locks", "resolve"}, strings.Fields(args)...)...)
		r.is(t, exit.Misuse, says)
		r.isOneLine(t)
	}
	w.run(t, "locks", "resolve", "p", "refs/heads/plain", "--keep-old", "--reason=x", "--yes").is(t, exit.Failed, "there is no intent on p refs/heads/plain")
	if left := w.left(t, true); left != "" {
		t.Errorf("resolved: %s", left)
	}
}

func TestResolveRefusesASiteThatIsAlive(t *testing.T) {
	t.Parallel()
	w := newIntents(t)
	w.InsertLock(t, refdb.LockInfo{Project: "refdb/sites", Ref: "refs/sites/there", Owner: "there/1"})
	r := w.run(t, "locks", "resolve", "p", mainRef, "--keep-old", "--reason=x", "--yes")
	r.is(t, exit.Locked, "the daemon of site there is alive")
	r.isOneLine(t)
	w.do(t, "locks", "resolve", "p", "refs/heads/third", "--keep-old", "--reason=x", "--yes")
	w.do(t, "locks", "resolve", "p", mainRef, "--keep-old", "--reason=x", "--yes", "--force")
	// A daemon that was killed leaves its lock behind, which goes stale.
	w.Age(t, "refdb/sites", "refs/sites/there", time.Hour)
	w.do(t, "locks", "resolve", "--site=there", "--take-new", "--reason=x", "--yes")
	if left := w.left(t, false); left != "" {
		t.Errorf("left: %s", left)
	}
}

// lateResolve is a driver that does something before intents are resolved.
type lateResolve struct {
	refdb.Driver
	before func()
}

func (l lateResolve) Resolve(ctx context.Context, r driver.ResolveRequest) ([]bool, error) {
	l.before()
	return l.Driver.Resolve(ctx, r)
}

func TestAnIntentThatItsSiteEndsMeanwhileIsLeftToIt(t *testing.T) {
	t.Parallel()
	w := newIntents(t)
	w.wrap = func(d refdb.Driver) refdb.Driver {
		return lateResolve{d, func() { w.Exec(t, `DELETE FROM intents WHERE project = 'p' AND ref = 'refs/heads/new'`) }}
	}
	r := w.run(t, "locks", "resolve", "--site=there", "--keep-old", "--reason=x", "--yes", "-o", "json")
	r.is(t, exit.OK, "1 were ended meanwhile")
	var got []string
	for _, i := range decode[[]intentJSON](t, r.out) {
		got = append(got, i.Result)
	}
	if !slices.Equal(got, []string{"resolved", "ended", "resolved"}) {
		t.Errorf("%s", r.out)
	}
}

func TestLocksShowIntents(t *testing.T) {
	t.Parallel()
	w := newIntents(t)
	type row struct {
		Ref                 string
		Intent, Stale       bool
		Old, New, Agent, By *string
	}
	all := decode[[]row](t, w.do(t, "locks", "list", "--project=p", "-o", "json"))
	if len(all) != 4 {
		t.Fatalf("%+v", all)
	}
	// In order: main, new, plain, third.
	main, created, plain := all[0], all[1], all[2]
	if !main.Intent || main.Stale || *main.Old != id("a") || *main.New != id("b") || *main.Agent != "boot:1:2" || *main.By != "alice of there" {
		t.Errorf("main: %+v", main)
	}
	if !created.Intent || created.Old != nil || *created.New != id("c") {
		t.Errorf("new: %+v", created)
	}
	if plain.Intent || plain.New != nil || plain.Agent != nil || plain.By != nil {
		t.Errorf("plain: %+v", plain)
	}
	if only := decode[[]row](t, w.do(t, "locks", "list", "--intents", "-o", "json")); len(only) != 4 || slices.ContainsFunc(only, func(r row) bool { return !r.Intent }) {
		t.Errorf("--intents: %+v", only)
	}
	if third := decode[[]row](t, w.do(t, "locks", "list", "--owner=third", "-o", "json")); len(third) != 1 || *third[0].New != id("e") {
		t.Errorf("--owner: %+v", third)
	}
	table := w.do(t, "locks", "list")
	if !strings.Contains(table, "aaaaaaa → bbbbbbb") || !strings.Contains(table, "none → ccccccc") || !strings.Contains(table, "intent") {
		t.Errorf("table:\n%s", table)
	}
	shown := w.run(t, "locks", "show", "p", mainRef)
	shown.is(t, exit.OK, "refdbctl locks resolve p "+mainRef)
	for _, says := range []string{id("a"), id("b"), "boot:1:2", "never", "intent"} {
		if !strings.Contains(shown.out, says) {
			t.Errorf("no %q in\n%s", says, shown.out)
		}
	}
}

func TestPurgeAndRemoveLeaveIntents(t *testing.T) {
	t.Parallel()
	w := newIntents(t)
	for _, args := range []string{"p refs/heads/main", "p refs/heads/main --force", "--owner=there --force"} {
		r := w.run(t, strings.Fields("locks purge --yes "+args)...)
		r.is(t, exit.Locked, "refdbctl locks resolve")
		r.isOneLine(t)
	}
	w.run(t, "project", "remove", "p", "--yes", "--force").is(t, exit.Locked, "")
	if left := w.left(t, false); left != "p main, p new, p third, q main" {
		t.Errorf("left: %s", left)
	}
	if _, ok := w.RowLock(t, "p", "refs/heads/plain"); !ok {
		t.Error("the plain lock is gone")
	}
}
