package site_test

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/site"
	"github.com/globalrefdb/globalrefdb/site/client"
	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/internal/sitetest"
	"github.com/globalrefdb/globalrefdb/site/presence"
	"github.com/globalrefdb/globalrefdb/site/wire"
	"github.com/globalrefdb/globalrefdb/site/wire/wiretest"
)

func (m *movesReader) raw(text string) {
	m.g.tb.Helper()
	if _, err := m.conn.Write([]byte(text)); err != nil {
		m.g.tb.Fatal(err)
	}
}

// ended checks that the daemon has closed the connection. The kernel resets one of which it has not read all.
func (m *movesReader) ended(what string) {
	m.g.tb.Helper()
	if answer, err := wiretest.ReadMoves(m.r); err != io.EOF && !errors.Is(err, syscall.ECONNRESET) {
		m.g.tb.Errorf("%s: the connection goes on: %+v, %v", what, answer, err)
	}
}

func TestAReaderThatIsRejected(t *testing.T) {
	t.Parallel()
	g := sessionTest(t)
	for text, want := range map[string]string{
		"refdb-moves 2\nguard x\n\n":          wire.RejectVersion,
		"refdb-moves 1\nguard x\nafter -\n\n": wire.RejectMalformed,
		"refdb-moves 1\n\n":                   wire.RejectMalformed,
		"refdb-moves \n\n":                    wire.RejectVersion,
	} {
		m := g.unconnected()
		m.raw(text)
		if answer, is := m.hear().(wire.Rejected); !is || answer.Reason != want || len(answer.Lines) == 0 {
			t.Errorf("%q is answered %+v, want %s", text, answer, want)
		}
		m.ended(text)
	}
}

// A reader gets its place at once, and an answer without entries when nothing has moved for a while.
func TestAReaderIsAnsweredAlsoIfNothingMoves(t *testing.T) {
	t.Parallel()
	g := idleGuard(t, sessionDatabase(t), "eu-1")
	g.limits = func(d *site.Daemon) { d.SetReadersWait(100 * time.Millisecond) }
	g.start()
	m := g.reader()
	place := m.place
	if some := m.next(); len(some) > 0 || m.place != place {
		t.Errorf("%+v has moved, up to %s from %s", some, m.place, place)
	}
	g.git("update-ref", x, g.commit[0])
	m.lists(x)
}

func TestAMalformedQuestionEndsAReadersConnection(t *testing.T) {
	t.Parallel()
	g := sessionTest(t)
	m := g.reader()
	m.raw("before x\n\n")
	if answer, is := m.hear().(wire.Fault); !is || !strings.Contains(answer.Text, "before x") {
		t.Errorf("it is answered %+v", answer)
	}
	m.ended("after an error")
}

