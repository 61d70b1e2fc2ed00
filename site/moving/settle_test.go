package moving_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/site/moving"
	"github.com/globalrefdb/globalrefdb/site/refusal"
)

// commit makes a commit in the repository.
func (g *rig) commit(message string) refdb.Value { return refdb.Value(g.bare.Commit(g.t, message)) }

// resolve resolves moves, and returns the refs whose intents have ended.
func (g *rig) resolve(moves []*moving.Move) (ended []string) {
	g.t.Helper()
	these, err := g.Resolve(g.t.Context(), moves)
	if err != nil {
		g.t.Fatal(err)
	}
	for _, m := range these {
		ended = append(ended, m.Ref)
	}
	slices.Sort(ended)
	return ended
}

func TestTheRepositoryDecidesWhatBecomesOfAnIntent(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	one, other := g.commit("one"), g.commit("other")
	moves := g.announce(one, "refs/heads/moved", "refs/heads/kept", "refs/heads/odd")
	g.bare.Set(t, "refs/heads/moved", string(one))
	g.bare.Set(t, "refs/heads/odd", string(other))
	if ended := g.resolve(moves); !slices.Equal(ended, []string{"refs/heads/kept", "refs/heads/moved"}) {
		t.Errorf("ended: %v", ended)
	}
	if moved, kept := g.global("refs/heads/moved"), g.global("refs/heads/kept"); moved != one || kept != refdb.Unknown {
		t.Errorf("the database has %q and %q", moved, kept)
	}
	if n := g.State.Counts.Status(); n.Updated != 1 || n.Dropped != 1 || n.Alarms != 1 {
		t.Errorf("%+v", n)
	}
	if n := g.List.Count(); n != 1 {
		t.Errorf("%d moves are listed", n)
	}
	// A value that is neither the old nor the new one needs an operator.
	if stuck := g.Alarms.List(); len(stuck) != 1 || stuck[0].Ref != "refs/heads/odd" || !slices.Equal(g.pending(), []string{"refs/heads/odd"}) {
		t.Errorf("stuck: %+v; pending: %v", stuck, g.pending())
	}
	g.resolve(moves[2:])
	if n := g.State.Counts.Status().Alarms; n != 1 {
		t.Errorf("the alarm was raised %d times", n)
	}
	g.bare.Set(t, "refs/heads/odd", string(one))
	g.resolve(moves[2:])
	if stuck := g.Alarms.List(); len(stuck) > 0 || len(g.pending()) > 0 {
		t.Errorf("after it was mended, stuck: %+v; pending: %v", stuck, g.pending())
	}
	if n, _ := g.Open.Count(); n != 0 {
		t.Errorf("%d intents are counted", n)
	}
}

func TestAnIntentOfARepositoryThatIsGoneStays(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	moves := g.announce(value, ref)
	away := filepath.Join(t.TempDir(), "away")
	if err := os.Rename(g.repo.Path, away); err != nil {
		t.Fatal(err)
	}
	if ended := g.resolve(moves); len(ended) > 0 || len(g.Alarms.List()) != 1 {
		t.Errorf("ended: %v; stuck: %+v", ended, g.Alarms.List())
	}
	if err := os.Rename(away, g.repo.Path); err != nil {
		t.Fatal(err)
	}
	if ended := g.resolve(moves); len(ended) != 1 || len(g.Alarms.List()) > 0 {
		t.Errorf("when it is back, ended: %v; stuck: %+v", ended, g.Alarms.List())
	}
}

func TestAnIntentThatAnOperatorHasResolvedHasEnded(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	one := g.commit("one")
	moves := g.announce(one, ref, "refs/heads/b")
	g.bare.Set(t, ref, string(one))
	g.bare.Set(t, "refs/heads/b", string(one))
	var intents []driver.Intent
	for i, err := range g.DB.Intents().All(t.Context(), driver.IntentFilter{Project: project, Ref: ref}) {
		if err != nil {
			t.Fatal(err)
		}
		intents = append(intents, i)
	}
	if _, err := g.DB.Intents().Resolve(t.Context(), intents, driver.KeepOld, "an operator", "a reason"); err != nil {
		t.Fatal(err)
	}
	if ended := g.resolve(moves); !slices.Equal(ended, []string{ref, "refs/heads/b"}) {
		t.Errorf("ended: %v", ended)
	}
	if !moves[0].EndedByOthers.Load() || moves[1].EndedByOthers.Load() {
		t.Errorf("ended by others: %t, %t", moves[0].EndedByOthers.Load(), moves[1].EndedByOthers.Load())
	}
	if g.global(ref) != refdb.Unknown || g.global("refs/heads/b") != one {
		t.Errorf("the database has %q and %q", g.global(ref), g.global("refs/heads/b"))
	}
}

