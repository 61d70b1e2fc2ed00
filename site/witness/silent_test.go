package witness

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/intents"
	"github.com/globalrefdb/globalrefdb/refdb/memory"
	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/internal/pause"
	"github.com/globalrefdb/globalrefdb/site/journal"
	"github.com/globalrefdb/globalrefdb/site/presence"
	"github.com/globalrefdb/globalrefdb/site/serving"
)

const (
	one = "1111111111111111111111111111111111111111"
	two = "2222222222222222222222222222222222222222"
)

// A witnessing site is a part of a daemon in a bubble.
type witnessing struct {
	*testing.T
	name    string
	db      *refdb.DB
	journal *journal.Journal
	plug    *muted
	cancel  context.CancelFunc
	tasks   sync.WaitGroup
	dir     string
	state   *serving.State
}

// serve starts a site. Its state is in dir.
func serve(t *testing.T, database *memory.Database, name, dir string, schema int) *witnessing {
	t.Helper()
	s := &witnessing{T: t, name: name, journal: journal.New(dir), plug: &muted{away: &away{Driver: database.Open()}}, dir: dir}
	var err error
	if s.db, err = refdb.New(s.plug, refdb.Options{Site: name, Journal: s.journal}); err != nil {
		t.Fatal(err)
	}
	c := &config.Config{Site: name, State: dir, Socket: filepath.Join(dir, "sock"), Timeout: time.Minute}
	state := serving.New(c, presence.New(s.db, slog.New(slog.DiscardHandler)))
	s.state = state
	w := &Witness{DB: s.db, Journal: s.journal, State: state, Logger: slog.New(slog.DiscardHandler)}
	ctx, cancel := context.WithCancel(t.Context())
	s.cancel = cancel
	if err := w.CompareAtStart(ctx, c); err != nil {
		t.Fatal(err)
	}
	if err := state.Presence.Acquire(ctx, c); err != nil && !errors.Is(err, refdb.ErrNotAdmitted) {
		t.Fatal(err)
	}
	if err := presence.Tell(ctx, s.db, name, presence.About{Schema: schema}); err != nil && !errors.Is(err, refdb.ErrNotAdmitted) {
		t.Fatal(err)
	}
	beat := func(ctx context.Context) {
		for pause.For(ctx, 2*time.Second) { // the library's beats are no events of the bubble
			if locks, err := presence.NameLocks(ctx, s.db); err == nil && locks[name].Ref != "" {
				s.plug.Beat(ctx, []driver.LockID{locks[name].ID()})
			}
		}
	}
	for _, task := range []func(context.Context){beat, w.KeepComparing, w.KeepJournal, w.KeepTestifying, func(ctx context.Context) { state.Presence.Keep(ctx, c) }} {
		s.tasks.Go(func() { task(ctx) })
	}
	return s
}

// A muted driver is cut off from the database: no request of a daemon's presence, comparisons and
// pushes gets through.
type muted struct {
	*away
	mute atomic.Bool
}

func (m *muted) Admission(ctx context.Context) (driver.Admission, error) {
	if m.mute.Load() {
		return driver.Admission{}, refdb.ErrUnavailable
	}
	return m.away.Admission(ctx)
}

func (m *muted) Report(ctx context.Context, r driver.Report) (driver.Admission, error) {
	if m.mute.Load() {
		return driver.Admission{}, refdb.ErrUnavailable
	}
	return m.away.Report(ctx, r)
}

func (m *muted) Beat(ctx context.Context, locks []driver.LockID) ([]driver.BeatResult, error) {
	if m.mute.Load() {
		return nil, refdb.ErrUnavailable
	}
	return m.away.Beat(ctx, locks)
}

// kill cuts the site off, and ends it.
func (s *witnessing) kill() {
	s.plug.is.Store(true)
	s.cancel()
	s.tasks.Wait()
	s.db.Close()
	s.journal.Close()
}

func (s *witnessing) admission() driver.Admission {
	s.Helper()
	a, err := s.db.Recovery().Admission(s.Context())
	if err != nil {
		s.Fatal(err)
	}
	return a
}

