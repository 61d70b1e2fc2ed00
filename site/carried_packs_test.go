package site_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/globalrefdb/globalrefdb/internal/testprogram"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/site"
	"github.com/globalrefdb/globalrefdb/site/internal/sitetest"
	"github.com/globalrefdb/globalrefdb/site/wire"
	"github.com/globalrefdb/globalrefdb/test/dbtest/local"
)

// A small pack is carried by the preparation, which saves a transaction. What is larger is stored before.
func TestASmallPackIsCarriedByItsPreparation(t *testing.T) {
	t.Parallel()
	shared := sessionDatabase(t)
	g := idleGuard(t, shared, "eu-1", storesAll)
	counts := &packCounts{}
	g.driver = counts.around
	g.start()
	other := newGuard(t, shared, "us-1", storesAll)
	j := g.jgit().session()
	for name, row := range map[string]struct {
		size            int
		stored, carried int32
	}{
		"a small one": {1000, 0, 1},
		"a large one": {largePack, 1, 0},
	} {
		for how, move := range map[string]func(value string){
			"a guard": func(value string) {
				l := line(x, g.zeroed(g.local(x)), value)
				tx := j.granted(l)
				j.move(l)
				j.report(tx)
			},
			"git": func(value string) { g.git("update-ref", x, value) },
		} {
			value := g.newCommit(g.commit[0], row.size)
			counts.reset()
			move(value)
			if s, c, p := counts.stored.Load(), counts.carried.Load(), counts.prepared.Load(); s != row.stored || c != row.carried || p != 1 {
				t.Errorf("%s of %s: %d parts were stored, %d carried, in %d preparations", name, how, s, c, p)
			}
			sitetest.Eventually(t, "the other site follows", func() bool { return other.local(x) == value })
		}
	}
}

// A new ref usually builds on what HEAD points to. That the database has it is read once; after that the preparation compares it, which takes
// no request of its own. If the database has something else by then, the pack is stored as it is.
func TestAPackForANewRef(t *testing.T) {
	t.Parallel()
	shared := sessionDatabase(t)
	g := idleGuard(t, shared, "eu-1", storesAll)
	counts := &packCounts{}
	g.driver = counts.around
	g.git("symbolic-ref", "HEAD", x)
	g.start()
	other := newGuard(t, shared, "us-1", storesAll)
	j := g.jgit().session()
	a := g.commit[0]
	tx := j.granted(line(x, "", a))
	j.move(line(x, "", a))
	j.report(tx)
	unknown := g.newCommit(a, 1000)
	has := func(value string) { g.git("-c", "core.hooksPath=/dev/null", "update-ref", x, value) }
	for n, row := range []struct {
		name                             string
		value                            string
		before                           func() // the preparation
		prepared, carried, stored, looks int32
	}{
		{"on top of HEAD", g.newCommit(a, 1000), nil, 1, 1, 0, 1},
		{"on top of it again", g.newCommit(a, 1000), nil, 1, 1, 0, 0},
		{"at HEAD", a, nil, 1, 0, 0, 1},
		{"on top of what the database never had", g.newCommit(unknown, 1000), func() { has(unknown) }, 1, 1, 0, 1},
		{"at what it never had", unknown, func() { has(unknown) }, 1, 1, 0, 1},
		{"on top of HEAD, which moves in the database", g.newCommit(a, 1000), func() {
			has(a)
			counts.before = func() {
				u := refdb.Update{Ref: x, Old: refdb.Value(a), New: refdb.Value(g.commit[1])}
				if err := g.db.Update(t.Context(), "team/app", []refdb.Update{u}); err != nil {
					t.Error(err)
				}
			}
		}, 2, 1, 1, 0},
	} {
		if row.before != nil {
			row.before()
		}
		l := line(fmt.Sprintf("refs/heads/new%d", n), "", row.value)
		counts.reset()
		tx := j.granted(l)
		if p, c, s, n := counts.prepared.Load(), counts.carried.Load(), counts.stored.Load(), counts.looked.Load(); p != row.prepared || c != row.carried || s != row.stored || n != row.looks {
			t.Errorf("%s: %d preparations carried %d packs, %d were stored, with %d looks; want %d, %d, %d and %d",
				row.name, p, c, s, n, row.prepared, row.carried, row.stored, row.looks)
		}
		j.move(l)
		j.report(tx)
		sitetest.Eventually(t, "the other site follows", func() bool { return other.local(l.Ref) == row.value })
	}
}

