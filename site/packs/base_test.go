package packs_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/intents"
	"github.com/globalrefdb/globalrefdb/site/packs"
)

// A site that has everything that refs hold does not unpack a base at first. It unpacks the base
// once other objects turn out to be missing.
func TestASiteUnpacksABaseOnceObjectsAreMissing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a, b := w.site("a"), w.site("b")
	a.git("symbolic-ref", "HEAD", "refs/heads/main")
	first := a.commit("first")
	second := a.commit("second", first)
	left := a.commit("left", first)
	a.push(move("main", "", first))
	a.push(move("main", first, second))
	topic := move("topic", "", a.commit("topic", second))
	pack := a.store(topic) // it builds on second, the value that main is about to lose
	a.push(move("main", second, left))
	if _, err := a.receive(); err != nil {
		t.Fatal(err)
	}
	if _, err := a.source().StoreBase(t.Context(), func(context.Context) (*packs.Mark, error) { return a.mark, nil }, packs.Limits{}); err != nil {
		t.Fatal(err)
	}
	b.git("fetch", "--quiet", a.Dir, left) // everything that refs hold, and no more
	b.git("update-ref", "refs/heads/main", left)
	b.received(0)
	if _, err := a.db.Intents().Prepare(t.Context(), project, []refdb.Update{topic}, "test", intents.WithPacks(pack)); err != nil {
		t.Fatal(err)
	}
	b.received(2)
	if !b.whole(second) {
		t.Error("what the pack builds on is not here")
	}
}

// A base that is stored because sites lack objects that are in no pack has a position that these
// sites have already listed.
func TestASiteStartsOverAtABaseThatWasStoredSince(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a, b := w.site("a"), w.site("b")
	lacking := a.commit("came without a push")
	if err := a.db.Update(t.Context(), project, []refdb.Update{move("main", "", lacking)}); err != nil {
		t.Fatal(err)
	}
	if _, err := a.receive(); err != nil {
		t.Fatal(err)
	}
	a.push(move("side", "", a.commit("side")))
	b.received(1)
	receiver := packs.Receiver{DB: b.db, Repo: b.repo, Project: project, Mark: b.mark}
	for _, want := range []bool{true, false} {
		if again, err := receiver.StartOver(t.Context()); err != nil || again != want {
			t.Fatalf("%v, %v", again, err)
		}
		b.received(map[bool]int{true: 1}[want])
	}
	if _, err := a.source().StoreBase(t.Context(), func(context.Context) (*packs.Mark, error) { return a.mark, nil }, packs.Limits{}); err != nil {
		t.Fatal(err)
	}
	b.received(0)
	for _, want := range []bool{true, false} {
		if again, err := receiver.StartOver(t.Context()); err != nil || again != want {
			t.Fatalf("with a base: %v, %v", again, err)
		}
	}
	b.received(2)
	if !b.whole(lacking) {
		t.Error("what is in the base is not here")
	}
}

func TestABaseReplacesAllEarlierPacks(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a, b, c := w.site("a"), w.site("b"), w.site("c")
	first := a.commit("first")
	second := a.commit("second", first)
	a.push(move("main", "", first))
	a.push(move("main", first, second))
	left := a.commit("left", first)
	a.push(move("main", second, left)) // no ref reaches second any more
	b.received(3)
	pending := a.commit("pending", left)
	intents := a.prepare(move("main", left, pending))
	if _, err := a.receive(); err != nil {
		t.Fatal(err)
	}

	base, err := a.source().StoreBase(t.Context(), func(context.Context) (*packs.Mark, error) { return a.mark, nil }, packs.Limits{})
	if err != nil || base.Dropped < 3 {
		t.Fatalf("%+v, %v", base, err)
	}
	if got, err := b.receive(); err != nil || slices.Contains(got, base.Pack.ID) {
		t.Errorf("the site has the objects of the base, and unpacked %v, %v", got, err)
	}
	if _, err := c.receive(); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{left, second, pending} {
		if !c.whole(id) {
			t.Errorf("%s did not come with the base", id)
		}
	}
	// A push may build on a value that a ref held a moment ago.
	a.git("update-ref", "refs/heads/main", pending)
	if err := a.db.Intents().Finish(t.Context(), intents, []string{"refs/heads/main"}, nil); err != nil {
		t.Fatal(err)
	}
	a.push(move("old", "", a.commit("on second", second)))
	c.received(1)

	// A site that lacks objects can't make a base.
	if _, err := w.site("d").source().StoreBase(t.Context(), func(context.Context) (*packs.Mark, error) { return a.mark, nil }, packs.Limits{}); !errors.Is(err, packs.ErrIncomplete) {
		t.Errorf("a base of nothing: %v", err)
	}
}
