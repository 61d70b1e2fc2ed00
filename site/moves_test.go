package site_test

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/site/internal/sitetest"
	"github.com/globalrefdb/globalrefdb/site/wire"
)

const (
	y         = "refs/heads/y"
	unguarded = "refs/cache-automerge/11/1"
)

// What moves in the daemon's time is listed once it has ended, and nothing else is.
func TestWhatIsListed(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		happens func(g *guard, a, b string)
		want    []string
	}{
		{"a transaction of a guard, all its refs", func(g *guard, a, b string) {
			j := g.jgit().session()
			moves := []wire.Line{line(x, a, b), line(unguarded, "", b)}
			tx := j.granted(moves...)
			j.move(moves...)
			j.report(tx)
		}, []string{unguarded + "!", x + "!"}},
		{"one of refs that nobody guards", func(g *guard, a, b string) {
			j := g.jgit().session()
			tx := j.granted(line(unguarded, "", b))
			j.move(line(unguarded, "", b))
			j.report(tx)
		}, []string{unguarded + "!"}},
		{"one that is refused", func(g *guard, a, b string) {
			j := g.jgit().session()
			j.answer(j.announce(line(x, b, a)))
		}, nil},
		{"one that has not been reported", func(g *guard, a, b string) {
			j := g.jgit().session()
			j.granted(line(x, a, b))
			j.move(line(x, a, b))
			g.reconciled()
		}, nil},
		{"one on no list", func(g *guard, a, b string) {
			j := g.jgit().session()
			j.granted(line(x, a, b))
			j.move(line(x, a, b))
			j.session()
			g.resolved()
		}, []string{x}},
		{"one that was listed by its guard, and then reported", func(g *guard, a, b string) {
			j := g.jgit().session()
			tx := j.granted(line(x, a, b))
			j.move(line(x, a, b))
			j.lists(tx, line(x, a, b))
			j.session().report(tx)
		}, []string{x + "!"}},
		{"one of a guard that has died", func(g *guard, a, b string) {
			j := g.jgitChild().session()
			moves := []wire.Line{line(x, a, b), line(unguarded, "", b)}
			j.granted(moves...)
			j.move(moves...)
			j.kill()
			sitetest.Eventually(g.tb, "the guard is forgotten", func() bool { return len(g.status().Sessions) == 0 })
		}, []string{unguarded, x}},
		{"a push", func(g *guard, a, b string) { g.git("update-ref", x, b) }, []string{x}},
		{"a push that deletes", func(g *guard, a, b string) { g.git("update-ref", "-d", x) }, []string{x}},
		{"one of several refs, guarded and not", func(g *guard, a, b string) {
			s := g.session()
			s.must("start", "update "+x+" "+b, "create "+unguarded+" "+b, "prepare")
			s.must("commit")
			s.close()
		}, []string{x, unguarded}},
		{"one of the branch that HEAD points to", func(g *guard, a, b string) {
			g.git("-c", "core.hooksPath=/dev/null", "symbolic-ref", "HEAD", x)
			g.git("update-ref", "HEAD", b)
		}, []string{x}},
		{"one that is aborted", func(g *guard, a, b string) {
			s := g.session()
			s.must("start", "update "+x+" "+b, "create "+unguarded+" "+b, "prepare")
			s.must("abort")
			s.close()
			g.resolved()
		}, nil},
		{"one that is refused, over git", func(g *guard, a, b string) {
			if _, err := g.db.Put(g.tb.Context(), "team/app", x, refdb.Value(b)); err != nil {
				g.tb.Fatal(err)
			}
			g.fails("update-ref", x, g.commit[2])
		}, nil},
		{"one whose git was killed after it had moved its ref", func(g *guard, a, b string) {
			s := g.session()
			if err := s.prepare("update " + x + " " + b + " " + a); err != nil {
				g.tb.Fatal(err)
			}
			g.loose(x, b)
			s.kill()
			g.resolved()
			g.unlock()
		}, []string{x}},
		{"one whose git was killed before", func(g *guard, a, b string) {
			s := g.session()
			if err := s.prepare("update " + x + " " + b + " " + a); err != nil {
				g.tb.Fatal(err)
			}
			s.kill()
			g.resolved()
			g.unlock()
		}, nil},
		{"what mode log lets through", func(g *guard, a, b string) {
			logs(g)
			if _, err := g.db.Put(g.tb.Context(), "team/app", y, refdb.Value(b)); err != nil {
				g.tb.Fatal(err)
			}
			g.git("update-ref", y, a) // it would be refused
			j := g.jgit().session()
			tx := j.granted(line("refs/heads/z", "", a))
			j.move(line("refs/heads/z", "", a))
			j.report(tx)
		}, []string{y, "refs/heads/z!"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			g := sessionTest(t, "\tlockWait = 100ms")
			g.set(x, g.commit[0])
			m := g.reader()
			c.happens(g, g.commit[0], g.commit[1])
			m.lists(c.want...)
		})
	}
}

