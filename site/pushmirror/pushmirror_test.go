package pushmirror_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/globalrefdb/globalrefdb/internal/gitrepo"
	"github.com/globalrefdb/globalrefdb/internal/testprogram"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/site/config"
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
	move := func(ref, value string) { t.Helper(); s.moves(app, ref, value) }
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
	s.says("has not followed")
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
	eu.follow(app, x, a)
	us.follow(app, x, a)
	eu.put(app, x, a)
	w.has(app, x, a)
	eu.stop()
	us.moves(app, x, b)
	w.has(app, x, b)
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
	push := func(moves ...pushmirror.Move) []string {
		t.Helper()
		failed, err := pushmirror.Push(t.Context(), repo, w.mirrored(app), moves...)
		if (len(failed) > 0) != (err != nil) {
			t.Fatalf("failed: %v, %v", failed, err)
		}
		return failed
	}
	push(pushmirror.Move{x, "", a}, pushmirror.Move{y, "", a})
	push(pushmirror.Move{x, a, b})
	if failed := push(pushmirror.Move{x, a, c}, pushmirror.Move{y, a, ""}, pushmirror.Move{"refs/heads/z", "", c}); !slices.Equal(failed, []string{x}) {
		t.Errorf("not moved: %v", failed)
	}
	if failed := push(pushmirror.Move{x, a, ""}, pushmirror.Move{"refs/heads/z", "", b}); len(failed) != 2 {
		t.Errorf("not moved: %v", failed)
	}
	w.has(app, x, b, "refs/heads/z", c)
}

// A site that read the database, was stopped, and continues when the ref has moved, does not push the old value.
func TestAValueThatWasReadEarlierIsNotPushed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.site("eu")
	s.project(app)
	a, b := commit(app, s), commit(app, s)
	sitetest.GitIn(t, w.mirrored(app), "fetch", "--quiet", s.copy(app), b)
	s.moves(app, x, a)
	var calls atomic.Int32
	s.mayAct = func(context.Context) error {
		if calls.Add(1) == 2 { // behind the read of the database: another site has pushed, and moved the mirror
			s.put(app, x, b)
			sitetest.GitIn(t, w.mirrored(app), "update-ref", x, b)
		}
		return nil
	}
	s.start()
	sitetest.Eventually(t, "it has compared again", func() bool {
		if calls.Load() < 4 {
			return false
		}
		now := s.Status()[0] // after a push of the old value the project waits for the copy
		return now.Waiting == 0 || len(now.Behind) == 1 && strings.Contains(now.Behind[0].Reason, "has not followed")
	})
	if refs := w.refs(app); refs != x+" "+b {
		t.Errorf("the mirror has %s", refs)
	}
}

func TestARefusedRefHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.site("eu", "ref = refs/*")
	s.project(app)
	sitetest.GitIn(t, w.mirrored(app), "config", "receive.hideRefs", "refs/heads/hidden")
	a := commit(app, s)
	for _, ref := range []string{"refs/heads/hidden", x} {
		s.moves(app, ref, a)
	}
	s.start()
	w.has(app, x, a)
	s.says("refs/heads/hidden: [remote rejected] (deny")
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
		s.moves(project, x, id)
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
	s.moves(app, x, a)
	admitted := make(chan struct{})
	s.mayAct = func(context.Context) error {
		select {
		case <-admitted:
			return nil
		default:
			return errors.New("the server is not admitted")
		}
	}
	s.start()
	s.says("the server is not admitted")
	if refs := w.refs(app); refs != "" {
		t.Errorf("the mirror has %s", refs)
	}
	close(admitted)
	w.has(app, x, a)
}