// A pack that was carried in vain is carried again with the next try, and dropped at the end if it was stored. One that nothing has carried
// costs no request.
func TestAPackThatWasCarriedInVain(t *testing.T) {
	t.Parallel()
	g := idleGuard(t, sessionDatabase(t), "eu-1", storesAll)
	counts := &packCounts{}
	g.driver = counts.around
	g.start()
	a := g.commit[0]
	j := g.jgit().session()
	tx := j.granted(line(x, "", a))
	j.move(line(x, "", a))
	j.report(tx)
	value := g.newCommit(a, 1000)

	lock, err := g.db.Lock(t.Context(), "team/app", x)
	if err != nil {
		t.Fatal(err)
	}
	counts.reset()
	tx = j.announce(line(x, a, value))
	sitetest.Eventually(t, "two tries", func() bool { return counts.carried.Load() >= 2 })
	if err := lock.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	if m := j.answer(tx); m != (wire.Granted{TX: tx}) {
		t.Fatalf("the daemon said %+v", m)
	}
	j.move(line(x, a, value))
	j.report(tx)
	g.has(x, value, value)

	lock, err = g.db.Lock(t.Context(), "team/app", x)
	if err != nil {
		t.Fatal(err)
	}
	counts.reset()
	tx = j.announce(line(x, value, g.newCommit(value, 1000)))
	sitetest.Eventually(t, "a try", func() bool { return counts.carried.Load() >= 1 })
	j.say(wire.Report{TX: tx}) // it gives up
	for settled := false; !settled; {
		_, settled = j.hear(tx).(wire.Settled)
	}
	sitetest.Eventually(t, "the pack is dropped", func() bool { return counts.dropped.Load() == 1 })
	if err := lock.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	u, err := g.db.Packs().Usage(t.Context(), "team/app")
	if err != nil || u.Unused != 0 {
		t.Errorf("%d packs are left unused, %v", u.Unused, err)
	}

	counts.reset()
	if m := j.answer(j.announce(line(x, a, g.newCommit(value, 1000)))); m == (wire.Granted{}) {
		t.Errorf("the daemon said %+v", m)
	}
	if n, c := counts.dropped.Load(), counts.carried.Load(); n != 0 || c != 0 {
		t.Errorf("a transaction that was refused at once carried %d packs and dropped %d", c, n)
	}
}

// Nothing larger than what git's locks allow is made for a new ref, wherever HEAD's branch is meanwhile, or if the database never had it.
func TestAPackForANewRefIsNoLargerThanWhatIsNew(t *testing.T) {
	t.Parallel()
	for name, moves := range map[string]bool{"the database moves it": true, "the database never had it": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := idleGuard(t, sessionDatabase(t), "eu-1", storesAll)
			counts := &packCounts{}
			g.driver = counts.around
			g.git("symbolic-ref", "HEAD", x)
			g.start()
			j := g.jgit().session()
			big := g.newCommit(g.commit[0], 9<<20)
			move := func(l wire.Line) {
				tx := j.granted(l)
				j.move(l)
				j.report(tx)
			}
			if moves {
				move(line(x, "", big))
				move(line("refs/heads/before", "", g.newCommit(big, 100)))
				counts.before = func() {
					u := refdb.Update{Ref: x, Old: refdb.Value(big), New: refdb.Value(g.commit[1])}
					if err := g.db.Update(t.Context(), "team/app", []refdb.Update{u}); err != nil {
						t.Error(err)
					}
				}
			} else {
				g.git("-c", "core.hooksPath=/dev/null", "update-ref", x, big)
			}
			move(line("refs/heads/new", "", g.newCommit(big, 1000)))
		})
	}
}

