package site_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/site/internal/sitetest"
	"github.com/globalrefdb/globalrefdb/site/wire"
)

// Rule 12: all refs of a transaction are claimed at once, against other sessions, until it is settled.
func TestATransactionWaitsForThoseBeforeIt(t *testing.T) {
	t.Parallel()
	g := sessionTest(t)
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
	if m := one.answer(third); m != (refusedAs{"retry", "changed"}) {
		t.Errorf("the third: %+v", m)
	}
	g.has(x, a, a)
	g.has("refs/heads/y", b, b)
}

// Rule 14: a hook does not wait for a claim.
func TestAPushOverGitIsRefusedWhileASessionHasItsRef(t *testing.T) {
	t.Parallel()
	g := sessionTest(t) // others wait for minutes
	a, b := g.commit[0], g.commit[1]
	g.set(x, a)
	j := g.jgit().session()
	tx := j.granted(line(x, a, b))
	sitetest.Contains(t, g.fails("update-ref", x, b), "another push to it is in progress here")
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
			sitetest.Contains(t, g.fails("update-ref", x, b), "another push to it is in progress here")
			lossy.stubborn.Store(false)
			sitetest.Eventually(t, "it is revoked", func() bool {
				return j.answer(j.announce(line(x, a, b))) != (refusedAs{"retry", "locked"})
			})
			if late {
				if _, err := lossy.driver.Prepare(t.Context(), *lossy.late.Load()); err == nil {
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
			g := idleGuard(t, sessionDatabase(t), "eu-1", "\tlockWait = 100ms")
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
	gate       atomic.Pointer[chan struct{}]
	seen, over chan struct{}
}

func newHold() *hold {
	return &hold{seen: make(chan struct{}, 100), over: make(chan struct{}, 100)}
}

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

func (h *holding) Prepare(ctx context.Context, r driver.PrepareRequest) (driver.Prepared, error) {
	if gate := h.gate.Load(); gate != nil {
		h.seen <- struct{}{}
		<-*gate
		defer func() { h.over <- struct{}{} }()
	}
	return h.Driver.Prepare(ctx, r)
}
