package main

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/cli"
	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/exit"
	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/output"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
)

type lockJSON struct {
	Project, Ref, Owner string
	HeldSeconds         *float64 `json:"held_seconds"`
	AgeSeconds          *float64 `json:"age_seconds"`
	StaleAfterSeconds   float64  `json:"stale_after_seconds"`
	Stale               bool
	Token               *int64
	TokenTime           *time.Time `json:"token_time"`
	Heartbeat           *time.Time
	Result              string
}

const orphan = "RECLAIM_p_2020-01-01T00:00:00.000000000Z"

// newLocks makes a world with a fresh lock of there/1, stale ones of here/1 and
// there/1, one that Gerrit left without times, and an orphan.
func newLocks(tb testing.TB) *world {
	w := newWorld(tb)
	w.InsertLock(tb, refdb.LockInfo{Project: "p", Ref: "refs/heads/fresh", Owner: "there/1"})
	w.InsertLock(tb, refdb.LockInfo{Project: "p", Ref: "refs/heads/stale", Owner: "here/1", Age: time.Hour, Token: driver.TokenOf(time.Now().Add(-2 * time.Hour))})
	w.InsertLock(tb, refdb.LockInfo{Project: "q", Ref: "refs/tags/stale\u202e", Owner: "there/1", Age: 20 * time.Minute})
	w.InsertLock(tb, refdb.LockInfo{Project: "q", Ref: "refs/tags/timeless", Owner: "gerrit"})
	w.Exec(tb, `UPDATE locks SET token = NULL, heartbeat = NULL WHERE owner = 'gerrit'`)
	w.InsertLock(tb, refdb.LockInfo{Project: orphan, Ref: "refs/heads/x", Owner: "there/1"})
	return w
}

func names(locks []lockJSON) []string {
	var all []string
	for _, l := range locks {
		_, name, _ := strings.Cut(l.Ref, "/")
		all = append(all, name)
	}
	return all
}

func TestLocksListFilters(t *testing.T) {
	t.Parallel()
	w := newLocks(t)
	for args, want := range map[string]string{
		"":                               "heads/fresh heads/stale tags/stale\u202e tags/timeless",
		"--project=p":                    "heads/fresh heads/stale",
		"--ref=refs/heads/stale":         "heads/stale",
		"--prefix=refs/tags/":            "tags/stale\u202e tags/timeless",
		"--owner=there":                  "heads/fresh tags/stale\u202e",
		"--owner=here/1":                 "heads/stale",
		"--owner=her":                    "",
		"--stale":                        "heads/stale tags/stale\u202e tags/timeless",
		"--older-than=30m":               "heads/stale tags/timeless",
		"--older-than=10m --owner=there": "tags/stale\u202e",
	} {
		got := decode[[]lockJSON](t, w.do(t, strings.Fields("locks list -o json "+args)...))
		if s := strings.Join(names(got), " "); s != want {
			t.Errorf("%q selects %q, want %q", args, s, want)
		}
	}
}

func TestLocksListSaysWhatALockIs(t *testing.T) {
	t.Parallel()
	w := newLocks(t)
	all := decode[[]lockJSON](t, w.do(t, "locks", "list", "-o", "json"))
	fresh, stale, timeless := all[0], all[1], all[3]
	if fresh.Stale || !stale.Stale || stale.StaleAfterSeconds != 30 || stale.Project != "p" || stale.Owner != "here/1" {
		t.Errorf("%+v", stale)
	}
	if age := *stale.AgeSeconds; age < 3600 || age > 3700 {
		t.Errorf("age: %v", age)
	}
	if held := *stale.HeldSeconds; held < 7200 || held > 7300 {
		t.Errorf("held: %v", held)
	}
	if stale.TokenTime.UnixMicro() != *stale.Token {
		t.Errorf("token: %v, %v", stale.TokenTime, *stale.Token)
	}
	if timeless.Token != nil || timeless.TokenTime != nil || timeless.Heartbeat != nil || timeless.AgeSeconds != nil || timeless.HeldSeconds != nil {
		t.Errorf("%+v", timeless)
	}
	table := w.do(t, "locks", "list")
	if strings.Count(table, "\n") != 5 || !strings.Contains(table, `stale\u202e`) || strings.Contains(table, "\x1b") {
		t.Errorf("table:\n%s", table)
	}
}

