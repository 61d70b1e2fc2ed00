package site_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/site/internal/sitetest"
	"github.com/globalrefdb/globalrefdb/test/dbtest/local"
)

// race runs a command of git on every site at once, and says where it succeeded.
func race(sites []*guard, command func(i int) []string) (won []bool) {
	won = make([]bool, len(sites))
	var all sync.WaitGroup
	for i, g := range sites {
		all.Go(func() {
			won[i] = exec.Command("git", append([]string{"--git-dir=" + g.repo}, command(i)...)...).Run() == nil
		})
	}
	all.Wait()
	return won
}

func TestOfTwoSitesExactlyOneWins(t *testing.T) {
	t.Parallel()
	shared := local.SQLite(t)
	sites := []*guard{newGuard(t, shared, "east"), newGuard(t, shared, "west")}
	commits := sites[0].commit
	ref, value := "refs/heads/x", ""
	rounds := 20
	if testing.Short() {
		rounds = 5
	}
	for round := range rounds {
		old := value
		if old == "" {
			old = zero
		}
		// Two different ones, neither of them the value of now.
		to := []string{commits[(2*round)%8], commits[(2*round+1)%8]}
		won := race(sites, func(i int) []string { return []string{"update-ref", ref, to[i], old} })
		if won[0] == won[1] {
			t.Fatalf("round %d: won: %v", round, won)
		}
		winner, loser := 0, 1
		if won[1] {
			winner, loser = 1, 0
		}
		sites[winner].has(ref, to[winner], to[winner])
		sites[loser].has(ref, value, to[winner])
		value = to[winner]
		sites[loser].git("-c", "core.hooksPath=/dev/null", "update-ref", ref, value)
	}
}

func TestReplication(t *testing.T) {
	t.Parallel()
	shared := local.SQLite(t)
	east, west := newGuard(t, shared, "east"), newGuard(t, shared, "west")
	a, b, c := east.commit[0], east.commit[1], east.commit[2]
	for _, g := range []*guard{east, west} {
		g.set("refs/heads/x", a)
	}
	east.git("update-ref", "refs/heads/x", b)
	// A git that a daemon of an earlier version has marked as following is refused, whatever it moves: see the hook's
	// TestAGitOfAnEarlierVersionsFollowerIsRefused. The hook of an earlier version names it to the daemon.
	s := west.session("REFDB_REPLICA=1")
	if err := s.prepare("update refs/heads/x " + b + " " + a); err == nil {
		t.Error("a git of an earlier version's follower is let through")
	}
	s.kill()
	west.unlock()
	before := west.status().Counters
	west.git("-c", "core.hooksPath=/dev/null", "update-ref", "refs/heads/y", b)
	said := west.catchUp("refs/heads/x", "refs/heads/y", "refs/heads/z")
	for _, part := range []string{"result updated ", `"refs/heads/x"`, `result moved "` + b + `" "" "refs/heads/y"`, `result moved "" "" "refs/heads/z"`} {
		sitetest.Contains(t, said, part)
	}
	west.has("refs/heads/y", b, "")
	if said := west.catchUp("refs/heads/x"); !strings.HasPrefix(said, "result moved ") {
		t.Errorf("what needs nothing: %s", said)
	}
	west.has("refs/heads/x", b, b)
	west.git("-c", "core.hooksPath=/dev/null", "update-ref", "refs/heads/x", a)
	own, err := refdb.New(shared.Open(t), refdb.Options{Site: "west"})
	if err != nil {
		t.Fatal(err)
	}
	defer own.Close()
	lock, err := own.TryLock(t.Context(), "team/app", "refs/heads/x")
	if err != nil {
		t.Fatal(err)
	}
	if said := west.catchUp("refs/heads/x"); !strings.HasPrefix(said, "result locked ") {
		t.Errorf("a ref that this site has locked: %s", said)
	}
	if err := lock.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	s = east.session()
	if err := s.prepare("update refs/heads/x " + c + " " + b); err != nil {
		t.Fatal(err)
	}
	// The intent of another site is about the next move.
	if said := west.catchUp("refs/heads/x"); !strings.HasPrefix(said, "result updated ") {
		t.Errorf("under another site's intent: %s", said)
	}
	s.must("commit")
	s.close()
	east.git("update-ref", "-d", "refs/heads/x", c)
	if said := west.catchUp("refs/heads/x"); !strings.HasPrefix(said, "result deleted ") {
		t.Error(said)
	}
	west.has("refs/heads/x", "", zero)
	if after := west.status().Counters; after.Updated != before.Updated || after.Dropped != before.Dropped {
		t.Errorf("replication wrote: %+v, then %+v", before, after)
	}
}