func TestAListThatCantBeReadIsAFaultAndTheLogSaysOfWhichClass(t *testing.T) {
	t.Parallel()
	g := sessionTest(t)
	m := g.reader()
	g.git("update-ref", x, g.commit[0])
	m.lists(x)
	files, err := filepath.Glob(filepath.Join(g.dir, "state/moves/*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range files {
		if err := errors.Join(os.Remove(path), os.Symlink(path, path)); err != nil {
			t.Fatal(err)
		}
	}
	m.say(wire.After{Place: m.place})
	if answer, is := m.hear().(wire.Fault); !is {
		t.Errorf("it is answered %+v", answer)
	}
	if !strings.Contains(g.log.String(), `the list of moves can't be read now" class=permanent`) {
		t.Error("the log does not say so")
	}
}

func TestAPlaceThatTheListDoesNotHaveIsReset(t *testing.T) {
	t.Parallel()
	g := sessionTest(t)
	m := g.reader()
	for _, place := range []string{"rubbish", m.place + "0", strings.Replace(m.place, "-", "x-", 1)} {
		m.say(wire.After{Place: place})
		answer, is := m.hear().(wire.Reset)
		if !is {
			t.Fatalf("%s is answered %+v", place, answer)
		}
		m.place = answer.Place
		g.git("update-ref", x, g.commit[0])
		m.lists(x)
		g.git("update-ref", "-d", x)
		m.lists(x)
	}
}

// A guard has one connection. A new one ends the one before.
func TestALaterConnectionOfAReaderEndsTheEarlierOne(t *testing.T) {
	t.Parallel()
	g := sessionTest(t)
	first := g.reader()
	first.say(wire.After{Place: first.place})
	second := *first
	second.connect()
	first.ended("the earlier one")
	g.git("update-ref", x, g.commit[0])
	second.lists(x)
	if all := g.status().Readers; len(all) != 1 || !all[0].Connected {
		t.Errorf("the status has readers %+v", all)
	}
}

// The connection of a reader ends with the daemon, at once. The next daemon goes on where the reader was.
func TestAReaderGoesOnWithTheNextDaemon(t *testing.T) {
	t.Parallel()
	g := idleGuard(t, sessionDatabase(t), "eu-1")
	g.limits = func(d *site.Daemon) { d.SetReadersWait(time.Hour) }
	g.start()
	m := g.reader()
	g.git("update-ref", x, g.commit[0])
	m.lists(x)
	g.git("update-ref", y, g.commit[0])
	other := g.reader()
	other.say(wire.After{Place: other.place})
	g.stop()
	sitetest.Eventually(t, "the daemon ends without waiting for its readers", func() bool { return len(g.ended) > 0 })
	other.ended("that which waits")
	g.start()
	m.connect()
	m.lists(y)
}

// ageMoves lets all that is on the list have been there for longer.
func (g *guard) ageMoves(by time.Duration) {
	g.tb.Helper()
	path := filepath.Join(g.dir, "state/moves/0000000000000001")
	text, err := os.ReadFile(path)
	if err == nil {
		older := regexp.MustCompile(`(?m)^moved \d+`).ReplaceAllString(string(text), fmt.Sprintf("moved %d", time.Now().Add(-by).Unix()))
		err = os.WriteFile(path, []byte(older), 0o600)
	}
	if err != nil {
		g.tb.Fatal(err)
	}
}

// The status has each reader, how far it is behind, and forgets it once its guard has ended.
func TestTheStatusOfReaders(t *testing.T) {
	t.Parallel()
	setting, at := exporting(t)
	g := sessionTest(t, setting)
	j := g.jgitChild().session()
	m := j.reader()
	only := func() client.Reader {
		t.Helper()
		all := g.status().Readers
		if len(all) != 1 || all[0].Guard != j.id {
			t.Fatalf("the status has readers %+v", all)
		}
		return all[0]
	}
	m.say(wire.After{Place: m.place})
	sitetest.Eventually(t, "it has read all", func() bool { r := only(); return r.Connected && r.Unread == 0 && r.Oldest == 0 && !r.Comparing })
	g.git("update-ref", x, g.commit[0]) // it is answered, and says nothing
	if r := only(); r.Unread == 0 || r.Oldest < 0 || r.Oldest > sitetest.Patience.Seconds() {
		t.Errorf("one is unread: %+v", r)
	}
	for name, want := range map[string]float64{
		`refdb_site_moves_readers{connected="yes"}`: 1, `refdb_site_moves_readers{connected="no"}`: 0,
		"refdb_site_moves_writable": 1, "refdb_site_moves_total": 1, "refdb_site_moves_resets_total": 0,
	} {
		metricIs(t, at, name, want)
	}
	if metric(t, at, "refdb_site_moves_unread_bytes") == 0 {
		t.Error("the metric says that nothing is unread")
	}
	g.ageMoves(10 * time.Minute)
	if s := g.status(); s.OK() || s.Readers[0].Oldest < 600 || metric(t, at, "refdb_site_moves_unread_oldest_seconds") < 600 {
		t.Errorf("after ten minutes: %+v", s.Readers)
	}
	m.conn.Close()
	sitetest.Eventually(t, "the connection is seen to have ended", func() bool { return !only().Connected })
	if s := g.status(); s.OK() {
		t.Error("without a connection all is well")
	}
	metricIs(t, at, `refdb_site_moves_readers{connected="no"}`, 1)
	j.kill()
	sitetest.Eventually(t, "it is forgotten", func() bool { return len(g.status().Readers) == 0 })
	metricIs(t, at, "refdb_site_moves_unread_oldest_seconds", 0)
}

// A server that has a session keeps indexes, and has to read: that it never does is an alarm after five minutes. Other guards need not.
func TestAServerThatNeverReadsMoves(t *testing.T) {
	t.Parallel()
	setting, at := exporting(t)
	g := sessionTest(t, setting)
	const oldest = "refdb_site_moves_unread_oldest_seconds"
	g.jgit().session()
	j := g.jgitChild()
	if answer, is := j.begin(func(b *wire.Begin) { b.Server = "gerrit" }).(wire.Welcome); !is {
		t.Fatalf("%+v", answer)
	}
	g.clock.Advance(2 * time.Minute) // a slow machine adds to that
	if s := g.status(); !s.OK() || len(s.Readers) > 0 {
		t.Errorf("after two minutes: %+v", s.Readers)
	}
	g.clock.Advance(4 * time.Minute)
	if s := g.status(); s.OK() || len(s.Readers) != 1 || s.Readers[0].Guard != j.id || !s.Readers[0].Never || metric(t, at, oldest) < 360 {
		t.Errorf("after six: %+v", s.Readers)
	}
	m := j.reader()
	m.say(wire.After{Place: m.place})
	sitetest.Eventually(t, "it reads", func() bool { s := g.status(); return s.OK() && len(s.Readers) == 1 && !s.Readers[0].Never })
	metricIs(t, at, oldest, 0)
	j.kill()
}

// A reader that compares everything is no alarm, but can be seen.
func TestTheStatusOfAReaderThatCompares(t *testing.T) {
	t.Parallel()
	g := sessionTest(t)
	m := g.reader()
	m.say(wire.After{Place: "rubbish"})
	m.hear()
	if s := g.status(); !s.OK() || len(s.Readers) != 1 || !s.Readers[0].Comparing {
		t.Errorf("%+v", s.Readers)
	}
}

func TestMoreReadersThanADaemonServes(t *testing.T) {
	t.Parallel()
	g := sessionTest(t)
	for range 64 {
		g.reader()
	}
	m := g.unconnected()
	m.say(wire.BeginMoves{Guard: m.id})
	if answer, is := m.hear().(wire.Rejected); !is || answer.Reason != wire.RejectStarting {
		t.Errorf("the 65th is answered %+v", answer)
	}
	// Hooks are served all the same.
	g.git("update-ref", x, g.commit[0])
}

// After a take-over nothing is known of what the daemon with the other state directory saw.
func TestAReaderComparesEverythingAfterATakeOver(t *testing.T) {
	t.Parallel()
	g := sessionTest(t)
	m := g.reader()
	g.halt()
	c, err := config.Load(t.Context(), g.config)
	if err != nil {
		t.Fatal(err)
	}
	db, err := refdb.New(g.shared.Open(t), refdb.Options{Site: g.name})
	if err == nil {
		err = presence.TakeOver(t.Context(), c, db, slog.New(slog.DiscardHandler))
		db.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	g.start()
	m.connect()
	if answer, is := m.hear().(wire.Reset); !is {
		t.Errorf("it is answered %+v", answer)
	}
}