// A database that went back may never have had what a pack builds on that waits here.
func TestAPackThatBuildsOnWhatTheDatabaseLost(t *testing.T) {
	t.Parallel()
	shared := local.SQLite(t)
	g := idleGuard(t, shared, "eu-1", storesAll)
	counts := &packCounts{}
	g.driver = counts.around
	g.git("symbolic-ref", "HEAD", x)
	g.options = func(o *site.Options) { o.Journal = nil } // a witness might notice the loss meanwhile, and halt the database
	g.start()
	j := g.jgit().session()
	a := g.commit[0]
	for _, l := range []wire.Line{line(x, "", a), line("refs/heads/before", "", g.newCommit(a, 100))} { // the latter lets the daemon look at x
		tx := j.granted(l)
		j.move(l)
		j.report(tx)
	}
	value := g.newCommit(a, 1000)
	l := line("refs/heads/new", "", value)
	counts.reset()
	counts.before = func() {
		for _, table := range []string{"refs", "history"} {
			shared.Exec(t, `DELETE FROM `+table+` WHERE project = 'team/app' AND ref = '`+x+`'`)
		}
	}
	tx := j.granted(l)
	if p, s := counts.prepared.Load(), counts.stored.Load(); p != 2 || s != 1 {
		t.Errorf("%d preparations, %d parts were stored", p, s)
	}
	page, err := g.db.Packs().Page(t.Context(), driver.PackQuery{Project: "team/app", Limit: 100})
	if err != nil {
		t.Fatal(err)
	}
	if p := page.Packs[len(page.Packs)-1]; !slices.Equal(p.Tips, []string{value}) || len(p.Prerequisites) != 0 {
		t.Errorf("the pack of %v builds on %v", p.Tips, p.Prerequisites)
	}
	j.move(l)
	j.report(tx)
}

// Of the refs of a push one moves in the database meanwhile. The others need no packs of their own.
func TestOneOfTheRefsOfAPushMoves(t *testing.T) {
	t.Parallel()
	g := idleGuard(t, sessionDatabase(t), "eu-1", storesAll)
	counts := &packCounts{}
	g.driver = counts.around
	g.start()
	const refs = 5
	a := g.commit[0]
	name := func(i int) string { return fmt.Sprintf("refs/heads/b%d", i) }
	for i := range refs {
		g.set(name(i), a)
	}
	c := g.client()
	var specs []string
	for i := range refs {
		id := sitetest.Run(t, "", "git", "--git-dir="+c.dir, "-c", "user.name=a", "-c", "user.email=b", "commit-tree", "-p", a, "-m", fmt.Sprint(i), a+"^{tree}")
		specs = append(specs, strings.TrimSpace(id)+":"+name(i))
	}
	counts.reset()
	counts.before = func() {
		u := refdb.Update{Ref: name(refs - 1), Old: refdb.Value(a), New: refdb.Value(g.commit[2])}
		if err := g.db.Update(t.Context(), "team/app", []refdb.Update{u}); err != nil {
			t.Error(err)
		}
	}
	if said, ok := c.push(specs...); ok {
		t.Errorf("the ref that moved was pushed: %s", said)
	}
	for i := range refs - 1 {
		if g.local(name(i)) == a {
			t.Errorf("%s has not moved", name(i))
		}
	}
	// Git that makes a transaction of each ref has the first one's repeated.
	if s := counts.stored.Load(); s > 1 {
		t.Errorf("%d parts were stored in %d preparations", s, counts.prepared.Load())
	}
}

