package site_test

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/site/internal/sitetest"
	"github.com/globalrefdb/globalrefdb/site/wire"
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
	if m, err := wire.ReadFromDaemon(r); err == nil {
		t.Errorf("the earlier session goes on: %+v", m)
	}
	wire.WriteMessage(first, wire.Announce{TX: "old", Limit: time.Second, Dir: g.repo, Lines: []wire.Line{line(x, "", a)}})
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
	lock, err := g.db.TryLock(t.Context(), "team/app", "refs/heads/locked")
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Release(t.Context())
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
	} {
		other := line("refs/heads/other-"+strings.ReplaceAll(name, " ", "-"), "", a)
		if got := j.answer(j.announce(other, row.move)); got != row.want {
			t.Errorf("%s: %+v, want %+v", name, got, row.want)
		}
	}
	if n := g.intents(); n != 0 {
		t.Errorf("%d intents are left", n)
	}
	j.say(wire.Announce{TX: "elsewhere", Limit: time.Second, Dir: filepath.Dir(g.repo), Lines: []wire.Line{line(x, "", a)}})
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

func (l *lateList) Finish(ctx context.Context, r refdb.FinishRequest) error {
	l.finished.Add(1)
	return l.Driver.Finish(ctx, r)
}

func (l *lateList) Intents(ctx context.Context, q refdb.IntentQuery) (refdb.IntentPage, error) {
	page, err := l.Driver.Intents(ctx, q)
	if len(page.Intents) > 0 && l.armed.CompareAndSwap(true, false) {
		l.pause()
	}
	return page, err
}

// Rule 12: all refs of a transaction are claimed at once, against other sessions, until it is settled.
func TestATransactionWaitsForThoseBeforeIt(t *testing.T) {
	t.Parallel()
	g := sessionTest(t, "\tlockWait = 4500ms")
	a, b := g.commit[0], g.commit[1]
	g.set(x, a)
	g.set("refs/heads/y", a)
	one, two := g.jgit().session(), g.jgitChild().session()
	tx := one.granted(line(x, a, b))
	one.move(line(x, a, b))
	later := two.announce(line(x, b, a), line("refs/heads/y", a, b))
	sitetest.Eventually(t, "the second waits", func() bool { return g.daemon.WaitingForClaims() == 1 })
	// The second has y only with x. Nobody overtakes it.
	third := one.announce(line("refs/heads/y", a, b))
	sitetest.Eventually(t, "the third waits", func() bool { return g.daemon.WaitingForClaims() == 2 })
	one.report(tx)
	if m := two.answer(later); m != (wire.Granted{TX: later}) {
		t.Fatalf("the second: %+v", m)
	}
	two.move(line(x, b, a), line("refs/heads/y", a, b))
	two.report(later)
	if m := one.answer(third); m != (refusedAs{"retry", "changed"}) && m != (refusedAs{"retry", "locked"}) {
		t.Errorf("the third: %+v", m)
	}
	g.has(x, a, a)
	g.has("refs/heads/y", b, b)
}

// Rule 14: a hook does not wait for a claim.
func TestAPushOverGitIsRefusedWhileASessionHasItsRef(t *testing.T) {
	t.Parallel()
	g := sessionTest(t, "\tlockWait = 4s")
	a, b := g.commit[0], g.commit[1]
	g.set(x, a)
	j := g.jgit().session()
	tx := j.granted(line(x, a, b))
	began := time.Now()
	sitetest.Contains(t, g.fails("update-ref", x, b), "another push to it is under way here")
	if took := time.Since(began); took > 3*time.Second {
		t.Errorf("it took %v", took)
	}
	j.report(tx)
	g.git("update-ref", x, b)
	g.has(x, b, b)
}

