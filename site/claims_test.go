package site_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/internal/sitetest"
	"github.com/globalrefdb/globalrefdb/test/dbtest/local"
)

// An earlier daemon asked for an intent, and ended before it had the answer. The
// request takes effect only now, after the ref was moved to the intended value and back
// by others: the repository seems to say that it was carried out.
func TestWhatAnEarlierDaemonAskedForAndComesLateIsDropped(t *testing.T) {
	t.Parallel()
	for _, running := range []bool{true, false} {
		t.Run(fmt.Sprint("while a daemon runs ", running), func(t *testing.T) {
			t.Parallel()
			shared := local.SQLite(t)
			g := newGuard(t, shared, "eu-1")
			a, b := g.commit[0], g.commit[1]
			g.set("refs/heads/x", a)
			g.set("refs/heads/x", b)
			// Another site moves it back, and this one has not caught up.
			if err := g.db.Update(t.Context(), "team/app", []refdb.Update{{Ref: "refs/heads/x", Old: refdb.Value(b), New: refdb.Value(a)}}); err != nil {
				t.Fatal(err)
			}
			if !running {
				g.haltAway()
			}
			_, err := shared.Open(t).Prepare(t.Context(), driver.PrepareRequest{
				Project: "team/app", Updates: []refdb.Update{{Ref: "refs/heads/x", Old: refdb.Value(a), New: refdb.Value(b)}},
				Owner: "eu-1/earlier", Nonce: rand.Text(), Agent: "another boot:42:1",
			})
			switch {
			case !running && !errors.Is(err, refdb.ErrNotAdmitted):
				t.Fatalf("the daemon said that it ends, and the database took what it had asked for: %v", err)
			case !running:
				g.start()
			case err != nil:
				t.Fatal(err)
			default:
				g.reload()
			}
			sitetest.Eventually(t, "the intent is gone", func() bool { return g.intents() == 0 })
			g.has("refs/heads/x", b, a)
		})
	}
}

// What it had the answer to may have been carried out: that stands before this
// daemon looks for the first time.
func TestWhatAnEarlierDaemonWasToldIsReadFromTheRepository(t *testing.T) {
	t.Parallel()
	g := newGuard(t, local.SQLite(t), "eu-1")
	a := g.commit[0]
	s := g.session()
	if err := s.prepare("create refs/heads/x " + a); err != nil {
		t.Fatal(err)
	}
	g.halt()
	g.loose("refs/heads/x", a)
	s.kill()
	g.unlock()
	g.start()
	sitetest.Eventually(t, "the intent is gone", func() bool { return g.intents() == 0 })
	g.has("refs/heads/x", a, a)
}

// While the database is asked about a move nobody else may move the ref here, even
// if git would let them because the pusher has died.
func TestNobodyMovesARefThatIsBeingAnnounced(t *testing.T) {
	t.Parallel()
	g := idleGuard(t, local.SQLite(t), "eu-1")
	asked, answer := make(chan struct{}), make(chan struct{})
	g.driver = func(d refdb.Driver) refdb.Driver { return &waiting{d, asked, answer} }
	g.start()
	a, b := g.commit[0], g.commit[1]
	g.loose("refs/heads/x", a)
	if err := g.db.Update(t.Context(), "team/app", []refdb.Update{{Ref: "refs/heads/x", New: refdb.Value(a)}}); err != nil {
		t.Fatal(err)
	}
	s := g.session()
	if _, err := io.WriteString(s.in, "start\nupdate refs/heads/x "+b+" "+a+"\nprepare\n"); err != nil {
		t.Fatal(err)
	}
	<-asked
	s.kill()
	g.unlock()
	if err := g.db.Update(t.Context(), "team/app", []refdb.Update{{Ref: "refs/heads/x", Old: refdb.Value(a), New: refdb.Value(b)}}); err != nil {
		t.Fatal(err)
	}
	if said := g.catchUp("refs/heads/x"); !strings.HasPrefix(said, "result locked ") || !strings.Contains(said, "not known yet") {
		t.Errorf("the follower: %s", said)
	}
	g.has("refs/heads/x", a, b)
	close(answer)
	sitetest.Eventually(t, "the follower moves it", func() bool { return strings.HasPrefix(g.catchUp("refs/heads/x"), "result updated ") })
	g.has("refs/heads/x", b, b)
}

// reload has the daemon look at the database at once.
func (g *guard) reload() {
	g.tb.Helper()
	c, err := config.Load(g.tb.Context(), g.config)
	if err == nil {
		err = g.daemon.Reload(c)
	}
	if err != nil {
		g.tb.Fatal(err)
	}
}

// waiting is a driver that keeps the first announcement until it may be sent.
type waiting struct {
	refdb.Driver
	asked, answer chan struct{}
}

func (w *waiting) Prepare(ctx context.Context, r driver.PrepareRequest) (driver.Prepared, error) {
	close(w.asked)
	<-w.answer
	return w.Driver.Prepare(ctx, r)
}

// A decision is not over while the process may move the ref that it is about.
func TestADecisionIsKeptWhileThePusherLives(t *testing.T) {
	t.Parallel()
	g := newGuard(t, local.SQLite(t), "eu-1")
	a, b := g.commit[0], g.commit[1]
	g.set("refs/heads/x", a)
	s := g.session()
	if err := s.prepare("update refs/heads/x " + b + " " + a); err != nil {
		t.Fatal(err)
	}
	g.decide("refs/heads/x", driver.KeepOld)
	rounds := strings.Count(g.log.String(), "configuration reloaded")
	g.reload()
	sitetest.Eventually(t, "it has looked", func() bool {
		return strings.Count(g.log.String(), "configuration reloaded") > rounds && g.status().OK()
	})
	s.must("commit")
	if n := g.decided(); n != 1 {
		t.Fatalf("%d decisions are kept", n)
	}
	s.close()
	g.reload()
	sitetest.Eventually(t, "the decision is heeded", func() bool { return g.decided() == 0 })
	g.has("refs/heads/x", a, a)
}
