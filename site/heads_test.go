package site_test

import (
	"strings"
	"testing"

	"github.com/globalrefdb/globalrefdb/site"
	"github.com/globalrefdb/globalrefdb/site/internal/sitetest"
	"github.com/globalrefdb/globalrefdb/site/wire"
)

// What a guard lets HEAD point to, the database knows, and the other sites follow. If the database can't be told then, it is told later.
func TestHEADFollowsAGuardAtTheOtherSites(t *testing.T) {
	t.Parallel()
	shared := sessionDatabase(t)
	hook := func(o *site.Options) { o.Hook = sitetest.Hook() }
	g := newGuard(t, shared, "eu-1", storesAll)
	other := idleGuard(t, shared, "us-1", storesAll+"\n\tautoClone = true")
	other.options = hook
	other.start()
	g.git("update-ref", x, g.commit[0])
	g.git("update-ref", y, g.commit[0])
	m := other.reader()
	sitetest.Eventually(t, "the other site has the branches", func() bool { return there(other.repo) && other.local(y) == g.commit[0] })
	j := g.jgit().session()
	move := func(to string) {
		t.Helper()
		before := "ref:" + strings.TrimSpace(g.git("symbolic-ref", "HEAD"))
		tx := j.granted(wire.Line{Old: before, New: "ref:" + to, Ref: "HEAD"})
		g.git("symbolic-ref", "HEAD", to)
		j.report(tx)
	}
	follows := func(to string) {
		t.Helper()
		sitetest.Eventually(t, "the other site's HEAD follows", func() bool { return strings.TrimSpace(other.git("symbolic-ref", "HEAD")) == to })
	}
	move(x)
	if got := g.global("HEAD"); got != "ref: "+x {
		t.Errorf("the database has %q", got)
	}
	follows(x)
	m.waits("HEAD")

	lock, err := other.db.TryLock(t.Context(), "team/app", "HEAD")
	if err != nil {
		t.Fatal(err)
	}
	move(y)
	if got := g.global("HEAD"); got != "ref: "+x {
		t.Errorf("while somebody has the lock the database has %q", got)
	}
	if err := lock.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	g.reconciled()
	follows(y)

	// A move that was not made.
	tx := j.granted(wire.Line{Old: "ref:" + y, New: "ref:" + x, Ref: "HEAD"})
	j.report(tx)
	g.reconciled()
	if got := g.global("HEAD"); got != "ref: "+y {
		t.Errorf("after a move that failed the database has %q", got)
	}
}

// Where the database does not keep objects nobody follows: HEAD is each site's own.
func TestHEADStaysHereIfNobodyFollows(t *testing.T) {
	t.Parallel()
	g := sessionTest(t)
	j := g.jgit().session()
	tx := j.granted(wire.Line{Old: "ref:refs/heads/main", New: "ref:" + x, Ref: "HEAD"})
	g.git("symbolic-ref", "HEAD", x)
	j.report(tx)
	if got := g.global("HEAD"); got != "" {
		t.Errorf("the database has %q", got)
	}
}

// A new project's HEAD is recorded when its creation is complete. One that comes to nothing leaves none.
func TestHEADOfANewProject(t *testing.T) {
	t.Parallel()
	g := created(t)
	j := g.jgit().session()
	for _, complete := range []bool{false, true} {
		project := map[bool]string{false: "new/none", true: "new/one"}[complete]
		head := func() string {
			t.Helper()
			v, err := g.db.Get(t.Context(), project, "HEAD")
			if err != nil {
				t.Fatal(err)
			}
			return string(v)
		}
		tx := j.mayCreate(project)
		commit := j.make(project)
		first := j.granted(wire.Line{Old: "ref:refs/heads/master", New: "ref:" + x, Ref: "HEAD"})
		g.git("symbolic-ref", "HEAD", x)
		j.report(first)
		if got := head(); got != "" {
			t.Errorf("before the creation is settled the database has %q", got)
		}
		if !complete {
			j.report(tx)
			g.nothingLeft(project)
			g.reconciled()
			if got := head(); got != "" {
				t.Errorf("after a creation that came to nothing the database has %q", got)
			}
			continue
		}
		move := line(metaConfig, "", commit)
		second := j.granted(move)
		j.move(move)
		j.report(second)
		j.report(tx)
		if got := head(); got != "ref: "+x {
			t.Errorf("the database has %q", got)
		}
	}
}