// Rule 12: a session waits for a push over git.
func TestASessionWaitsForAPushOverGit(t *testing.T) {
	t.Parallel()
	g := sessionTest(t)
	a, b, c := g.commit[0], g.commit[1], g.commit[2]
	g.set(x, a)
	j := g.jgit().session()
	s := g.session()
	if err := s.prepare("update " + x + " " + b + " " + a); err != nil {
		t.Fatal(err)
	}
	tx := j.announce(line(x, a, c))
	other := j.granted(line("refs/heads/y", "", a)) // others don't wait
	s.must("commit")
	if m := j.answer(tx); m != (refusedAs{"retry", "changed"}) {
		t.Errorf("got %+v", m)
	}
	s.close()
	tx = j.granted(line(x, b, c))
	j.move(line(x, b, c))
	j.report(tx)
	j.report(other)
	g.has(x, c, c)
}

// Rule 3, 4: who gives up gets no OK that counts, and what it announced is taken back.
func TestAnAnnouncementThatIsGivenUp(t *testing.T) {
	t.Parallel()
	g := idleGuard(t, sessionDatabase(t), "eu-1")
	hold := newHold()
	g.driver = hold.around
	g.start()
	a := g.commit[0]
	j := g.jgit().session()
	hold.close()
	tx := j.announce(line(x, "", a))
	hold.reached(t)
	j.say(wire.Report{TX: tx}) // while the database is asked
	j.ping()
	hold.open()
	if got, is := j.settled(tx)[x]; is && got != zero {
		t.Errorf("settled as %v", got)
	}
	g.resolved()
	g.has(x, "", "")
	// An OK that crosses the report.
	tx = j.granted(line(x, "", a))
	if got := j.report(tx); got[x] != zero {
		t.Errorf("settled as %v", got)
	}
	g.has(x, "", "")
}

// Rule 10: what was being prepared when the session broke is taken back, and so is what waits.
func TestASessionThatBreaksWhileTheDatabaseIsAsked(t *testing.T) {
	t.Parallel()
	g := idleGuard(t, sessionDatabase(t), "eu-1")
	hold := newHold()
	g.driver = hold.around
	g.start()
	a, b := g.commit[0], g.commit[1]
	j := g.jgit().session()
	hold.close()
	j.announce(line(x, "", a))
	hold.reached(t)
	j.announce(line(x, "", b)) // waits for the first
	j.conn.Close()
	hold.open()
	j.session()
	g.resolved()
	tx := j.granted(line(x, "", a))
	j.move(line(x, "", a))
	j.report(tx)
	g.has(x, a, a)
}

// I7: a prepare without an answer is revoked before anybody else has its refs.
func TestAPrepareOfASessionWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	for _, late := range []bool{false, true} {
		t.Run(fmt.Sprintf("late %v", late), func(t *testing.T) {
			t.Parallel()
			g := idleGuard(t, sessionDatabase(t), "eu-1", "\tlockWait = 100ms")
			lossy := g.listen()
			lossy.slow = late
			g.start()
			a, b := g.commit[0], g.commit[1]
			g.set(x, a)
			j := g.jgit().session()
			lossy.stubborn.Store(true)
			lossy.deaf.Store(true)
			if m := j.answer(j.announce(line(x, a, b))); m != (refusedAs{"final", "database"}) {
				t.Errorf("got %+v", m)
			}
			lossy.deaf.Store(false)
			if m := j.answer(j.announce(line(x, a, b))); m != (refusedAs{"retry", "locked"}) {
				t.Errorf("while it is not revoked: %+v", m)
			}
			sitetest.Contains(t, g.fails("update-ref", x, b), "another push to it is under way here")
			lossy.stubborn.Store(false)
			sitetest.Eventually(t, "it is revoked", func() bool {
				return j.answer(j.announce(line(x, a, b))) != (refusedAs{"retry", "locked"})
			})
			if late {
				if _, err := lossy.Driver.Prepare(t.Context(), *lossy.late.Load()); err == nil {
					t.Error("a revoked request was carried out")
				}
			}
		})
	}
}