// What moved, or was to, while no daemon ran, is listed by the next one, for a reader that goes on where it was.
func TestWhatIsListedAfterARestart(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		away func(g *guard, j *jgit, s *session)
		then func(g *guard, j *jgit)
		want string
	}{
		"a guard moves, and dies": {
			func(g *guard, j *jgit, _ *session) { j.move(line(x, g.commit[0], g.commit[1])); j.kill() },
			func(*guard, *jgit) {}, x,
		},
		"a guard moves, and dies later": {
			func(g *guard, j *jgit, _ *session) { j.move(line(x, g.commit[0], g.commit[1])) },
			func(_ *guard, j *jgit) { j.kill() }, x,
		},
		"a push moves, and ends": {
			func(g *guard, _ *jgit, s *session) { g.loose(y, g.commit[1]); s.kill(); g.unlock() },
			func(*guard, *jgit) {}, y,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := sessionTest(t)
			a, b := g.commit[0], g.commit[1]
			g.set(x, a)
			g.set(y, a)
			m := g.reader()
			j := g.jgitChild().session()
			j.granted(line(x, a, b))
			s := g.session()
			if err := s.prepare("update " + y + " " + b + " " + a); err != nil {
				t.Fatal(err)
			}
			m.lists()
			g.halt()
			c.away(g, j, s)
			g.start()
			m.connect()
			c.then(g, j)
			m.waits(c.want)
		})
	}
}

// Rule 19: before the database is told that a move has ended, and before it forgets a decision, the move is on the list: a daemon that dies in
// between finds the intent, or the decision, again.
func TestAMoveIsListedBeforeTheDatabaseIsTold(t *testing.T) {
	t.Parallel()
	for name, happens := range map[string]func(g *guard, a, b string){
		"of a guard's transaction": func(g *guard, a, b string) {
			j := g.jgit().session()
			tx := j.granted(line(x, a, b))
			j.move(line(x, a, b))
			j.report(tx)
		},
		"of a dead guard's": func(g *guard, a, b string) {
			j := g.jgitChild().session()
			j.granted(line(x, a, b))
			j.move(line(x, a, b))
			j.kill()
		},
		"of a push": func(g *guard, a, b string) { g.git("update-ref", x, b) },
		"of a push that was killed": func(g *guard, a, b string) {
			s := g.session()
			if err := s.prepare("update " + x + " " + b + " " + a); err != nil {
				g.tb.Fatal(err)
			}
			g.loose(x, b)
			s.kill()
		},
		"of a decision": func(g *guard, a, b string) {
			s := g.session()
			if err := s.prepare("update " + x + " " + b + " " + a); err != nil {
				g.tb.Fatal(err)
			}
			g.decide(x, driver.TakeNew)
			s.kill()
			g.unlock()
			g.reload()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := idleGuard(t, sessionDatabase(t), "eu-1")
			g.set(x, g.commit[0])
			told := make(chan string, 100)
			g.driver = func(d refdb.Driver) refdb.Driver {
				return &telling{d, strings.HasSuffix(name, "decision"), func() { told <- g.movesFile() }}
			}
			g.start()
			happens(g, g.commit[0], g.commit[1])
			if text := <-told; !strings.Contains(text, x+" "+g.repo+"\n") {
				t.Errorf("the database is told before the list has it:\n%s", text)
			}
			g.resolved()
			g.unlock()
		})
	}
}

// movesFile returns what the list of moves is on the disk.
func (g *guard) movesFile() string {
	paths, err := filepath.Glob(filepath.Join(g.dir, "state/moves/*"))
	var text []byte
	for _, path := range paths {
		some, e := os.ReadFile(path)
		if text = append(text, some...); e != nil {
			err = e
		}
	}
	if err != nil {
		g.tb.Error(err)
	}
	return string(text)
}

// telling is a database that says when it is told of an end, or is to forget a decision.
type telling struct {
	refdb.Driver
	decisions bool
	told      func()
}

