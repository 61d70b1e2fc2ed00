package site_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/site/internal/sitetest"
	"github.com/globalrefdb/globalrefdb/test/dbtest/local"
)

// loose writes a ref's file as git's last step does.
func (g *guard) loose(ref, value string) {
	g.tb.Helper()
	path := filepath.Join(g.repo, ref)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		g.tb.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(value+"\n"), 0o644); err != nil {
		g.tb.Fatal(err)
	}
}

// unlock removes what a killed git leaves behind.
func (g *guard) unlock() {
	g.tb.Helper()
	err := filepath.WalkDir(g.repo, func(path string, _ os.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, ".lock") {
			err = os.Remove(path)
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil // the daemon was faster
		}
		return err
	})
	if err != nil {
		g.tb.Fatal(err)
	}
}

func TestAPusherThatIsKilled(t *testing.T) {
	t.Parallel()
	refs := []string{"refs/heads/one", "refs/heads/two"}
	for i, c := range []struct {
		name string
		// moved are the refs that git had moved when it was killed.
		moved []string
		// from and to are commits; -1: none.
		from, to int
	}{
		{"before a creation", nil, -1, 0},
		{"between two creations", refs[:1], -1, 0},
		{"after two creations", refs, -1, 0},
		{"before an update", nil, 0, 1},
		{"between two updates", refs[1:], 0, 1},
		{"after two updates", refs, 0, 1},
		{"before a deletion", nil, 1, -1},
		{"between two deletions", refs[:1], 1, -1},
		{"after two deletions", refs, 1, -1},
	} {
		for k, daemon := range []string{"watches", "starts later", "is restarted before the death"} {
			t.Run(c.name+", the daemon "+daemon, func(t *testing.T) {
				if testing.Short() && (i+i/3+k)%3 > 0 { // a Latin square: of kind of move, moment and daemon any two meet once
					t.Skip("left out by -short: two daemons of three for each moment; make test-all runs them")
				}
				t.Parallel()
				g := newGuard(t, local.SQLite(t), "eu-1")
				old, to := g.value(c.from), g.value(c.to)
				before := old // globally: unknown, if it was never there
				if c.from < 0 {
					before = ""
				}
				for _, ref := range refs {
					if c.from >= 0 {
						g.set(ref, old)
					}
				}
				s := g.session()
				if err := s.prepare("update "+refs[0]+" "+to+" "+old, "update "+refs[1]+" "+to+" "+old); err != nil {
					t.Fatal(err)
				}
				if n := g.intents(); n != 2 {
					t.Fatalf("%d intents stand, want 2", n)
				}
				if daemon != "watches" {
					g.halt()
				}
				if daemon == "is restarted before the death" {
					g.start()
					if n := g.intents(); n != 2 {
						t.Fatalf("%d intents stand while git lives, want 2", n)
					}
				}
				for _, ref := range c.moved {
					if c.to < 0 {
						os.Remove(filepath.Join(g.repo, ref))
					} else {
						g.loose(ref, to)
					}
				}
				s.kill()
				if daemon == "starts later" {
					g.start()
				}
				g.resolved()
				g.unlock()
				for _, ref := range refs {
					want := before
					if slices.Contains(c.moved, ref) {
						want = to
					}
					g.has(ref, present(want), want)
				}
			})
		}
	}
}

// present is what git says of a ref with that value.
func present(value string) string {
	if value == zero {
		return ""
	}
	return value
}

// value is that of a commit, or zeros for -1.
func (g *guard) value(commit int) string {
	if commit < 0 {
		return zero
	}
	return g.commit[commit]
}

func TestADaemonRestartedBetweenPreparedAndTheEnd(t *testing.T) {
	t.Parallel()
	for _, end := range []string{"commit", "abort"} {
		t.Run(end, func(t *testing.T) {
			t.Parallel()
			g := newGuard(t, local.SQLite(t), "eu-1")
			a, b := g.commit[0], g.commit[1]
			g.set("refs/heads/x", a)
			s := g.session()
			if err := s.prepare("update refs/heads/x " + b + " " + a); err != nil {
				t.Fatal(err)
			}
			g.halt()
			g.start()
			s.must(end)
			if end == "commit" {
				g.has("refs/heads/x", b, b)
			} else {
				g.has("refs/heads/x", a, a)
			}
			s.close()
		})
	}
}

func TestTransactionsOfOneProcess(t *testing.T) {
	t.Parallel()
	g := newGuard(t, local.SQLite(t), "eu-1")
	a, b := g.commit[0], g.commit[1]
	s := g.session()
	for range 2 {
		for _, step := range []struct{ from, to, end string }{
			{zero, a, "abort"}, {zero, a, "commit"}, {a, b, "commit"}, {b, a, "abort"}, {b, a, "commit"}, {a, zero, "commit"},
		} {
			if err := s.prepare("update refs/heads/x " + step.to + " " + step.from); err != nil {
				t.Fatal(err)
			}
			s.must(step.end)
		}
		g.has("refs/heads/x", "", zero)
	}
	s.close()
}