// The next site begins with what has changed since the recorded cursor.
func TestTheCursorIsContinued(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.site("eu")
	s.project(app)
	end, err := s.db.HistoryEnd(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for value, want := range map[string]refdb.Cursor{end.String(): end, "nonsense": {}} {
		s.put(presence.Project, pushmirror.RefPrefix+"out", value)
		got, err := s.db.Grants().Acquire(t.Context(), "eu/x", pushmirror.StaleAfter, presence.Project, pushmirror.RefPrefix+"out")
		if err != nil {
			t.Fatal(err)
		}
		if after := pushmirror.NewTerm(s.mirrors(), s.db, got).Cursor(); after != want {
			t.Errorf("it continues after %v, want %v", after, want)
		}
		if err := s.db.Grants().Release(t.Context(), got.Grant); err != nil {
			t.Fatal(err)
		}
	}
}

// Each term compares everything: what an earlier term missed, or what somebody has moved at the mirror.
func TestATermBeginsWithAComparison(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.site("eu")
	s.project(app)
	a, b := commit(app, s), commit(app, s)
	s.moves(app, x, b)
	s.start()
	w.has(app, x, b)
	s.stop()
	sitetest.GitIn(t, w.mirrored(app), "fetch", "--quiet", s.copy(app), a+":"+y)
	sitetest.GitIn(t, w.mirrored(app), "update-ref", x, a)
	s.start()
	w.has(app, x, b, y, a)
}

func TestAProjectIsPushedOnceItsCopyIsHere(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	eu, us := w.site("eu"), w.site("us")
	w.init(w.mirrored("new"))
	eu.init(eu.copy("new"))
	us.start()
	sitetest.Eventually(t, "us pushes", func() bool { all := us.Status(); return len(all) == 1 && all[0].Pushes })
	eu.project("new")
	id := commit("new", eu)
	eu.moves("new", x, id)
	us.says("refdbctl site clone new")
	sitetest.GitIn(t, "/", "clone", "--quiet", "--mirror", eu.copy("new"), us.copy("new"))
	w.has("new", x, id)
}

// The daemon may know the row of the removed project only.
func TestAProjectThatIsMadeAnewIsPushed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.site("eu")
	row, err := s.db.Projects().Put(t.Context(), driver.Project{Project: app, ID: "old", Rules: "ref refs/*", Mode: config.Removed, Store: config.StoreAll})
	if err != nil {
		t.Fatal(err)
	}
	s.start()
	sitetest.Eventually(t, "it pushes", func() bool { all := s.Status(); return len(all) == 1 && all[0].Pushes && all[0].Waiting == 0 })
	row.ID, row.Mode = "new", config.Enforce
	if _, err := s.db.Projects().Put(t.Context(), row); err != nil {
		t.Fatal(err)
	}
	a := commit(app, s)
	s.moves(app, x, a)
	w.has(app, x, a)
}

func TestANewAddressGetsEverything(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.site("eu")
	s.project(app)
	a := commit(app, s)
	s.moves(app, x, a)
	s.start()
	w.has(app, x, a)
	w.outside = t.TempDir()
	w.init(w.mirrored(app))
	s.state.SetConfig(s.configured())
	w.has(app, x, a)
}

// Git would move the ref whose name ends in the name that is pushed.
func TestAShadowedRefIsNotPushed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.site("eu")
	s.project(app)
	a, b := commit(app, s), commit(app, s)
	sitetest.GitIn(t, w.mirrored(app), "fetch", "--quiet", s.copy(app), a+":refs/heads/"+x)
	for _, ref := range []string{x, y} {
		s.moves(app, ref, b)
	}
	s.start()
	w.has(app, "refs/heads/"+x, a, y, b)
	s.says("delete it there")
	sitetest.GitIn(t, w.mirrored(app), "update-ref", "-d", "refs/heads/"+x)
	w.has(app, x, b, y, b)
}

// Git gives up a push as a whole if it lacks an object.
func TestARefThatGitCantPushHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.site("eu")
	s.project(app)
	a := commit(app, s)
	lacks := strings.Repeat("1", len(a))
	for _, ref := range []string{"refs/heads/a", x, y, "refs/heads/z"} {
		s.moves(app, ref, a)
	}
	s.put(app, x, lacks)
	if err := os.WriteFile(filepath.Join(s.copy(app), x), []byte(lacks+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	s.start()
	w.has(app, "refs/heads/a", a, y, a, "refs/heads/z", a)
	s.says("pushing " + x)
}

// Neither git nor what git has started outlives the term.
func TestNoProcessIsLeft(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.site("eu", "url = ssh://nowhere/{project}.git")
	s.project(app)
	a := commit(app, s)
	s.moves(app, x, a)
	pid := filepath.Join(t.TempDir(), "pid")
	ssh := filepath.Join(t.TempDir(), "ssh")
	if err := testprogram.Write(ssh, []byte("#!/bin/sh\ntrap '' TERM\necho $$ > "+pid+".new\nmv "+pid+".new "+pid+"\nexec sleep 1000000\n")); err != nil {
		t.Fatal(err)
	}
	sitetest.GitIn(t, s.copy(app), "config", "core.sshCommand", ssh)
	s.start()
	var process int
	sitetest.Eventually(t, "ssh runs", func() bool {
		text, err := os.ReadFile(pid)
		if err == nil {
			process, err = strconv.Atoi(strings.TrimSpace(string(text)))
		}
		return err == nil
	})
	s.stop()
	if err := syscall.Kill(process, 0); err == nil {
		sitetest.Eventually(t, "ssh has ended", func() bool { return syscall.Kill(process, 0) != nil })
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
		held := pushmirror.NewTerm(s.mirrors(), db, got)
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