// process returns the pending moves of a git process.
func (g *rig) process(moves ...*moving.Move) *moving.Pending {
	p := g.NewPending()
	p.Add(moves...)
	return p
}

func TestGitAnnouncesTheMovesOfAnInnerTransactionOnce(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	one, other := g.commit("one"), g.commit("other")
	p := g.process(g.announce(one, ref)...)
	unannounced := func(value refdb.Value, refs ...string) (left []string) {
		t.Helper()
		moves, err := g.Unannounced(t.Context(), p, project, g.announcement(value, refs...).Moves)
		if err != nil {
			t.Fatal(err)
		}
		for _, u := range moves {
			left = append(left, u.Ref)
		}
		return left
	}
	if left := unannounced(one, ref, "refs/heads/b"); !slices.Equal(left, []string{"refs/heads/b"}) || p.Find(project, ref) == nil {
		t.Errorf("to be announced: %v", left)
	}
	// Another move of the ref shows that the first one was aborted.
	if left := unannounced(other, ref); !slices.Equal(left, []string{ref}) || len(g.pending()) > 0 || p.Find(project, ref) != nil {
		t.Errorf("to be announced: %v; pending: %v", left, g.pending())
	}
	// So does its end by an operator.
	p.Add(g.announce(one, ref)...)
	for i, err := range g.DB.Intents().All(t.Context(), driver.IntentFilter{Project: project}) {
		if err == nil {
			_, err = g.DB.Intents().Resolve(t.Context(), []driver.Intent{i}, driver.KeepOld, "an operator", "a reason")
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if left := unannounced(one, ref); !slices.Equal(left, []string{ref}) {
		t.Errorf("to be announced: %v", left)
	}
}

func TestAMoveThatIsNotSettledIsUnderWayUntilItsProcessIsForgotten(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	p := g.process(g.announce(value, ref)...)
	for _, c := range []struct {
		project, ref string
		locked       bool
	}{{project, ref, true}, {project, "refs/heads/b", false}, {"another", ref, false}} {
		if err := g.UnderWay(c.project, []refdb.Update{{Ref: c.ref}}); (refusal.ReasonOf(err) == refusal.Locked) != c.locked {
			t.Errorf("%s of %s: %v", c.ref, c.project, err)
		}
	}
	if n := g.Count(); n != 1 {
		t.Errorf("%d are counted", n)
	}
	g.Forget(p)
	if err := g.UnderWay(project, []refdb.Update{{Ref: ref}}); err != nil || g.Count() != 0 {
		t.Errorf("%v; %d are counted", err, g.Count())
	}
}

func TestADaemonAdoptsWhatAnEarlierOneRecorded(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	g.announce(value, ref)
	ended := g.announce(value, "refs/heads/ended")
	var intents []driver.Intent
	for i, err := range g.DB.Intents().All(t.Context(), driver.IntentFilter{Project: project}) {
		if err != nil {
			t.Fatal(err)
		}
		intents = append(intents, i)
	}
	g.resolve(ended) // after it was listed
	p := g.NewPending()
	if err := g.Adopt(t.Context(), p, intents); err != nil {
		t.Fatal(err)
	}
	if m := p.Find(project, ref); m == nil || !m.Adopted || p.Find(project, "refs/heads/ended") != nil {
		t.Errorf("it has adopted %+v", p.All())
	}
	// The transaction has ended, which the database could not be told then.
	p.Find(project, ref).Over.Store(true)
	if err := g.Adopt(t.Context(), p, intents); err != nil || len(p.All()) > 0 || len(g.pending()) > 0 {
		t.Errorf("%v; pending: %v", err, g.pending())
	}
}

func TestMovesThatTheDatabaseNoLongerHasAreForgotten(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	p := g.process(g.announce(value, ref, "refs/heads/goes-on", "refs/heads/listed", "refs/heads/later")...)
	asked := time.Now()
	p.Find(project, "refs/heads/later").Since = asked.Add(time.Second)
	for _, m := range p.All() {
		m.Over.Store(m.Ref != "refs/heads/goes-on")
	}
	listed := []driver.Intent{{Project: project, Ref: "refs/heads/listed", Token: p.Find(project, ref).Token}}
	if !p.TryEnter() {
		t.Fatal("it has no turn")
	}
	g.ForgetEnded(asked, listed) // somebody decides about the process
	if len(p.All()) != 4 {
		t.Errorf("%d are left", len(p.All()))
	}
	p.Leave()
	g.ForgetEnded(asked, listed)
	if p.Find(project, ref) != nil || len(p.All()) != 3 {
		t.Errorf("left are %+v", p.All())
	}
}