func TestLocksShow(t *testing.T) {
	t.Parallel()
	w := newLocks(t)
	l := decode[lockJSON](t, w.do(t, "locks", "show", "p", "refs/heads/stale", "-o", "json"))
	if l.Owner != "here/1" || !l.Stale {
		t.Errorf("%+v", l)
	}
	table := w.do(t, "locks", "show", "p", "refs/heads/stale")
	for _, says := range []string{"here/1", "stale", "1h0m", "30s", "TOKEN TIME"} {
		if !strings.Contains(table, says) {
			t.Errorf("no %q in\n%s", says, table)
		}
	}
	r := w.run(t, "locks", "show", "p", mainRef)
	r.is(t, exit.Failed, "there is no lock on p "+mainRef)
	r.isOneLine(t)
}

// screen is a buffer that may be read while others write.
type screen struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (s *screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(p)
}

func (s *screen) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

func TestWatchRepeatsUntilInterrupted(t *testing.T) {
	t.Parallel()
	w := newLocks(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	var out screen
	a := w.app(cli.Streams{Out: &out, Err: &out})
	code := make(chan int)
	go func() { code <- a.Report(a.run(ctx, []string{"locks", "list", "--stale", "--watch=20ms"})) }()
	eventually(t, "three rounds", func() bool { return strings.Count(out.String(), "# ") >= 3 })
	w.InsertLock(t, refdb.LockInfo{Project: "z", Ref: mainRef, Owner: "o", Age: time.Hour})
	eventually(t, "the new lock", func() bool { return strings.Contains(out.String(), "z ") })
	cancel(&exit.Interrupted{Signal: syscall.SIGINT})
	if got := <-code; got != exit.OK {
		t.Errorf("status %d: %s", got, out.String())
	}
}

func TestPurgeRemovesWhatIsSelected(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"--stale":                        "heads/stale tags/stale\u202e tags/timeless heads/x",
		"--stale --project=p":            "heads/stale heads/x",
		"--stale --owner=there":          "tags/stale\u202e heads/x",
		"--stale --prefix=refs/tags/":    "tags/stale\u202e tags/timeless",
		"--older-than=30m":               "heads/stale tags/timeless",
		"--orphans":                      "heads/x",
		"--orphans --project=q":          "",
		"--orphans --owner=here":         "",
		"p refs/heads/stale":             "heads/stale",
		"p refs/heads/stale --stale":     "heads/stale",
		"p refs/heads/fresh --stale":     "",
		"p refs/heads/fresh --force":     "heads/fresh",
		"p refs/heads/nothing":           "",
		"--owner=there --force":          "heads/fresh tags/stale\u202e",
		"--older-than=10m --owner=there": "tags/stale\u202e",
	} {
		t.Run(args, func(t *testing.T) {
			w := newLocks(t)
			before := decode[[]lockJSON](t, w.do(t, "locks", "list", "-o", "json"))
			full := strings.Fields("locks purge -o json " + args)

			r := w.run(t, append(full, "--dry-run")...)
			planned := decode[[]lockJSON](t, r.out)
			if s := strings.Join(names(planned), " "); r.code != exit.OK || s != want {
				t.Fatalf("would purge %q, want %q: %s", s, want, r.err)
			}
			for _, l := range planned {
				if l.Result != "would_purge" {
					t.Errorf("result: %q", l.Result)
				}
			}
			if now := decode[[]lockJSON](t, w.do(t, "locks", "list", "-o", "json")); len(now) != len(before) {
				t.Fatalf("a dry run has removed locks: %v", names(now))
			}

			r = w.run(t, append(full, "--yes")...)
			purged := decode[[]lockJSON](t, r.out)
			if s := strings.Join(names(purged), " "); r.code != exit.OK || s != want {
				t.Fatalf("purged %q, want %q: %s", s, want, r.err)
			}
			var gone int
			for _, l := range purged {
				if l.Result != "purged" {
					t.Errorf("result: %q", l.Result)
				}
				if _, stands := w.RowLock(t, l.Project, l.Ref); stands {
					t.Errorf("%s %s still stands", l.Project, l.Ref)
				}
				if l.Project != orphan {
					gone++
				}
			}
			if now := decode[[]lockJSON](t, w.do(t, "locks", "list", "-o", "json")); len(now) != len(before)-gone {
				t.Errorf("left: %v", names(now))
			}
		})
	}
}

