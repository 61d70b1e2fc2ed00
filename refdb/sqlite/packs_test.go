package sqlite_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/sqlite"
)

// packOf is a pack of a byte.
func packOf(id string) refdb.PackPart {
	return refdb.PackPart{Pack: refdb.Pack{ID: id, Project: project, Owner: owner, Tips: []string{string(v1)}, Size: 1}, Data: []byte("x"), Last: true}
}

// usingPack prepares a ref of its own.
func usingPack(id string) refdb.PrepareRequest {
	r := preparation(refdb.Update{Ref: "refs/heads/" + id, New: v1})
	r.Packs = []string{id}
	return r
}

// The tables come and go while the driver is in use.
func TestTheSchemaBeforePacksIsServed(t *testing.T) {
	_, url := open(t)
	m, err := sqlite.Migrator(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	d := openAgain(t, url)
	ctx := t.Context()
	for n := range 3 {
		if err := m.To(ctx, 9); err != nil {
			t.Fatal(err)
		}
		id := fmt.Sprint("pack-", n)
		errs := map[string]error{"store": d.StorePart(ctx, packOf(id)), "drop": d.DropPack(ctx, id)}
		_, errs["prepare"] = d.Prepare(ctx, usingPack(id))
		_, errs["packs"] = d.Packs(ctx, refdb.PackQuery{Project: project, Limit: 1})
		_, errs["part"] = d.PackPart(ctx, id, 0)
		_, errs["abandoned"] = d.DropAbandonedPacks(ctx, time.Hour, 1)
		_, errs["superseded"] = d.DropSupersededPacks(ctx, project, 1)
		_, errs["remove"] = d.RemovePacks(ctx, project, 1)
		_, errs["usage"] = d.PackUsage(ctx, project)
		row := refdb.ProjectRequest{Project: fmt.Sprint("project-", n), ID: "id", Rules: "rules", Mode: "mode", Store: "all", Op: "op"}
		_, errs["project"] = d.PutProject(ctx, row)
		for name, err := range errs {
			if !errors.Is(err, refdb.ErrOldSchema) || strings.Contains(err.Error(), "\n") {
				t.Errorf("%s: %v", name, err)
			}
		}
		row.Store = ""
		wrote, err := d.PutProject(ctx, row)
		if err != nil || wrote.Store != "" {
			t.Errorf("%+v, %v", wrote, err)
		}
		if _, err := d.Prepare(ctx, preparation(refdb.Update{Ref: "refs/heads/before-" + id, New: v1})); err != nil {
			t.Error(err)
		}

		if err := m.Up(ctx); err != nil {
			t.Fatal(err)
		}
		row.Store, row.Revision, row.Op = "all", wrote.Revision, "op2"
		if p, err := d.PutProject(ctx, row); err != nil || p.Store != "all" {
			t.Errorf("%+v, %v", p, err)
		}
		if err := d.StorePart(ctx, packOf(id)); err != nil {
			t.Error(err)
		}
		if _, err := d.Prepare(ctx, usingPack(id)); err != nil {
			t.Error(err)
		}
		if page, err := d.Packs(ctx, refdb.PackQuery{Project: project, Limit: 10}); err != nil || len(page.Packs) != 1 || page.Packs[0].ID != id {
			t.Errorf("%+v, %v", page, err)
		}
	}
}

// Packs share the positions of changes, and requests that share a transaction have positions of their own.
func TestPositionsOfPacksAndOfChangesAreOneCount(t *testing.T) {
	d, _ := open(t)
	ctx := t.Context()
	for _, id := range []string{"a", "b"} {
		if err := d.StorePart(ctx, packOf(id)); err != nil {
			t.Fatal(err)
		}
	}
	var last refdb.Position
	next := func(what string, p refdb.Position) {
		t.Helper()
		if p != last+1 {
			t.Errorf("%s has position %d, the last one was %d", what, p, last)
		}
		last = p
	}
	state := func() refdb.Position {
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
		page, err := d.Packs(ctx, refdb.PackQuery{Project: project, Limit: 10})
		if err != nil || len(page.Packs) != n+1 || page.Upto != page.Packs[n].Position {
			t.Fatalf("%+v, %v", page, err)
		}
		next("the pack", page.Packs[n].Position)
		err = d.Finish(ctx, refdb.FinishRequest{
			Project: project, Origin: refdb.Origin{ID: "finish", Owner: owner}, Token: p.Token, Done: []refdb.Update{{Ref: "refs/heads/" + id, New: v1}},
		})
		if err != nil {
			t.Fatal(err)
		}
		next("the change", state())
		// Used again, it needs no position.
		if _, err := d.Prepare(ctx, refdb.PrepareRequest{
			Project: project, Updates: []refdb.Update{{Ref: "refs/heads/again-" + id, New: v1}}, Owner: owner, Nonce: "again-" + id, Packs: []string{id},
		}); err != nil {
			t.Fatal(err)
		}
		if s := state(); s != last {
			t.Errorf("position %d follows %d for a pack that was used already", s, last)
		}
	}
}