// A deletion without an old value is reported in a way that ends nothing: the
// next transaction of the same process shows that it is over.
func TestAnUnreportedDeletionDoesNotStandInTheWay(t *testing.T) {
	t.Parallel()
	g := newGuard(t, local.SQLite(t), "eu-1")
	a, b := g.commit[0], g.commit[1]
	g.set("refs/heads/x", a)
	g.git("pack-refs", "--all", "--prune")
	s := g.session()
	s.must("start", "delete refs/heads/x", "commit")
	s.must("start", "create refs/heads/x "+b, "commit")
	g.has("refs/heads/x", b, b)
	s.close()
}

func TestAValueThatNobodyAnnouncedRaisesAnAlarm(t *testing.T) {
	t.Parallel()
	g := newGuard(t, local.SQLite(t), "eu-1", "\tlockWait = 100ms")
	a, b, c := g.commit[0], g.commit[1], g.commit[2]
	g.set("refs/heads/x", a)
	s := g.session()
	if err := s.prepare("update refs/heads/x " + b + " " + a); err != nil {
		t.Fatal(err)
	}
	g.loose("refs/heads/x", c)
	s.kill()
	g.unlock()
	sitetest.Eventually(t, "an alarm", func() bool { return len(g.status().Stuck) == 1 })
	if st := g.status(); st.OK() || st.Counters.Alarms != 1 || !strings.Contains(st.Stuck[0].Reason, c[:7]) {
		t.Errorf("status %+v", st)
	}
	if n := g.intents(); n != 1 {
		t.Errorf("%d intents stand, want 1", n)
	}
	// Nobody moves it meanwhile; the administrator makes it one of the two.
	if said := g.fails("update-ref", "refs/heads/x", b); !strings.Contains(said, "another push to it is in progress here since") {
		t.Errorf("git said %q", said)
	}
	g.loose("refs/heads/x", b)
	g.reload()
	g.resolved()
	g.has("refs/heads/x", b, b)
	sitetest.Eventually(t, "the alarm is taken back", func() bool { return g.status().OK() })
}

func TestADecisionMadeInTheSitesAbsence(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name     string
		decision driver.Decision
		moved    bool // git had moved the ref
		from, to int  // commits; -1: none
	}{
		{"keep old, update done", driver.KeepOld, true, 0, 1},
		{"keep old, update not done", driver.KeepOld, false, 0, 1},
		{"take new, update done", driver.TakeNew, true, 0, 1},
		{"take new, update not done", driver.TakeNew, false, 0, 1},
		{"keep old, creation done", driver.KeepOld, true, -1, 1},
		{"take new, deletion not done", driver.TakeNew, false, 0, -1},
		{"keep old, deletion done", driver.KeepOld, true, 0, -1},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			g := newGuard(t, local.SQLite(t), "eu-1")
			from, to := g.value(c.from), g.value(c.to)
			if c.from >= 0 {
				g.set("refs/heads/x", from)
			}
			s := g.session()
			if err := s.prepare("update refs/heads/x " + to + " " + from); err != nil {
				t.Fatal(err)
			}
			g.halt()
			if c.moved && c.to >= 0 {
				g.loose("refs/heads/x", to)
			} else if c.moved {
				os.Remove(filepath.Join(g.repo, "refs/heads/x"))
			}
			s.kill()
			if len(g.locks()) == 0 {
				t.Fatal("git has no lock file")
			}
			g.decide("refs/heads/x", c.decision)
			g.start()
			sitetest.Eventually(t, "the decision is carried out", func() bool { return g.status().Counters.Heeded == 1 && g.decided() == 0 })
			want := from
			if c.decision == driver.TakeNew {
				want = to
			}
			if got := g.local("refs/heads/x"); got != present(want) {
				t.Errorf("here it is %q, want %q", got, want)
			}
			if left := g.locks(); len(left) > 0 {
				t.Errorf("left: %q", left)
			}
		})
	}
}

// What a daemon has found in the database it does not take for what git
// announces now: it may have been ended since.
func TestAnAnnouncementIsNotTakenFromAnEarlierDaemons(t *testing.T) {
	t.Parallel()
	g := newGuard(t, local.SQLite(t), "eu-1")
	a := g.commit[0]
	s := g.session()
	if err := s.prepare("create refs/heads/x " + a); err != nil {
		t.Fatal(err)
	}
	g.halt()
	g.start()
	// The daemon does not hear that git gives up, and an operator ends the intent.
	link := filepath.Join(g.repo, "refdb/socket")
	if err := os.Rename(link, link+".away"); err != nil {
		t.Fatal(err)
	}
	s.must("abort")
	if err := os.Rename(link+".away", link); err != nil {
		t.Fatal(err)
	}
	g.decide("refs/heads/x", driver.KeepOld)
	if err := s.prepare("create refs/heads/x " + a); err != nil {
		t.Fatal(err)
	}
	if n := g.intents(); n != 1 {
		t.Errorf("%d intents stand, want 1", n)
	}
	s.must("commit")
	g.has("refs/heads/x", a, a)
	s.close()
}
