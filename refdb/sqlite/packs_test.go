package sqlite_test

import (
	"testing"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
)

// packOf returns a pack of one byte.
func packOf(id string) driver.PackPart {
	return driver.PackPart{Pack: driver.Pack{ID: id, Project: project, Owner: owner, Tips: []string{string(v1)}, Size: 1}, Data: []byte("x"), Last: true}
}

// usingPack returns a preparation of a ref of its own that uses a pack.
func usingPack(id string) driver.PrepareRequest {
	r := preparation(driver.Update{Ref: "refs/heads/" + id, New: v1})
	r.Packs = []string{id}
	return r
}

// Packs and changes share the sequence of positions, and each request in a shared transaction has
// its own position.
func TestPacksAndChangesShareOneCounterOfPositions(t *testing.T) {
	d, _ := open(t)
	ctx := t.Context()
	for _, id := range []string{"a", "b"} {
		if err := d.StorePart(ctx, packOf(id)); err != nil {
			t.Fatal(err)
		}
	}
	var last driver.Position
	next := func(what string, p driver.Position) {
		t.Helper()
		if p != last+1 {
			t.Errorf("%s has position %d, the last position was %d", what, p, last)
		}
		last = p
	}
	state := func() driver.Position {
		t.Helper()
		s, err := d.HistoryState(ctx)
		if err != nil {
			t.Fatal(err)
		}
		return s.Upto
	}
	last = state()
	for n, id := range []string{"a", "b"} {
		p, err := d.Prepare(ctx, usingPack(id))
		if err != nil {
			t.Fatal(err)
		}
		page, err := d.Packs(ctx, driver.PackQuery{Project: project, Limit: 10})
		if err != nil || len(page.Packs) != n+1 || page.Upto != page.Packs[n].Position {
			t.Fatalf("%+v, %v", page, err)
		}
		next("the pack", page.Packs[n].Position)
		err = d.Finish(ctx, driver.FinishRequest{
			Project: project, Origin: driver.Origin{ID: "finish", Owner: owner}, Token: p.Token, Done: []driver.Update{{Ref: "refs/heads/" + id, New: v1}},
		})
		if err != nil {
			t.Fatal(err)
		}
		next("the change", state())
		// A pack that is used again needs no new position.
		if _, err := d.Prepare(ctx, driver.PrepareRequest{
			Project: project, Updates: []driver.Update{{Ref: "refs/heads/again-" + id, New: v1}}, Owner: owner, Nonce: "again-" + id, Packs: []string{id},
		}); err != nil {
			t.Fatal(err)
		}
		if s := state(); s != last {
			t.Errorf("position %d follows %d for a pack that was already used", s, last)
		}
	}
}