func (s *witnessing) announce(ref string) (intents.Preparation, error) {
	return s.db.Intents().Prepare(s.Context(), "p", []driver.Update{{Ref: ref, New: one}}, "a push")
}

func (s *witnessing) testimonies() []driver.Testimony {
	s.Helper()
	all, err := s.journal.Testimonies()
	if err != nil {
		s.Fatal(err)
	}
	return all
}

// staleFor is the stale-after of the sites of these tests, and some seconds.
const staleFor = refdb.DefaultStaleAfter + 5*time.Second

func TestANewServerDoesNotWaitForASilentSite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		database := memory.New()
		a, b := serve(t, database, "a", t.TempDir(), 12), serve(t, database, "b", t.TempDir(), 12)
		dir := t.TempDir()
		c := serve(t, database, "c", dir, 12)
		defer a.kill()
		defer b.kill()
		time.Sleep(2 * time.Minute)
		p, err := c.announce("refs/heads/pending")
		if err != nil {
			t.Fatal(err)
		}
		c.kill()
		time.Sleep(staleFor)
		w := a.admission().Witness("c")
		if !w.Testified() || !w.Since.Equal(w.Word) {
			t.Fatalf("%+v", w)
		}
		time.Sleep(2 * compareAgain)
		for _, s := range []*witnessing{a, b} {
			held := s.testimonies()
			if len(held) != 1 || !held[0].Given || len(held[0].Intents) != 1 || held[0].Intents[0].Ref != "refs/heads/pending" || held[0].Intents[0].Op != p.Op {
				t.Errorf("%s holds %+v", s.name, held)
			}
		}
		database.Restart()
		time.Sleep(10 * time.Second)
		if now := a.admission(); !now.Admitted {
			t.Errorf("the new server waits for %q", now.Waiting())
		}
		if _, err := b.announce("refs/heads/new"); err != nil {
			t.Errorf("a push at the new server: %v", err)
		}
		// It comes back, and ends what it had announced.
		c = serve(t, database, "c", dir, 12)
		defer c.kill()
		if w := c.admission().Witness("c"); w.Barred() || !w.Since.After(w.Word) {
			t.Errorf("it came back as %+v", w)
		}
		if err := c.db.Intents().Finish(t.Context(), p, []string{"refs/heads/pending"}, nil); err != nil {
			t.Errorf("its push: %v", err)
		}
		time.Sleep(2 * time.Minute)
		if held := append(a.testimonies(), b.testimonies()...); len(held) != 0 {
			t.Errorf("held on: %+v", held)
		}
		database.Restart()
		time.Sleep(10 * time.Second)
		if now := a.admission(); !now.Admitted || now.Halted {
			t.Errorf("%+v", now)
		}
	})
}

// sites starts three, of which the last is c.
func sites(t *testing.T, database *memory.Database, schema int) (a, b, c *witnessing) {
	t.Helper()
	a, b, c = serve(t, database, "a", t.TempDir(), 12), serve(t, database, "b", t.TempDir(), 12), serve(t, database, "c", t.TempDir(), schema)
	time.Sleep(2 * time.Minute)
	return a, b, c
}

func TestNoSiteTestifiesAboutASiteWhoseProgramDoesNotSupportTestimonies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b, c := sites(t, memory.New(), 11)
		defer a.kill()
		defer b.kill()
		c.kill()
		time.Sleep(2 * staleFor)
		if w := a.admission().Witness("c"); w.Barred() {
			t.Errorf("%+v", w)
		}
	})
}

// A site that is cut off goes on with what it believes, and comes back.
func TestASiteThatWasCutOffComesBackByItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		database := memory.New()
		a, b, c := sites(t, database, 12)
		defer a.kill()
		defer b.kill()
		defer c.kill()
		c.plug.mute.Store(true)
		time.Sleep(staleFor)
		if w := b.admission().Witness("c"); !w.Testified() {
			t.Fatalf("%+v", w)
		}
		c.plug.mute.Store(false)
		if _, err := c.announce("refs/heads/late"); err != nil {
			t.Errorf("its next push: %v", err)
		}
		if w := b.admission().Witness("c"); w.Barred() {
			t.Errorf("after it: %+v", w)
		}
		time.Sleep(2 * time.Minute)
		if held := append(a.testimonies(), b.testimonies()...); len(held) != 0 {
			t.Errorf("held on: %+v", held)
		}
	})
}

