package site_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/site"
	"github.com/globalrefdb/globalrefdb/site/internal/sitetest"
	"github.com/globalrefdb/globalrefdb/site/wire"
)

const (
	storesAll = "[site]\n\tstore = all"
	largePack = 200 << 10 // bytes that a preparation does not carry
)

// newCommit writes a commit with a file of that many bytes that no other repository has. Git can't compress it.
func (g *guard) newCommit(parent string, size int) string {
	g.tb.Helper()
	content := make([]byte, size)
	rand.Read(content)
	cmd := exec.Command("git", "--git-dir="+g.repo, "hash-object", "-w", "--stdin")
	cmd.Stdin = bytes.NewReader(content)
	blob, err := cmd.Output()
	if err != nil {
		g.tb.Fatal(err)
	}
	cmd = exec.Command("git", "--git-dir="+g.repo, "mktree")
	cmd.Stdin = strings.NewReader("100644 blob " + strings.TrimSpace(string(blob)) + "\tf\n")
	tree, err := cmd.Output()
	if err != nil {
		g.tb.Fatal(err)
	}
	return strings.TrimSpace(sitetest.Run(g.tb, "", "git", "--git-dir="+g.repo, "commit-tree", "-m", "new", "-p", parent, strings.TrimSpace(string(tree))))
}

// K7: the objects of a transaction are in the database before its refs move, and other sites follow.
func TestTheObjectsOfATransactionAreStoredBeforeItsOK(t *testing.T) {
	t.Parallel()
	shared := sessionDatabase(t)
	g := newGuard(t, shared, "eu-1", storesAll)
	a := g.commit[0]
	j := g.jgit().session()
	tx := j.granted(line(x, "", a))
	j.move(line(x, "", a))
	j.report(tx)
	// The other site has nothing but the database.
	other := idleGuard(t, shared, "us-1", storesAll)
	other.start()
	fresh := g.newCommit(a, 100)
	tx = j.granted(line(x, a, fresh))
	packs, err := g.db.Packs().Page(t.Context(), driver.PackQuery{Project: "team/app", Limit: 100})
	if err != nil || len(packs.Packs) == 0 {
		t.Errorf("with its OK the database has %d used packs, %v", len(packs.Packs), err)
	}
	j.move(line(x, a, fresh))
	j.report(tx)
	g.has(x, fresh, fresh)
	sitetest.Eventually(t, "the other site follows", func() bool { return other.local(x) == fresh })
	// A session there is behind for a moment at most.
	o := other.jgit()
	o.session()
	tx = o.granted(line(x, fresh, a))
	o.move(line(x, fresh, a))
	o.report(tx)
	sitetest.Eventually(t, "the first site follows", func() bool { return g.local(x) == a })
}

// The guard is told to wait while its objects are stored. The time that this takes is not that of its limit.
func TestAGuardIsToldToWaitWhileItsObjectsAreStored(t *testing.T) {
	t.Parallel()
	g := idleGuard(t, sessionDatabase(t), "eu-1", storesAll)
	slow := &slowPacks{gate: make(chan struct{})}
	g.driver = func(d refdb.Driver) refdb.Driver {
		slow.Driver, slow.PackStore = d, d.(driver.PackStore)
		return slow
	}
	g.start()
	j := g.jgit().session()
	// On a busy machine what comes after storing may take longer than a short limit.
	for try, limit := range []time.Duration{1500 * time.Millisecond, 5 * time.Second, 20 * time.Second, time.Minute} {
		tx := fmt.Sprint("slow", try)
		began := time.Now()
		j.say(wire.Announce{TX: tx, Limit: limit, Dir: g.repo, Lines: []wire.Line{line(x, "", g.newCommit(g.commit[0], largePack))}})
		var m any
		for waited := 0; waited < 3 || time.Since(began) < limit; waited++ {
			m = j.hear(tx)
			if _, is := m.(wire.WaitOn); !is {
				break
			}
		}
		if _, is := m.(wire.WaitOn); is {
			slow.gate <- struct{}{}
			m = j.answer(tx)
		}
		j.report(tx)
		if m == any(wire.Granted{TX: tx}) {
			return
		}
		t.Logf("with a limit of %s the daemon said %+v", limit, m)
	}
	t.Error("no announcement had its OK whose objects took longer than its limit")
}

// What is larger than site.packLimit is refused, and what was stored in vain is dropped.
func TestATransactionWithMoreThanThePackLimit(t *testing.T) {
	t.Parallel()
	g := newGuard(t, sessionDatabase(t), "eu-1", storesAll+"\n\tpackLimit = 1m")
	j := g.jgit().session()
	cmd := exec.Command("sh", "-c", "head -c 3000000 /dev/urandom | git --git-dir="+g.repo+" hash-object -w --stdin")
	blob, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	if m := j.answer(j.announce(line("refs/heads/blob", "", strings.TrimSpace(string(blob))))); m != (refusedAs{"final", "objects"}) {
		t.Errorf("the daemon said %+v", m)
	}
}

// What moves a ref without a push brings little: git has it locked meanwhile. Who does it reads what to do instead.
func TestMuchThatMovesWithoutAPush(t *testing.T) {
	t.Parallel()
	g := newGuard(t, sessionDatabase(t), "eu-1", storesAll)
	value := g.newCommit(g.commit[0], 9<<20)
	if said := g.fails("update-ref", x, value); !strings.Contains(said, "more than 8 MiB can't be stored while refs are locked: nothing was changed; use git push") {
		t.Errorf("git said %q", said)
	}
	if said, ok := g.client().push("c0:" + x); !ok {
		t.Errorf("a push: %s", said)
	}
}

type slowPacks struct {
	refdb.Driver
	driver.PackStore
	gate chan struct{}
}

func (s *slowPacks) StorePart(ctx context.Context, p driver.PackPart) error {
	<-s.gate
	return s.PackStore.StorePart(ctx, p)
}

// A repository that a guard makes gets what site.store says, and another site that clones by itself has it.
func TestWhatAGuardMakesComesToOtherSites(t *testing.T) {
	t.Parallel()
	shared := sessionDatabase(t)
	hook := func(o *site.Options) { o.Hook = sitetest.Hook() }
	g := idleGuard(t, shared, "eu-1", storesAll)
	g.options = hook
	g.start()
	other := idleGuard(t, shared, "us-1", storesAll+"\n\tautoClone = true")
	other.options = hook
	other.start()
	g.repo = filepath.Join(g.dir, "git", "made.git")
	sitetest.Run(t, "", "git", "init", "--quiet", "--bare", g.repo)
	sitetest.Run(t, "", "git", "--git-dir="+g.repo, "hash-object", "-t", "tree", "-w", "/dev/null")
	a := strings.TrimSpace(sitetest.Run(t, "", "git", "--git-dir="+g.repo, "commit-tree", "-m", "x", "4b825dc642cb6eb9a060e54bf8d69288fbee4904"))
	j := g.jgit().session()
	tx := j.granted(line("refs/meta/config", "", a))
	j.move(line("refs/meta/config", "", a))
	j.report(tx)
	other.repo = filepath.Join(other.dir, "git", "made.git")
	sitetest.Eventually(t, "the other site has it", func() bool { return other.local("refs/meta/config") == a })
}
