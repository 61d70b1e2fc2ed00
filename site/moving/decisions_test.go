package moving_test

import (
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/site/claims"
	"github.com/globalrefdb/globalrefdb/site/internal/filelock"
	"github.com/globalrefdb/globalrefdb/site/internal/sitetest"
	"github.com/globalrefdb/globalrefdb/site/refusal"
)

func TestARefFollowsAnOperatorsDecision(t *testing.T) {
	t.Parallel()
	move := []refdb.Update{{Ref: ref}}
	for name, c := range map[string]struct {
		here, global string // which of the commits; "" for none
		prepare      func(g *rig)
		applied      bool
		want         string
		alarms       uint64
	}{
		"it has the value": {here: "new", global: "new", applied: true, want: "new"},
		"it moves":         {here: "new", global: "old", applied: true, want: "old"},
		"it is created":    {global: "old", applied: true, want: "old"},
		"it has the value that was announced, which the database does not know": {here: "new", applied: true},
		"it has a value that nobody announced":                                  {here: "other", want: "other", alarms: 1},
		"somebody has it locked": {here: "new", global: "old", want: "new", prepare: func(g *rig) {
			if _, err := g.DB.TryLock(g.t.Context(), project, ref); err != nil {
				g.t.Fatal(err)
			}
		}},
		"it is being announced": {here: "new", global: "old", want: "new", prepare: func(g *rig) {
			if _, err := g.Claims.Take(g.t.Context(), claims.ByPush, project, move, nil); err != nil {
				g.t.Fatal(err)
			}
		}},
		"its transaction has the claim": {here: "new", global: "old", applied: true, want: "old", prepare: func(g *rig) {
			g.under = g.Claims.Extend(nil, project, []string{ref}, g.began)
		}},
		"git can't move it": {here: "new", global: "old", want: "new", alarms: 1, prepare: func(g *rig) {
			sitetest.LockFile(g.t, g.bare, ref+".lock")
		}},
		"its repository is gone": {here: "new", global: "old", applied: true, prepare: func(g *rig) {
			if err := os.RemoveAll(g.repo.Path); err != nil {
				g.t.Fatal(err)
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newRig(t)
			commits := map[string]refdb.Value{"": "", "old": g.commit("old"), "new": g.commit("new"), "other": g.commit("other")}
			if c.here != "" {
				g.bare.Set(t, ref, string(commits[c.here]))
			}
			if c.global != "" {
				if _, err := g.DB.Put(t.Context(), project, ref, commits[c.global]); err != nil {
					t.Fatal(err)
				}
			}
			if c.prepare != nil {
				c.prepare(g)
			}
			i := driver.Intent{Project: project, Ref: ref, Old: commits["old"], New: commits["new"], Agent: agent}
			applied, err := g.ApplyDecision(t.Context(), g.config, i, g.under)
			if err != nil || applied != c.applied {
				t.Errorf("applied: %t, %v", applied, err)
			}
			if _, err := os.Lstat(g.repo.Path); err == nil {
				if got := g.bare.Refs(t)[ref]; got != string(commits[c.want]) {
					t.Errorf("it has %q, want %q", got, commits[c.want])
				}
			}
			if n := g.State.Counts.Status().Alarms; n != c.alarms {
				t.Errorf("%d alarms", n)
			}
			if claim, err := g.Claims.Take(t.Context(), claims.ByDecision, project, move, g.under); (err != nil) != (name == "it is being announced") {
				t.Errorf("it is claimed afterwards: %v, %v", claim, err)
			}
		})
	}
}

// A follower that has the ref may move it while the decision waits. What was read before is stale.
func TestADecisionReadsTheRefAfterItHasTheClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t)
		before, after := g.commit("old"), g.commit("new")
		g.bare.Set(t, ref, string(before))
		if _, err := g.DB.Put(t.Context(), project, ref, after); err != nil {
			t.Fatal(err)
		}
		following, others := g.Claims.Follow(t.Context(), project, []string{ref})
		if len(others) > 0 {
			t.Fatal(others)
		}
		applied := make(chan bool)
		go func() {
			ok, err := g.ApplyDecision(t.Context(), g.config, driver.Intent{Project: project, Ref: ref, Old: before, New: after, Agent: agent}, nil)
			if err != nil {
				t.Error(err)
			}
			applied <- ok
		}()
		synctest.Wait()
		g.bare.Set(t, ref, string(after))
		g.Claims.Release(following)
		if !<-applied || g.bare.Refs(t)[ref] != string(after) {
			t.Error("the decision is not applied")
		}
		if n := g.State.Counts.Status().Alarms; n > 0 {
			t.Errorf("%d alarms", n)
		}
	})
}

// A git that an earlier daemon has left may move the ref at any time.
func TestNothingIsAnnouncedOrDecidedBesideAGitOfAnEarlierDaemon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t)
		before, after := g.commit("old"), g.commit("new")
		g.bare.Set(t, ref, string(after))
		if _, err := g.DB.Put(t.Context(), project, ref, before); err != nil {
			t.Fatal(err)
		}
		git, err := filelock.Shared(t.Context(), filepath.Join(g.repo.Path, "refdb", "moving"))
		if err != nil {
			t.Fatal(err)
		}
		i := driver.Intent{Project: project, Ref: ref, Old: before, New: after, Agent: agent}
		if applied, err := g.ApplyDecision(t.Context(), g.config, i, nil); applied || err != nil || g.bare.Refs(t)[ref] != string(after) {
			t.Errorf("while it runs, a decision is applied: %t, %v", applied, err)
		}
		if _, claim, err := g.Announce(t.Context(), g.config, g.announcement(after, "refs/heads/b")); refusal.ReasonOf(err) != refusal.Locked || claim != nil {
			t.Errorf("while it runs, a push is refused with %v", err)
		}
		git.Close()
		if applied, err := g.ApplyDecision(t.Context(), g.config, i, nil); !applied || err != nil || g.bare.Refs(t)[ref] != string(before) {
			t.Errorf("after its end, a decision is applied: %t, %v", applied, err)
		}
		if n := g.State.Counts.Status().Alarms; n > 0 {
			t.Errorf("%d alarms", n)
		}
	})
}