// A report is settled also while the database does not answer: the daemon takes it over.
func TestAReportWhileTheDatabaseIsDown(t *testing.T) {
	t.Parallel()
	for _, restart := range []bool{false, true} {
		t.Run(fmt.Sprintf("restart %v", restart), func(t *testing.T) {
			t.Parallel()
			g := idleGuard(t, sessionDatabase(t), "eu-1", "\ttimeout = 500ms\n\tlockWait = 100ms")
			down := g.unplug()
			g.start()
			a, b := g.commit[0], g.commit[1]
			g.set(x, a)
			j := g.jgit().session()
			tx := j.granted(line(x, a, b))
			j.move(line(x, a, b))
			down.Store(true)
			if got := j.report(tx); got[x] != b {
				t.Errorf("settled as %v", got)
			}
			if m, is := j.answer(j.announce(line(x, b, a))).(refusedAs); !is {
				t.Errorf("let through while the first is not settled: %+v", m)
			}
			if restart {
				g.halt()
				g.start()
				if m, ok := j.begin().(wire.Welcome); !ok || m.Database == "" {
					t.Errorf("welcomed with %+v", m)
				}
				if m := j.answer(j.announce(line(x, b, a))); m.(refusedAs).kind != wire.Final {
					t.Errorf("without the database: %+v", m)
				}
			}
			down.Store(false)
			g.resolved()
			g.has(x, b, b)
		})
	}
}

// A finish whose reply is lost ends the transaction once.
func TestAFinishOfASessionWhoseReplyIsLost(t *testing.T) {
	t.Parallel()
	g := idleGuard(t, sessionDatabase(t), "eu-1")
	lossy := g.listen()
	g.start()
	a, b := g.commit[0], g.commit[1]
	g.set(x, a)
	j := g.jgit().session()
	tx := j.granted(line(x, a, b))
	j.move(line(x, a, b))
	lossy.deaf.Store(true)
	j.report(tx)
	lossy.deaf.Store(false)
	g.resolved()
	tx = ""
	sitetest.Eventually(t, "the ref is free", func() bool {
		tx = j.announce(line(x, b, a))
		return j.answer(tx) == (wire.Granted{TX: tx})
	})
	j.report(tx)
	g.has(x, b, b)
}

// A batch is one request before and one after, and nothing in between.
func TestABatchOfASessionCostsTwoRequests(t *testing.T) {
	t.Parallel()
	g := idleGuard(t, sessionDatabase(t), "eu-1")
	counted := g.listen()
	g.start()
	a := g.commit[0]
	j := g.jgit().session()
	j.report(j.granted(line("refs/heads/first", "", a))) // the daemon looks whether a git is left
	var moves []wire.Line
	for i := range 21 {
		moves = append(moves, line(fmt.Sprintf("refs/changes/%02d/%d/meta", i, i), "", a))
	}
	before := counted.asked.counts()
	tx := j.granted(moves...)
	j.move(moves...)
	j.report(tx)
	after := counted.asked.counts()
	if got, want := [3]int64{after[0] - before[0], after[1] - before[1], after[2] - before[2]}, [3]int64{0, 1, 1}; got != want {
		t.Errorf("%d states, %d prepared, %d finished, want %v", got[0], got[1], got[2], want)
	}
	g.has("refs/changes/20/20/meta", a, a)
}

func (a *asked) counts() [3]int64 {
	return [3]int64{a.states.Load(), a.prepared.Load(), a.finished.Load()}
}

// hold keeps preparations until they may go on.
type hold struct {
	gate atomic.Pointer[chan struct{}]
	seen chan struct{}
}

func newHold() *hold { return &hold{seen: make(chan struct{}, 100)} }

func (h *hold) close() { c := make(chan struct{}); h.gate.Store(&c) }
func (h *hold) open()  { close(*h.gate.Swap(nil)) }
func (h *hold) reached(t *testing.T) {
	t.Helper()
	select {
	case <-h.seen:
	case <-time.After(sitetest.Patience):
		t.Fatal("the database was not asked")
	}
}

func (h *hold) around(d refdb.Driver) refdb.Driver { return &holding{d, h} }

type holding struct {
	refdb.Driver
	*hold
}

func (h *holding) Prepare(ctx context.Context, r refdb.PrepareRequest) (refdb.Prepared, error) {
	if gate := h.gate.Load(); gate != nil {
		h.seen <- struct{}{}
		<-*gate
	}
	return h.Driver.Prepare(ctx, r)
}
