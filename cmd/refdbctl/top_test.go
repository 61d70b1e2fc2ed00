package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/cli"
	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/exit"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/intents"
	"github.com/globalrefdb/globalrefdb/site/overview"
	"github.com/globalrefdb/globalrefdb/site/presence"
)

// night is a world in which one site runs, and another one died in the middle of a push.
func night(t *testing.T, w *world) {
	t.Helper()
	ctx := t.Context()
	db := w.open(t)
	d := w.memory.Open()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	lock := func(project, ref, owner, waiter string, staleAfter time.Duration) {
		r := driver.AcquireRequest{Project: project, Refs: []string{ref}, Owner: owner, Nonce: owner + waiter, StaleAfter: staleAfter}
		if waiter != "" {
			r.Waiter = driver.Waiter{ID: waiter, Turn: time.Minute}
		}
		if _, err := d.Acquire(ctx, r); waiter == "" {
			must(err)
		}
	}
	for _, name := range []string{"eu-1", "us-1"} {
		_, err := db.Put(ctx, presence.Project, "refs/sites/"+name, "generation")
		must(err)
		must(presence.Tell(ctx, db, name, presence.About{Version: "v1.8.0", Schema: 12, Store: "all", Followed: 42}))
		looked, err := d.Look(ctx, name, nil)
		must(err)
		_, err = d.Report(ctx, driver.Report{Witness: name, Owner: name + "/1", Server: looked.Server})
		must(err)
		end, err := db.HistoryEnd(ctx)
		must(err)
		must(db.Followers().Put(ctx, presence.FollowerName(name), end))
	}
	lock(presence.Project, "refs/sites/us-1", "us-1/host:7:A", "", 30*time.Second)
	us, err := refdb.New(w.memory.Open(), refdb.Options{Site: "us-1"})
	must(err)
	defer us.Close()
	_, err = us.Intents().Prepare(ctx, "team/app", []refdb.Update{{Ref: mainRef, New: refdb.Value(id("3"))}}, "agent", intents.AskedBy("bob"))
	must(err)
	time.Sleep(12 * time.Minute)
	lock(presence.Project, "refs/sites/eu-1", "eu-1/host:8:B", "", 30*time.Second)
	lock("team/app", "refs/heads/nightly", "eu-1/host:9:C", "", time.Hour)
	lock("team/app", "refs/heads/nightly", "ap-1/host:4:D", "waiter1", time.Hour)
	lock("team/app", "refs/heads/nightly", "ap-1/host:5:E", "waiter2", time.Hour)
	for range 12 {
		_, err := db.Put(ctx, "team/lib", mainRef, refdb.Value(id(fmt.Sprint(time.Now().Second()%9+1))))
		must(err)
		time.Sleep(time.Second)
	}
	end, err := db.HistoryEnd(ctx)
	must(err)
	must(db.Followers().Put(ctx, presence.FollowerName("eu-1"), end))
}

// topOf returns what "top" prints in a world without a schema.
func (w *world) topOf(t *testing.T, ctx context.Context, args ...string) result {
	t.Helper()
	var out, messages bytes.Buffer
	a := w.app(cli.Streams{In: strings.NewReader(""), Out: &out, Err: &messages})
	a.Timeout = patience
	root := a.rootCommand() // the defaults of the flags
	if err := root.ParseFlags(args); err != nil {
		t.Fatal(err)
	}
	top := &top{app: a, projects: root.Flags().Args(), schema: 12}
	defer top.close()
	code := a.Report(top.once(ctx))
	return result{code, out.String(), messages.String()}
}

// What OPERATIONS.md shows of a night is what "top" prints then.
func TestTopAtNight(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, w *world) {
		night(t, w)
		r := w.topOf(t, t.Context())
		r.is(t, exit.OK, "")
		page, err := os.ReadFile("../../docs/OPERATIONS.md")
		if err != nil {
			t.Fatal(err)
		}
		shown := "    $ refdbctl top\n"
		for line := range strings.Lines(r.out) {
			shown += strings.TrimRight("    "+line, " \n") + "\n"
		}
		if !strings.Contains(string(page), shown) {
			t.Errorf("docs/OPERATIONS.md does not have\n%s", shown)
		}
		v := decode[overview.Overview](t, w.topOf(t, t.Context(), "-o", "json").out)
		if len(v.Sites) != 2 || len(v.Problems) != 2 || v.Locks.Waiters != 2 || v.Intents.Stuck != 1 || v.Database.Schema != 12 || !v.Database.Writable || len(v.Unread) != 0 {
			t.Errorf("JSON has %+v", v)
		}
		csv := w.topOf(t, t.Context(), "-o", "csv").out
		if !strings.HasPrefix(csv, "code,site,command,detail\nunreachable,us-1,systemctl start refdb-site,") || strings.Count(csv, "\n") != 3 {
			t.Errorf("CSV has %s", csv)
		}
		v = decode[overview.Overview](t, w.topOf(t, t.Context(), "-o", "json", "team/lib").out)
		if v.Intents.Pending != 0 || v.Locks.Held != 0 || v.Changes.Count != 12 || len(v.Sites) != 2 {
			t.Errorf("of one project JSON has %+v", v)
		}
	})
}

