package site_test

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/site/internal/sitetest"
	"github.com/globalrefdb/globalrefdb/site/wire"
	"github.com/globalrefdb/globalrefdb/site/wire/wiretest"
)

const x = "refs/heads/x"

// Rule 10, 8: what is on the list goes on over a restart of the daemon, and is to be reported.
func TestAListedTransactionGoesOnAfterARestart(t *testing.T) {
	t.Parallel()
	for _, moved := range []bool{true, false} {
		for _, restart := range []bool{true, false} {
			t.Run(fmt.Sprintf("moved %v, daemon restarted %v", moved, restart), func(t *testing.T) {
				t.Parallel()
				g := sessionTest(t)
				a, b := g.commit[0], g.commit[1]
				g.set(x, a)
				j := g.jgit().session()
				move := line(x, a, b)
				tx := j.granted(move)
				if restart {
					g.halt()
					g.start()
					g.reconciled()
				} else {
					j.conn.Close()
				}
				if n := g.intents(); n != 1 {
					t.Fatalf("%d intents stand, want 1: the guard lives", n)
				}
				j.lists(tx, move)
				j.session()
				g.reconciled() // as it does every few seconds
				if n := g.intents(); n != 1 {
					t.Fatalf("%d intents stand after the list, want 1", n)
				}
				want := a
				if moved {
					j.move(move)
					want = b
				}
				if got := j.report(tx); got[x] != want {
					t.Errorf("settled as %v, want %s", got, want)
				}
				g.has(x, want, want)
			})
		}
	}
}

// Rule 10: all that is not on the list is settled by the repository.
func TestWhatIsNotListedIsSettled(t *testing.T) {
	t.Parallel()
	for _, moved := range []bool{true, false} {
		for _, restart := range []bool{true, false} {
			t.Run(fmt.Sprintf("moved %v, daemon restarted %v", moved, restart), func(t *testing.T) {
				t.Parallel()
				g := sessionTest(t)
				a, b := g.commit[0], g.commit[1]
				g.set(x, a)
				j := g.jgit().session()
				j.granted(line(x, a, b))
				want := a
				if moved {
					j.move(line(x, a, b))
					want = b
				}
				if restart {
					g.halt()
					g.start()
				}
				j.session()
				g.resolved()
				g.has(x, want, want)
			})
		}
	}
}

// Rule 11, 1: a broken session settles nothing while its guard lives, nor does a daemon that looks again and again.
func TestABrokenSessionSettlesNothing(t *testing.T) {
	t.Parallel()
	g := sessionTest(t)
	a, b := g.commit[0], g.commit[1]
	g.set(x, a)
	j := g.jgit().session()
	j.granted(line(x, a, b))
	j.conn.Close()
	g.reconciled()
	if n := g.intents(); n != 1 {
		t.Fatalf("%d intents stand, want 1", n)
	}
	g.halt()
	g.start()
	g.reconciled()
	if n := g.intents(); n != 1 {
		t.Fatalf("%d intents stand after a restart, want 1", n)
	}
}

// reconciled has the daemon look at the database, and waits until it has.
func (g *guard) reconciled() {
	g.tb.Helper()
	for range 2 { // one may be under way
		before := g.status().Counters.Reconciled
		g.reload()
		sitetest.Eventually(g.tb, "it has looked at the database", func() bool { return g.status().Counters.Reconciled > before })
	}
}

// Rule 10: a session with a number that is not larger is not heard.
func TestASessionWithAnEarlierNumberIsRejected(t *testing.T) {
	t.Parallel()
	g := sessionTest(t)
	j := g.jgit()
	j.number = 6
	j.session()
	for number, want := range map[uint64]string{6: wire.RejectNumber, 7: wire.RejectNumber, 8: ""} {
		j.number = number - 1
		got := ""
		if m, is := j.begin().(wire.Rejected); is {
			got = m.Reason
		}
		if number == 8 {
			continue // in any order: it may come first
		}
		if got != want {
			t.Errorf("session %d: rejected %q, want %q", number, got, want)
		}
	}
}

