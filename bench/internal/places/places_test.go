package places

import (
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/bench/internal/command"
)

func TestPushesTakeTurnsOnSchedule(t *testing.T) {
	p := Places{Sites: 2, Repos: 3, Pushers: 4}
	pushes := p.RandomPushes(20, 10)
	for n, w := range pushes {
		if w.Due != time.Duration(n)*100*time.Millisecond || w.Site != n%2 || w.Branch != PusherBranch(n%2, n/2%4) || w.Repo < 0 || w.Repo >= 3 {
			t.Errorf("push %d: %+v", n, w)
		}
	}
	if again := p.RandomPushes(20, 10); !slices.Equal(pushes, again) {
		t.Error("contestants get different pushes")
	}
}

func TestAPlannedPushMovesItsBranchOneCommitAhead(t *testing.T) {
	p := Places{Sites: 2, Repos: 2, Pushers: 1}
	plan, err := makePlan(t.Context(), filepath.Join(t.TempDir(), "client.git"), p.RandomPushes(30, 10))
	if err != nil {
		t.Fatal(err)
	}
	if len(plan.number) != len(plan.Pushes) {
		t.Errorf("%d pushes have %d commits", len(plan.Pushes), len(plan.number))
	}
	type branch struct {
		repo int
		name string
	}
	tips, last := map[branch]string{}, map[branch]int{}
	for n, w := range plan.Pushes {
		b := branch{w.Repo, w.Branch}
		tip, moved := tips[b]
		if !moved {
			tip, last[b] = plan.seed, -1
		}
		if parents, err := command.Git(t.Context(), "--git-dir", plan.client, "log", "-1", "--format=%P", w.commit); err != nil || parents != tip {
			t.Errorf("push %d brings a commit on %q, not on %s: %v", n, parents, tip, err)
		}
		if w.After != last[b] {
			t.Errorf("push %d comes after %d, not %d", n, w.After, last[b])
		}
		tips[b], last[b] = w.commit, n
	}
}

func TestSitesBeginWithTheSameRefs(t *testing.T) {
	p := Places{Sites: 2, Repos: 2, Pushers: 3, Others: 4}
	_, err := With(t.Context(), p, t.TempDir(), p.RandomPushes(4, 10), func(p *Places) (any, error) {
		want := ""
		for site := range p.Sites {
			for n := range p.Repos {
				refs, err := command.Git(t.Context(), "--git-dir", p.Repo(site, n), "for-each-ref")
				if err != nil {
					return nil, err
				}
				if want == "" {
					want = refs
				}
				if refs != want {
					t.Errorf("%s has\n%s\nnot\n%s", p.Repo(site, n), refs, want)
				}
				if _, err := command.Git(t.Context(), "--git-dir", p.Repo(site, n), "rev-parse", "--verify", "--quiet", PusherBranch(1, 2)); err != nil {
					t.Error(err)
				}
			}
		}
		return nil, nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestAPushIsAtTheOtherSiteOnceItsBranchHasItOrALaterOne(t *testing.T) {
	p := Places{Sites: 2, Repos: 1, Pushers: 1}
	_, err := With(t.Context(), p, t.TempDir(), p.RandomPushes(3, 10), func(p *Places) (any, error) {
		is := func(n int, want bool) {
			t.Helper()
			if there, err := p.isAtOther(n); there != want || err != nil {
				t.Errorf("push %d is there: %t, %v", n, there, err)
			}
		}
		is(0, false)
		is(2, false)
		for _, n := range []int{0, 2} { // both are of the first site's pusher
			if err := p.Push(t.Context(), n); err != nil {
				return nil, err
			}
			is(n, false)
		}
		if err := FetchAll(t.Context(), p, Other(0)); err != nil {
			return nil, err
		}
		is(0, true)
		is(2, true)
		is(1, false)
		return nil, nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
