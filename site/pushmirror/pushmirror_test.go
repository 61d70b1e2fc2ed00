package pushmirror_test

import (
	"context"
	"errors"
	"maps"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/globalrefdb/globalrefdb/internal/gitrepo"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/site/internal/sitetest"
	"github.com/globalrefdb/globalrefdb/site/presence"
	"github.com/globalrefdb/globalrefdb/site/pushmirror"
)

func TestWhatTheDatabaseHoldsReachesTheMirror(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.site("eu")
	s.project(app)
	a, b := commit(app, s), commit(app, s)
	own := strings.TrimSpace(sitetest.GitIn(t, w.mirrored(app), "-c", "user.name=n", "-c", "user.email=e", "commit-tree", "-m", "own", "4b825dc642cb6eb9a060e54bf8d69288fbee4904"))
	sitetest.GitIn(t, w.mirrored(app), "update-ref", "refs/heads/own", own)
	move := func(ref, value string) {
		t.Helper()
		s.follow(app, ref, value)
		s.put(app, ref, value)
	}
	move(x, a)
	move("refs/notes/n", a) // not among the refs that are pushed
	s.start()
	w.has(app, "refs/heads/own", own, x, a)
	move(y, a)
	w.has(app, "refs/heads/own", own, x, a, y, a)
	move(x, b) // no fast-forward
	w.has(app, "refs/heads/own", own, x, b, y, a)
	move(y, string(refdb.Deleted))
	w.has(app, "refs/heads/own", own, x, b)
	move(x, string(refdb.Deleted))
	move(x+"/z", a) // a name in whose place there was another one
	w.has(app, "refs/heads/own", own, x+"/z", a)
}

// The copy of a site that has not followed yet has an old value, or lacks objects.
func TestAValueThatHasNotArrivedHereIsNotPushed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.site("eu")
	s.project(app)
	a, b := commit(app, s), commit(app, s)
	s.follow(app, x, a)
	s.put(app, x, b)
	s.start()
	sitetest.Eventually(t, "the status says why", func() bool {
		all := s.Status()
		return len(all) == 1 && len(all[0].Behind) == 1 && strings.Contains(all[0].Behind[0].Reason, "has not followed")
	})
	if refs := w.refs(app); refs != "" {
		t.Errorf("the mirror has %s", refs)
	}
	s.follow(app, x, b)
	w.has(app, x, b)
	sitetest.Eventually(t, "the status has nothing of it", func() bool { return len(s.Status()[0].Behind) == 0 })
}

func TestOneSiteAtATimePushes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	eu, us := w.site("eu"), w.site("us")
	eu.project(app)
	a, b := commit(app, eu, us), commit(app, eu, us)
	pushes := func(s *site) bool { all := s.Status(); return len(all) == 1 && all[0].Pushes }
	eu.start()
	sitetest.Eventually(t, "eu pushes", func() bool { return pushes(eu) })
	us.start()
	sitetest.Eventually(t, "us knows who pushes", func() bool { all := us.Status(); return len(all) == 1 && all[0].Site == "eu" && all[0].Error == "" })
	if pushes(us) {
		t.Error("both push")
	}
	eu.follow(app, x, a)
	us.follow(app, x, a)
	eu.put(app, x, a)
	w.has(app, x, a)
	eu.stop()
	us.follow(app, x, b)
	us.put(app, x, b)
	w.has(app, x, b)
	if !pushes(us) {
		t.Error("eu has stopped, and us does not push")
	}
}

// A site that was stopped, and goes on when another one pushes, does not move the mirror back.
func TestALatePushMovesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.site("eu")
	a, b, c := commit(app, s), commit(app, s), commit(app, s)
	repo, err := gitrepo.OpenDir(s.copy(app))
	if err != nil {
		t.Fatal(err)
	}
	push := func(moves ...pushmirror.Move) map[string]bool {
		t.Helper()
		failed, err := pushmirror.Push(t.Context(), repo, w.mirrored(app), moves...)
		if (len(failed) > 0) != (err != nil) {
			t.Fatalf("failed: %v, %v", failed, err)
		}
		return failed
	}
	push(pushmirror.Move{x, "", a}, pushmirror.Move{y, "", a})
	push(pushmirror.Move{x, a, b})
	if failed := push(pushmirror.Move{x, a, c}, pushmirror.Move{y, a, ""}, pushmirror.Move{"refs/heads/z", "", c}); !maps.Equal(failed, map[string]bool{x: true}) {
		t.Errorf("not moved: %v", failed)
	}
	if failed := push(pushmirror.Move{x, a, ""}, pushmirror.Move{"refs/heads/z", "", b}); len(failed) != 2 {
		t.Errorf("not moved: %v", failed)
	}
	w.has(app, x, b, "refs/heads/z", c)
}

func TestARefusedRefHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.site("eu", "ref = refs/*")
	s.project(app)
	sitetest.GitIn(t, w.mirrored(app), "config", "receive.hideRefs", "refs/heads/hidden")
	a := commit(app, s)
	for _, ref := range []string{"refs/heads/hidden", x} {
		s.follow(app, ref, a)
		s.put(app, ref, a)
	}
	s.start()
	w.has(app, x, a)
	sitetest.Eventually(t, "the status says why", func() bool {
		all := s.Status()
		return len(all[0].Behind) == 1 && strings.Contains(all[0].Behind[0].Reason, "refs/heads/hidden") && strings.Contains(all[0].Behind[0].Reason, "deny")
	})
	sitetest.GitIn(t, w.mirrored(app), "config", "--unset", "receive.hideRefs")
	w.has(app, "refs/heads/hidden", a, x, a)
}

func TestTwoProjectsWithOneAddressAreNotPushed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.site("eu", "url = "+w.outside+"/{dashed}.git")
	w.init(w.mirrored("a-b"))
	for _, project := range []string{"a/b", "a-b"} {
		s.init(s.copy(project))
		s.project(project)
		id := commit(project, s)
		s.follow(project, x, id)
		s.put(project, x, id)
	}
	s.start()
	sitetest.Eventually(t, "the status says so of both", func() bool {
		all := s.Status()
		return len(all) == 1 && len(all[0].Behind) == 2 && strings.Contains(all[0].Behind[0].Reason, "same address")
	})
	if refs := w.refs("a-b"); refs != "" {
		t.Errorf("the mirror has %s", refs)
	}
}

// While the database may be an earlier state, nothing is pushed.
func TestNothingIsPushedWhileTheDatabaseIsNotToBeActedOn(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.site("eu")
	s.project(app)
	a := commit(app, s)
	s.follow(app, x, a)
	s.put(app, x, a)
	admitted := make(chan struct{})
	s.MayAct = func(context.Context) error {
		select {
		case <-admitted:
			return nil
		default:
			return errors.New("the server is not admitted")
		}
	}
	s.start()
	sitetest.Eventually(t, "the status says why", func() bool {
		all := s.Status()
		return len(all) == 1 && len(all[0].Behind) == 1 && all[0].Behind[0].Reason == "the server is not admitted"
	})
	if refs := w.refs(app); refs != "" {
		t.Errorf("the mirror has %s", refs)
	}
	close(admitted)
	w.has(app, x, a)
}

// The next site continues where the last one was; what was not pushed is compared.
func TestTheStateIsContinued(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		s      pushmirror.State
		cursor bool
	}{
		"nothing is behind":  {pushmirror.State{Cursor: "c"}, true},
		"projects are":       {pushmirror.State{Cursor: "c", Behind: []string{"a", "b"}}, true},
		"too many are":       {pushmirror.State{Cursor: "c", Behind: []string{strings.Repeat("a", driver.MaxValueBytes)}}, false},
		"nothing was pushed": {pushmirror.State{}, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			s := w.site("eu")
			s.project(app)
			end, err := s.db.HistoryEnd(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if c.s.Cursor != "" {
				c.s.Cursor = end.String()
			}
			s.put(presence.Project, pushmirror.RefPrefix+"out", string(pushmirror.ValueOf(c.s)))
			got, err := s.db.Grants().Acquire(t.Context(), "eu/x", pushmirror.StaleAfter, presence.Project, pushmirror.RefPrefix+"out")
			if err != nil {
				t.Fatal(err)
			}
			after, compared := pushmirror.NewTerm(s.Mirrors, s.db, got).Cursor()
			want := c.s.Behind
			if !c.cursor {
				want, end = nil, refdb.Cursor{}
			}
			if after != end || strings.Join(compared, " ") != strings.Join(want, " ") {
				t.Errorf("it continues after %v with %d projects", after, len(compared))
			}
		})
	}
}

// A grant that an operator has ended, or that could not be extended, ends the term.
func TestASiteThatLosesTheGrantPushesNoLonger(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.site("eu")
	synctest.Test(t, func(t *testing.T) {
		db, err := refdb.New(w.shared.Open(), refdb.Options{Site: "eu"})
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		got, err := db.Grants().Acquire(t.Context(), "eu/x", pushmirror.StaleAfter, presence.Project, pushmirror.RefPrefix+"out")
		if err != nil {
			t.Fatal(err)
		}
		held := pushmirror.NewTerm(s.Mirrors, db, got)
		ended := make(chan error)
		go func() { ended <- held.Keep(t.Context()) }()
		time.Sleep(10 * pushmirror.StaleAfter)
		synctest.Wait()
		select {
		case err := <-ended:
			t.Fatalf("it has ended: %v", err)
		default:
		}
		if err := db.Grants().Release(t.Context(), got.Grant); err != nil {
			t.Fatal(err)
		}
		if err := <-ended; !errors.Is(err, refdb.ErrLockLost) {
			t.Errorf("it ended with %v", err)
		}
	})
}