func TestWhatIsNotGuarded(t *testing.T) {
	t.Parallel()
	g := newGuard(t, local.SQLite(t), "eu-1", "[guard]\n\tskipRef = refs/private/*")
	a, b := g.commit[0], g.commit[1]
	for _, ref := range []string{
		"HEAD", "refs/peer/west/heads/x", "refs/private/x", "refs/bisect/bad", "refs/changes/01/1/1", "refs/cache-automerge/ab/cd",
	} {
		g.git("update-ref", "--no-deref", ref, a)
		g.git("update-ref", "--no-deref", ref, b, a)
		if v := g.global(ref); v != "" {
			t.Errorf("%s is %q globally", ref, v)
		}
		if ref != "HEAD" {
			g.git("update-ref", "--no-deref", "-d", ref)
		}
	}
	g.halt()
	cmd := exec.Command("git", "--git-dir="+g.repo, "update-ref", "refs/heads/x", a)
	cmd.Env = append(os.Environ(), impatient)
	if out, err := cmd.CombinedOutput(); err == nil || len(out) == 0 {
		t.Errorf("without a daemon git says %q, %v", out, err)
	}
}

func TestWhatCanNotBeGuardedIsRefused(t *testing.T) {
	t.Parallel()
	g := newGuard(t, local.SQLite(t), "eu-1")
	a := g.commit[0]
	g.git("-c", "core.hooksPath=/dev/null", "symbolic-ref", "refs/heads/sym", "refs/heads/target")
	g.git("-c", "core.hooksPath=/dev/null", "update-ref", "refs/heads/stray", a)
	for _, c := range []struct {
		name, says string
		args       []string
	}{
		{"not UTF-8", "can't be guarded", []string{"update-ref", "refs/heads/\xff", a}},
		{"a symbolic ref", "is a symbolic ref here", []string{"update-ref", "refs/heads/sym", a}},
		{"not in the database", "refs/heads/stray exists here but not in the global database: ask the administrator to run `refdbctl site check`", []string{"update-ref", "refs/heads/stray", g.commit[1]}},
	} {
		t.Run(c.name, func(t *testing.T) {
			g.tb = t
			sitetest.Contains(t, g.fails(c.args...), c.says)
		})
	}
	g.tb = t
	for ref, err := range g.db.Refs(t.Context(), "team/app", "") {
		t.Errorf("in the database: %v, %v", ref, err)
	}
	if n := g.intents(); n != 0 {
		t.Errorf("%d intents are left", n)
	}
	// Elsewhere than below the root nobody is served.
	outside := filepath.Join(t.TempDir(), "x.git")
	sitetest.Run(t, "", "cp", "-a", g.repo, outside)
	out, err := exec.Command("git", "--git-dir="+outside, "update-ref", "refs/heads/x", a).CombinedOutput()
	if err == nil {
		t.Error("a repository that is not configured was served")
	}
	sitetest.Contains(t, string(out), "is neither below site.root nor the path of a [repository]")
}

func TestRepositoriesOfOtherKinds(t *testing.T) {
	t.Parallel()
	g := newGuard(t, local.SQLite(t), "eu-1")
	repo := g.newRepository("sha256", "--object-format=sha256")
	tree := sitetest.Run(t, "", "git", "--git-dir="+repo, "hash-object", "-t", "tree", "-w", "/dev/null")
	id := sitetest.Run(t, "", "git", "--git-dir="+repo, "commit-tree", "-m", "x", tree)
	sitetest.Run(t, "", "git", "--git-dir="+repo, "update-ref", "refs/heads/x", id)
	if v, err := g.db.Get(t.Context(), "sha256", "refs/heads/x"); err != nil || string(v) != id {
		t.Errorf("globally %q, %v, want %q", v, err, id)
	}
	sitetest.Run(t, "", "git", "--git-dir="+repo, "update-ref", "-d", "refs/heads/x", id)
	if v, err := g.db.Get(t.Context(), "sha256", "refs/heads/x"); err != nil || v != refdb.Deleted256 {
		t.Errorf("globally %q, %v", v, err)
	}
	// One with a work tree: its project is the directory's name.
	if err := os.Mkdir(filepath.Join(g.dir, "git/plain"), 0o755); err != nil {
		t.Fatal(err)
	}
	sitetest.Run(t, "", "cp", "-a", g.repo, filepath.Join(g.dir, "git/plain/.git"))
	sitetest.Run(t, "", "git", "--git-dir="+filepath.Join(g.dir, "git/plain/.git"), "config", "--unset", "refdb.projectid")
	g.register("plain")
	sitetest.Run(t, "", "git", "--git-dir="+filepath.Join(g.dir, "git/plain/.git"), "update-ref", "refs/heads/x", g.commit[0])
	if v, err := g.db.Get(t.Context(), "plain", "refs/heads/x"); err != nil || string(v) != g.commit[0] {
		t.Errorf("globally %q, %v", v, err)
	}
}