// A pack that leaves many refs is not carried: each preparation would compare them all.
func TestAPackOfManyRefsIsNotCarried(t *testing.T) {
	t.Parallel()
	g := idleGuard(t, sessionDatabase(t), "eu-1", storesAll)
	counts := &packCounts{}
	g.driver = counts.around
	g.start()
	var updates []refdb.Update
	var lines strings.Builder
	var specs []string
	for i := range 120 {
		ref := fmt.Sprintf("refs/heads/b%03d", i)
		updates = append(updates, refdb.Update{Ref: ref, New: refdb.Value(g.commit[0])})
		fmt.Fprintf(&lines, "create %s %s\n", ref, g.commit[0])
		specs = append(specs, "c1:"+ref)
	}
	cmd := exec.Command("git", "--git-dir="+g.repo, "-c", "core.hooksPath=/dev/null", "update-ref", "--stdin")
	cmd.Stdin = strings.NewReader(lines.String())
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	// The daemon follows the database: now it has nothing to move.
	if err := g.db.Update(t.Context(), "team/app", updates); err != nil {
		t.Fatal(err)
	}
	counts.reset()
	if said, ok := g.client().push(append([]string{"--atomic"}, specs...)...); !ok {
		t.Errorf("the pusher reads %.1500s", said)
	}
	if s, c := counts.stored.Load(), counts.carried.Load(); s != 1 || c != 0 {
		t.Errorf("%d parts were stored, %d carried", s, c)
	}
}

// Packs of many update hooks that no snapshot helps come to more than one preparation may carry.
func TestManyPacksForOneTransaction(t *testing.T) {
	t.Parallel()
	g := newGuard(t, sessionDatabase(t), "eu-1", storesAll)
	shell, err := os.ReadFile("/bin/sh")
	git := filepath.Join(t.TempDir(), "git")
	if err == nil {
		err = testprogram.Write(git, shell)
	}
	if err != nil {
		t.Fatal(err)
	}
	var script strings.Builder
	script.WriteString("H=$(git config core.hooksPath); : >lines\n")
	for i := range 20 {
		c := g.newCommit(g.commit[0], 60<<10)
		fmt.Fprintf(&script, "if $H/update refs/heads/n%d %s %s 2>>said; then echo %s %s refs/heads/n%d >>lines; fi\n", i, zero, c, zero, c, i)
	}
	script.WriteString("$H/reference-transaction prepared <lines 2>>said && echo taken >>said\n$H/reference-transaction aborted <lines; wait")
	cmd := exec.Command(git, "-c", script.String())
	cmd.Dir = g.repo
	cmd.Env = append(os.Environ(), "GIT_DIR=.")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
	if said, err := os.ReadFile(filepath.Join(g.repo, "said")); string(said) != "taken\n" {
		t.Errorf("said %q, %v", said, err)
	}
}

// packCounts counts the requests about packs of a daemon.
type packCounts struct {
	refdb.Driver
	driver.PackStore
	stored, carried, prepared, dropped, looks atomic.Int32

	looked atomic.Int32 // looks before the first preparation: later ones may be the follower's

	before func() // the next preparation
}

func (c *packCounts) around(d refdb.Driver) refdb.Driver {
	c.Driver, c.PackStore = d, d.(driver.PackStore)
	return c
}

func (c *packCounts) reset() {
	for _, n := range []*atomic.Int32{&c.stored, &c.carried, &c.prepared, &c.dropped, &c.looks, &c.looked} {
		n.Store(0)
	}
}

func (c *packCounts) StorePart(ctx context.Context, p driver.PackPart) error {
	c.stored.Add(1)
	return c.PackStore.StorePart(ctx, p)
}

func (c *packCounts) DropPack(ctx context.Context, id string) error {
	err := c.PackStore.DropPack(ctx, id)
	c.dropped.Add(1)
	return err
}

func (c *packCounts) States(ctx context.Context, project string, refs []string) ([]driver.State, error) {
	c.looks.Add(1)
	return c.Driver.States(ctx, project, refs)
}

func (c *packCounts) Prepare(ctx context.Context, r driver.PrepareRequest) (driver.Prepared, error) {
	if c.prepared.Add(1) == 1 {
		c.looked.Store(c.looks.Load())
	}
	if before := c.before; before != nil {
		c.before = nil
		before()
	}
	c.carried.Add(int32(len(r.Parts)))
	return c.Driver.Prepare(ctx, r)
}