// Rule 10: a later session ends the earlier one.
func TestALaterSessionEndsTheEarlierOne(t *testing.T) {
	t.Parallel()
	g := sessionTest(t)
	a := g.commit[0]
	j := g.jgit().session()
	first, r := j.conn, j.r
	j.session()
	if m, err := wiretest.ReadFromDaemon(r); err == nil {
		t.Errorf("the earlier session goes on: %+v", m)
	}
	wiretest.Write(first, wire.Announce{TX: "old", Limit: sitetest.Patience, Dir: g.repo, Lines: []wire.Line{line(x, "", a)}})
	tx := j.granted(line("refs/heads/y", "", a))
	if agents := g.agents(); len(agents) != 1 || !strings.HasSuffix(agents[0], ":"+tx) {
		t.Errorf("intents of %v stand", agents)
	}
}

// Rule 13: what was announced is compared with the repository, and then with the database.
func TestWhatIsRefused(t *testing.T) {
	t.Parallel()
	g := sessionTest(t, "\tlockWait = 300ms")
	a, b, c := g.commit[0], g.commit[1], g.commit[2]
	j := g.jgit().session()
	g.set("refs/heads/changed", b)
	g.set("refs/heads/behind", a)
	if _, err := g.db.Put(t.Context(), "team/app", "refs/heads/behind", refdb.Value(b)); err != nil {
		t.Fatal(err)
	}
	g.git("-c", "core.hooksPath=/dev/null", "update-ref", "refs/heads/unknown", a)
	g.set("refs/heads/locked", a)
	g.git("-c", "core.hooksPath=/dev/null", "symbolic-ref", "refs/heads/symbolic", "refs/heads/changed")
	for name, row := range map[string]struct {
		move wire.Line
		want any
	}{
		"it has moved since it was read": {line("refs/heads/changed", a, c), refusedAs{"retry", "changed"}},
		"it is there by now":             {line("refs/heads/changed", "", c), refusedAs{"retry", "changed"}},
		"it was deleted":                 {line("refs/heads/none", a, c), refusedAs{"retry", "changed"}},
		"the site is behind":             {line("refs/heads/behind", a, c), refusedAs{"retry", "behind"}},
		"the database never had it":      {line("refs/heads/unknown", a, c), refusedAs{"final", "unknown_ref"}},
		"somebody has locked it":         {line("refs/heads/locked", a, c), refusedAs{"retry", "locked"}},
		"it becomes symbolic":            {wire.Line{Old: zero, New: "ref:refs/heads/changed", Ref: "refs/heads/new"}, refusedAs{"final", "unguardable"}},
		"it is symbolic":                 {line("refs/heads/symbolic", b, c), refusedAs{"final", "unguardable"}},
		"it is a peer's":                 {line("refs/peer/one/heads/x", "", c), refusedAs{"final", "peer_refs"}},
		"it is the daemon's":             {line("refs/refdb/x", "", c), refusedAs{"final", "peer_refs"}},
		"it is a work tree's":            {line("refs/worktree/x", "", c), refusedAs{"final", "reserved_name"}},
		"it differs from such by case":   {line("refs/WorkTree/x", "", c), refusedAs{"final", "reserved_name"}},
	} {
		if row.move.Ref == "refs/heads/locked" { // not before: what is locked for long is refused for another reason
			lock, err := g.db.TryLock(t.Context(), "team/app", row.move.Ref)
			if err != nil {
				t.Fatal(err)
			}
			defer lock.Release(t.Context())
		}
		other := line("refs/heads/other-"+strings.ReplaceAll(name, " ", "-"), "", a)
		if got := j.answer(j.announce(other, row.move)); got != row.want {
			t.Errorf("%s: %+v, want %+v", name, got, row.want)
		}
	}
	if n := g.intents(); n != 0 {
		t.Errorf("%d intents are left", n)
	}
	j.say(wire.Announce{TX: "elsewhere", Limit: sitetest.Patience, Dir: filepath.Dir(g.repo), Lines: []wire.Line{line(x, "", a)}})
	if got := j.answer("elsewhere"); got != (refusedAs{"final", "not_configured"}) {
		t.Errorf("another directory: %+v", got)
	}
}