func TestTopOfADatabaseThatIsAway(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, w *world) {
		w.down = func() error { return fmt.Errorf("dialing: %w", refdb.ErrUnavailable) }
		r := w.topOf(t, t.Context())
		r.is(t, exit.Failed, "database: dialing: ")
		r.isOneLine(t)
		if !strings.Contains(r.out, "DATABASE  not read") || strings.Count(r.out, "not read: database: dialing") != 1 {
			t.Errorf("it shows %s", r.out)
		}
		v := decode[overview.Overview](t, w.topOf(t, t.Context(), "-o", "json").out)
		if v.Database != nil || v.Locks != nil || v.Sites != nil || len(v.Unread) != 1 {
			t.Errorf("JSON has %+v", v)
		}
	})
}

// A database that goes away after it was opened is one line, too.
func TestTopOfADatabaseThatGoesAway(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, w *world) {
		w.wrap = func(d refdb.Driver) refdb.Driver { return away{d} }
		r := w.topOf(t, t.Context())
		r.is(t, exit.Failed, "not everything could be read: database: ")
		if strings.Count(r.out, "not read: ") != 1 || strings.Count(r.out, "?") < 2 {
			t.Errorf("it shows %s", r.out)
		}
	})
}

// away is a driver whose database answers only when it is asked for the time.
type away struct{ refdb.Driver }

func (away) Admission(context.Context) (driver.Admission, error) {
	return driver.Admission{}, refdb.ErrUnavailable
}

func (away) Locks(context.Context, driver.LockQuery) (driver.LockPage, error) {
	return driver.LockPage{}, refdb.ErrUnavailable
}

func (away) Intents(context.Context, driver.IntentQuery) (driver.IntentPage, error) {
	return driver.IntentPage{}, refdb.ErrUnavailable
}

func (away) HistoryState(context.Context) (driver.HistoryState, error) {
	return driver.HistoryState{}, refdb.ErrUnavailable
}

func TestTopShowsHostileNamesAsText(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const hostile = "p\x1b]0;owned\a$(reboot)'\u202e"
	w.InsertLock(t, refdb.LockInfo{Project: hostile, Ref: mainRef, Owner: "o\x1b[2J/1", Age: time.Second, StaleAfter: time.Hour})
	d := w.Open(t)
	request := driver.AcquireRequest{Project: hostile, Refs: []string{mainRef}, Owner: "o\x1b[2J/2", Nonce: "n", StaleAfter: time.Hour, Waiter: driver.Waiter{ID: "w", Turn: time.Minute}}
	if _, err := d.Acquire(t.Context(), request); err == nil {
		t.Fatal("it does not wait")
	}
	w.prepare(t, "s", hostile, refdb.Update{Ref: "refs/heads/$(x)", New: refdb.Value(id("c"))})
	for _, format := range []string{"table", "json", "csv"} {
		r := w.run(t, "top", "-o", format)
		r.is(t, exit.OK, "")
		if i := strings.IndexFunc(r.out, func(c rune) bool { return c != '\n' && !unicode.IsPrint(c) }); i >= 0 {
			t.Errorf("%s: character %q in %q", format, r.out[i:i+1], r.out)
		}
	}
	v := decode[overview.Overview](t, w.do(t, "top", "-o", "json"))
	if v.Locks.Busiest[0].Project != hostile || v.Intents.Oldest[0].Ref != "refs/heads/$(x)" {
		t.Errorf("JSON has %+v", v)
	}
}

func TestTopNamesProjectsThatAreNone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.run(t, "top", "a\x00b", "-o", "json").is(t, exit.Misuse, "project")
	w.run(t, "top", "misspelt").is(t, exit.OK, "no such project: misspelt")
}