func (d *telling) Unwrap() refdb.Driver { return d.Driver }

func (d *telling) Finish(ctx context.Context, r driver.FinishRequest) error {
	if !d.decisions {
		d.told()
	}
	return d.Driver.Finish(ctx, r)
}

func (d *telling) Forget(ctx context.Context, r []driver.LockID) error {
	if d.decisions {
		d.told()
	}
	return d.Driver.Forget(ctx, r)
}

// A decision of an operator may move a ref that nobody else moves then.
func TestWhatAnOperatorHasDecidedIsListed(t *testing.T) {
	t.Parallel()
	for _, decision := range []driver.Decision{driver.KeepOld, driver.TakeNew} {
		for _, moved := range []bool{false, true} {
			t.Run(fmt.Sprintf("%v, moved %v", decision, moved), func(t *testing.T) {
				t.Parallel()
				g := sessionTest(t)
				a, b := g.commit[0], g.commit[1]
				g.set(x, a)
				m := g.reader()
				j := g.jgit().session()
				tx := j.granted(line(x, a, b))
				g.decide(x, decision)
				if moved {
					j.move(line(x, a, b))
				}
				g.reconciled()
				m.lists() // the transaction may still move it
				j.report(tx)
				g.reload()
				sitetest.Eventually(t, "the decision is heeded", func() bool { return g.decided() == 0 })
				m.lists(x+"!", x)
			})
		}
	}
}

// A list that can't be written keeps no ref from moving. Its readers are told so, and compare everything later.
func TestMovesWhileTheListCanNotBeWritten(t *testing.T) {
	t.Parallel()
	g := sessionTest(t)
	a, b := g.commit[0], g.commit[1]
	m := g.reader()
	open := g.reader()
	open.say(wire.After{Place: open.place})
	mend, err := g.daemon.BreakMoves()
	if err != nil {
		t.Fatal(err)
	}
	j := g.jgit().session()
	tx := j.granted(line(x, "", a))
	j.move(line(x, "", a))
	j.report(tx)
	g.git("update-ref", y, b)
	g.has(x, a, a)
	g.has(y, b, b)
	for answer := open.hear(); ; answer = open.hear() {
		if _, ok := answer.(wire.Fault); ok {
			break
		}
		// It was still looking for the files, and found that they are not there.
		reset, ok := answer.(wire.Reset)
		if !ok {
			t.Fatalf("a reader that waits is told %+v", answer)
		}
		open.say(wire.After(reset))
	}
	if _, err := open.conn.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("its connection goes on: %v", err)
	}
	m.connect()
	if answer, ok := m.hear().(wire.Rejected); !ok || answer.Reason != wire.RejectUnwritable {
		t.Errorf("a reader that comes is told %+v", answer)
	}
	if s := g.status(); s.OK() || !strings.Contains(s.MovesError, "can't be written") {
		t.Errorf("the status: %+v", s)
	}
	sitetest.Contains(t, g.log.String(), "moves can't be listed")
	mend()
	sitetest.Eventually(t, "the list can be written again", func() bool { return g.status().MovesError == "" })
	m.connect()
	answer, ok := m.hear().(wire.Reset)
	if !ok {
		t.Fatalf("a reader that goes on is told %+v", answer)
	}
	m.place = answer.Place
	g.git("update-ref", x, b)
	m.lists(x)
	if n := strings.Count(g.log.String(), "moves can't be listed"); n != 1 {
		t.Errorf("the log says it %d times", n)
	}
	sitetest.Contains(t, g.log.String(), "moves can be listed again")
}

// Many move at a time, and the list has all of it.
func TestManyMovesAreListed(t *testing.T) {
	t.Parallel()
	g := sessionTest(t)
	m := g.reader()
	j := g.jgit().session()
	var pushes sync.WaitGroup
	want := map[string]bool{}
	for i := range 20 {
		pushed, announced := fmt.Sprintf("refs/heads/p%d", i), fmt.Sprintf("refs/heads/j%d", i)
		want[pushed], want[announced+"!"] = true, true
		pushes.Go(func() { g.git("update-ref", pushed, g.commit[0]) })
		tx := j.granted(line(announced, "", g.commit[0]))
		j.move(line(announced, "", g.commit[0]))
		j.report(tx)
	}
	pushes.Wait()
	for _, one := range m.listed() {
		if !want[one] {
			t.Errorf("%s is listed", one)
		}
		delete(want, one)
	}
	for one := range want {
		t.Errorf("%s is not listed", one)
	}
}