func TestTheLastSiteGoesOnAfterTheOthersHaveDied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		database := memory.New()
		a, b, c := sites(t, database, 12)
		defer a.kill()
		c.kill()
		time.Sleep(staleFor + time.Minute)
		b.kill()
		time.Sleep(staleFor)
		database.Restart()
		time.Sleep(10 * time.Second)
		if now := a.admission(); !now.Admitted || !now.Witness("b").Testified() || !now.Witness("c").Testified() {
			t.Errorf("%+v", now)
		}
	})
}

func TestWithoutAJournalThatCanBeWrittenThereIsNoTestimony(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		database := memory.New()
		a, b, c := sites(t, database, 12)
		defer a.kill()
		b.kill()
		inTheWay := filepath.Join(a.dir, "journal", "testimonies")
		if err := os.MkdirAll(filepath.Join(inTheWay, "x"), 0o700); err != nil {
			t.Fatal(err)
		}
		c.kill()
		time.Sleep(staleFor + time.Minute)
		for _, name := range []string{"b", "c"} {
			if w := a.admission().Witness(name); w.Away {
				t.Errorf("%+v", w)
			}
		}
		if err := os.RemoveAll(inTheWay); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * testifyAgain)
		for _, name := range []string{"b", "c"} {
			if w := a.admission().Witness(name); !w.Testified() {
				t.Errorf("%+v", w)
			}
		}
	})
}

func TestThePolicySynchronousWaitsForNoSiteThatIsSilent(t *testing.T) {
	for _, x := range []struct {
		what   string
		policy driver.Policy
		before time.Duration // how long c is dead when the server is replaced
		after  time.Duration // how long it is not waited for
		waits  bool
	}{
		{"wait", driver.Wait, 5 * time.Second, time.Hour, true},
		{"synchronous, and it dies with the server", driver.Synchronous, 0, staleFor, false},
		{"synchronous, and not for long", driver.Synchronous, 5 * time.Second, refdb.DefaultStaleAfter / 2, true},
	} {
		t.Run(x.what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				database := memory.New()
				a, b, c := sites(t, database, 11) // nobody testifies about it
				defer a.kill()
				defer b.kill()
				if _, err := a.db.Recovery().SetPolicy(t.Context(), x.policy); err != nil {
					t.Fatal(err)
				}
				c.kill()
				time.Sleep(x.before)
				database.Restart()
				time.Sleep(x.after)
				now := a.admission()
				if now.Admitted == x.waits || now.Witness("c").Away == x.waits {
					t.Errorf("%+v", now)
				}
			})
		})
	}
}

func TestThePolicySynchronousWaitsForNoSiteThatWasSilentBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		database := memory.New()
		a, b, c := sites(t, database, 11)
		defer a.kill()
		defer b.kill()
		if _, err := a.db.Recovery().SetPolicy(t.Context(), driver.Synchronous); err != nil {
			t.Fatal(err)
		}
		c.kill()
		time.Sleep(2 * staleFor)
		database.Restart()
		_, err := a.announce("refs/heads/new")
		a.state.RecordHealth(err) // as a push does
		time.Sleep(3 * compareAgain)
		if now := a.admission(); !now.Admitted || !now.Witness("c").Away {
			t.Errorf("%+v", now)
		}
	})
}

// While no site reaches the database, no site beats, and when the database is back all locks are stale.
func TestAfterAnOutageNobodyIsSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b, c := sites(t, memory.New(), 12)
		all := []*witnessing{a, b, c}
		before := a.admission().Marks()
		for _, s := range all {
			defer s.kill()
			s.plug.mute.Store(true)
		}
		time.Sleep(10 * time.Minute)
		a.plug.mute.Store(false)
		time.Sleep(refdb.DefaultStaleAfter / 2)
		for _, s := range all {
			s.plug.mute.Store(false)
		}
		time.Sleep(refdb.DefaultStaleAfter)
		if now := a.admission(); !slices.Equal(now.Marks(), before) {
			t.Errorf("%+v", now.Witnesses)
		}
	})
}
