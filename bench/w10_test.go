package main

import (
	"path/filepath"
	"slices"
	"testing"
	"time"
)

func TestPushesTakeTurnsOnSchedule(t *testing.T) {
	p := places{sites: 2, repos: 3, pushers: 4}
	pushes := p.randomPushes(20, 10)
	for n, w := range pushes {
		if w.due != time.Duration(n)*100*time.Millisecond || w.site != n%2 || w.branch != pusherBranch(n%2, n/2%4) || w.repo < 0 || w.repo >= 3 {
			t.Errorf("push %d: %+v", n, w)
		}
	}
	if again := p.randomPushes(20, 10); !slices.Equal(pushes, again) {
		t.Error("contestants get different pushes")
	}
}

func TestAPlannedPushMovesItsBranchOneCommitAhead(t *testing.T) {
	p := places{sites: 2, repos: 2, pushers: 1}
	plan, err := makePlan(t.Context(), filepath.Join(t.TempDir(), "client.git"), p.randomPushes(30, 10))
	if err != nil {
		t.Fatal(err)
	}
	if len(plan.number) != len(plan.pushes) {
		t.Errorf("%d pushes have %d commits", len(plan.pushes), len(plan.number))
	}
	type branch struct {
		repo int
		name string
	}
	tips, last := map[branch]string{}, map[branch]int{}
	for n, w := range plan.pushes {
		b := branch{w.repo, w.branch}
		tip, moved := tips[b]
		if !moved {
			tip, last[b] = plan.seed, -1
		}
		if parents, err := git(t.Context(), "--git-dir", plan.client, "log", "-1", "--format=%P", w.commit); err != nil || parents != tip {
			t.Errorf("push %d brings a commit on %q, not on %s: %v", n, parents, tip, err)
		}
		if w.after != last[b] {
			t.Errorf("push %d comes after %d, not %d", n, w.after, last[b])
		}
		tips[b], last[b] = w.commit, n
	}
}

func TestSitesBeginWithTheSameRefs(t *testing.T) {
	p := places{sites: 2, repos: 2, pushers: 3, others: 4}
	_, err := p.with(t.Context(), t.TempDir(), p.randomPushes(4, 10), func(p *places) (sample, error) {
		want := ""
		for site := range p.sites {
			for n := range p.repos {
				refs, err := git(t.Context(), "--git-dir", p.repo(site, n), "for-each-ref")
				if err != nil {
					return nil, err
				}
				if want == "" {
					want = refs
				}
				if refs != want {
					t.Errorf("%s has\n%s\nnot\n%s", p.repo(site, n), refs, want)
				}
				if _, err := git(t.Context(), "--git-dir", p.repo(site, n), "rev-parse", "--verify", "--quiet", pusherBranch(1, 2)); err != nil {
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
	p := places{sites: 2, repos: 1, pushers: 1}
	_, err := p.with(t.Context(), t.TempDir(), p.randomPushes(3, 10), func(p *places) (sample, error) {
		is := func(n int, want bool) {
			t.Helper()
			if there, err := p.isAtOther(n); there != want || err != nil {
				t.Errorf("push %d is there: %t, %v", n, there, err)
			}
		}
		is(0, false)
		is(2, false)
		for _, n := range []int{0, 2} { // both are of the first site's pusher
			if err := p.push(t.Context(), n); err != nil {
				return nil, err
			}
			is(n, false)
		}
		if err := fetchAll(t.Context(), p, other(0)); err != nil {
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