// Refs that no rule guards are let through. What they hold is not said: nobody has them claimed, and others may have moved them since.
func TestRefsThatAreNotGuardedAreLetThrough(t *testing.T) {
	t.Parallel()
	g := sessionTest(t)
	a := g.commit[0]
	j := g.jgit().session()
	head := wire.Line{Old: "ref:refs/heads/main", New: "ref:refs/heads/x", Ref: "HEAD"}
	moves := []wire.Line{head, line("refs/cache-automerge/aa/b", "", a), line("refs/none", "", "")}
	tx := j.granted(moves...)
	if n := g.intents(); n != 0 {
		t.Errorf("%d intents stand", n)
	}
	g.git("symbolic-ref", "HEAD", "refs/heads/x")
	if got := j.report(tx); len(got) != 0 {
		t.Errorf("settled as %v, want nothing", got)
	}
	if got := j.report("never-announced"); len(got) != 0 {
		t.Errorf("a transaction that nobody knows is settled as %v", got)
	}
}

// The settlement of a transaction names nothing that somebody else may have moved since.
func TestASettlementNamesNothingOfOthers(t *testing.T) {
	t.Parallel()
	g := sessionTest(t)
	a, b, c := g.commit[0], g.commit[1], g.commit[2]
	g.set(x, a)
	j := g.jgit().session()
	tx := j.granted(line(x, a, b))
	j.move(line(x, a, b))
	j.say(wire.Report{TX: tx})
	j.settled(tx) // which the guard does not get to read
	g.git("update-ref", x, c)
	j.lists(tx, line(x, a, b))
	j.session()
	if got := j.report(tx); len(got) != 0 {
		t.Errorf("settled again as %v", got)
	}
	g.has(x, c, c)
}

// A reconciliation that has read intents before they were settled brings nothing back.
func TestAReconciliationBringsNoTransactionBack(t *testing.T) {
	t.Parallel()
	g := idleGuard(t, sessionDatabase(t), "eu-1")
	late := &lateList{}
	g.driver = func(d refdb.Driver) refdb.Driver { late.Driver = d; return late }
	g.start()
	a, b := g.commit[0], g.commit[1]
	g.set(x, a)
	j := g.jgit().session()
	tx := j.granted(line(x, a, b))
	listed, goOn := make(chan struct{}), make(chan struct{})
	late.pause = func() { listed <- struct{}{}; <-goOn }
	late.armed.Store(true)
	g.reload()
	<-listed
	j.move(line(x, a, b))
	j.report(tx)
	close(goOn)
	sitetest.Eventually(t, "it has looked", func() bool { return !late.armed.Load() })
	for range 5 {
		g.reconciled()
		if open := g.status().Sessions[0].Open; open != 0 {
			t.Fatalf("%d transactions are open", open)
		}
	}
	if n := late.finished.Load(); n != 1 {
		t.Errorf("it was settled %d times", n)
	}
	g.git("update-ref", x, a)
	g.has(x, a, a)
}

// lateList is a driver that keeps the answer to a listing of intents, once.
type lateList struct {
	refdb.Driver
	armed atomic.Bool
	pause func()

	finished atomic.Int64
}

func (l *lateList) Finish(ctx context.Context, r driver.FinishRequest) error {
	l.finished.Add(1)
	return l.Driver.Finish(ctx, r)
}

func (l *lateList) Intents(ctx context.Context, q driver.IntentQuery) (driver.IntentPage, error) {
	page, err := l.Driver.Intents(ctx, q)
	if len(page.Intents) > 0 && l.armed.CompareAndSwap(true, false) {
		l.pause()
	}
	return page, err
}