func TestAFreshLockNeedsForce(t *testing.T) {
	t.Parallel()
	w := newLocks(t)
	for _, args := range []string{"p refs/heads/fresh", "--owner=there"} {
		r := w.run(t, strings.Fields("locks purge --yes "+args)...)
		r.is(t, exit.Locked, "--force")
		r.isOneLine(t)
	}
	if now := decode[[]lockJSON](t, w.do(t, "locks", "list", "-o", "json")); len(now) != 4 {
		t.Errorf("left: %v", names(now))
	}
}

// interfering is a driver that does something before locks are released or purged.
type interfering struct {
	refdb.Driver
	interfere func()
}

func (m interfering) Release(ctx context.Context, r driver.ReleaseRequest) (driver.Released, error) {
	m.interfere()
	return m.Driver.Release(ctx, r)
}

func (m interfering) Purge(ctx context.Context, locks []driver.StandingLock) ([]bool, error) {
	m.interfere()
	return m.Driver.Purge(ctx, locks)
}

func TestALockThatChangedMeanwhileIsKept(t *testing.T) {
	t.Parallel()
	for what, change := range map[string]string{
		"renewed":       `UPDATE locks SET heartbeat = heartbeat + 1 WHERE ref = 'refs/heads/stale'`,
		"changed hands": `UPDATE locks SET token = token + 1 WHERE ref = 'refs/heads/stale'`,
		"released":      `DELETE FROM locks WHERE ref = 'refs/heads/stale'`,
	} {
		t.Run(what, func(t *testing.T) {
			w := newLocks(t)
			w.wrap = func(d refdb.Driver) refdb.Driver { return interfering{d, func() { w.Exec(t, change) }} }
			r := w.run(t, "locks", "purge", "--stale", "--yes", "-o", "json")
			r.is(t, exit.OK, "kept 1 that")
			locks := decode[[]lockJSON](t, r.out)
			kept := slices.DeleteFunc(slices.Clone(locks), func(l lockJSON) bool { return l.Result != "kept" })
			if len(locks) != 4 || len(kept) != 1 || kept[0].Ref != "refs/heads/stale" {
				t.Errorf("%s", r.out)
			}
		})
	}
}

func TestALockThatIsNotThereIsShownToPrograms(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for format, check := range map[string]func(string) bool{
		"json": func(out string) bool { return out == "null\n" },
		"csv":  func(out string) bool { return strings.HasPrefix(out, "project,ref,") && strings.Count(out, "\n") == 1 },
	} {
		r := w.run(t, "locks", "show", "p", mainRef, "-o", format)
		r.is(t, exit.Failed, "there is no lock on p "+mainRef)
		if !check(r.out) {
			t.Errorf("%s: %q", format, r.out)
		}
	}
}

// On PostgreSQL a token may be ahead of a clock that was set back, and is up to two seconds behind otherwise.
func TestHowLongALockIsHeldPromisesNoMoreThanIsKnown(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		taken time.Duration // before now
		want  string
	}{
		{90*time.Second + 300*time.Millisecond, "1m30s"}, {1400 * time.Millisecond, "1s"}, {-time.Minute, "0s"},
	} {
		l := refdb.LockInfo{Token: driver.TokenOf(now.Add(-c.taken)), Heartbeat: now}
		var got string
		for _, column := range plainLockColumns(output.Palette{}) {
			if column.Name == "held_seconds" {
				got = column.Text(lockRow{LockInfo: l})
			}
		}
		if got != c.want {
			t.Errorf("taken %s ago: %s, want %s", c.taken, got, c.want)
		}
	}
	w := newWorld(t)
	for _, command := range []string{"list", "show"} {
		if help := w.do(t, "locks", command, "--help"); !strings.Contains(help, "up to 2 seconds too long") {
			t.Errorf("locks %s does not say how exact HELD FOR is", command)
		}
	}
}
