package spanner_test

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/spanner"
	"github.com/globalrefdb/globalrefdb/test/dbtest"
)

// partOf returns a part of a pack with the given number of parts, of one byte each.
func partOf(id string, number, parts int) driver.PackPart {
	p := driver.PackPart{Number: number, Data: []byte{byte(number)}, Last: number == parts-1, Pack: driver.Pack{
		ID: id, Project: project, Owner: owner, Tips: []string{string(v1)},
	}}
	if p.Last {
		p.Pack.Size, p.Pack.Sum = int64(parts), "sum"
	}
	return p
}

// storePack stores a pack with the given number of parts.
func storePack(tb testing.TB, d driver.PackStore, id string, parts int) {
	tb.Helper()
	for number := range parts {
		must(tb, d.StorePart(tb.Context(), partOf(id, number, parts)))
	}
}

// using returns a request for an intent to create branch, with packs.
func using(nonce string, packs ...string) driver.PrepareRequest {
	r := preparing(nonce, branch)
	r.Packs = packs
	return r
}

// packs returns all used packs of project with their data, and the position up to which packs are
// complete.
func packs(tb testing.TB, d driver.PackStore) ([]driver.Pack, driver.Position) {
	tb.Helper()
	page, err := d.Packs(tb.Context(), driver.PackQuery{Project: project, Limit: 1000, Inline: 1000})
	must(tb, err)
	return page.Packs, page.Upto
}

func TestAPackHasThePositionOfItsPreparation(t *testing.T) {
	t.Parallel()
	d := dbtest.Spanner(t).Open(t).(*spanner.Driver)
	storePack(t, d, "a", 1)
	p, err := d.Prepare(t.Context(), using("n", "a"))
	must(t, err)
	before := upto(t, d)
	all, complete := packs(t, d)
	after := upto(t, d)
	if len(all) != 1 || int64(all[0].Position) != int64(p.Token) {
		t.Errorf("the preparation has token %d, the packs are %+v", p.Token, all)
	}
	if complete < before || complete > after {
		t.Errorf("packs are complete up to %d, the history was up to %d, then up to %d", complete, before, after)
	}
}

func TestLostReplyAboutPacks(t *testing.T) {
	t.Parallel()
	w := &wire{}
	d := openWire(t, dbtest.Spanner(t), w)
	// twice loses the reply to a request, and repeats the request.
	twice := func(what string, do func() error) {
		t.Helper()
		loseReply(w, codes.Internal)
		if err := do(); !errors.Is(err, driver.ErrOutcomeUnknown) {
			t.Fatalf("%s: %v", what, err)
		}
		if err := do(); err != nil {
			t.Fatalf("%s again: %v", what, err)
		}
	}
	for number := range 3 {
		twice("store a part", func() error { return d.StorePart(t.Context(), partOf("a", number, 3)) })
	}
	storePack(t, d, "b", 1)
	if u, err := d.PackUsage(t.Context(), project); err != nil || u != (driver.PackUsage{Unused: 2, UnusedSize: 4}) {
		t.Fatalf("stored were %+v, %v", u, err)
	}
	var p driver.Prepared
	twice("prepare", func() (err error) {
		p, err = d.Prepare(t.Context(), using("n", "a"))
		return err
	})
	if all, _ := packs(t, d); len(all) != 1 || int64(all[0].Position) != int64(p.Token) || all[0].Parts != 3 {
		t.Fatalf("the preparation has token %d, the packs are %+v", p.Token, all)
	}
	twice("drop a pack", func() error { return d.DropPack(t.Context(), "b") })
	twice("remove packs", func() error { _, err := d.RemovePacks(t.Context(), project, 10); return err })
	if u, err := d.PackUsage(t.Context(), ""); err != nil || u != (driver.PackUsage{}) {
		t.Errorf("%+v remain, %v", u, err)
	}
}

func TestDataOfAPageIsOfItsSnapshot(t *testing.T) {
	t.Parallel()
	db := dbtest.Spanner(t)
	other := db.Open(t).(*spanner.Driver)
	storePack(t, other, "a", 1)
	must(t, errorOf(other.Prepare(t.Context(), using("n", "a"))))
	w := &wire{}
	d := openWire(t, db, w)
	var once atomic.Bool
	w.set(func(w *wire) {
		w.before = func(_ context.Context, name string) error {
			if name != "StreamingRead" || !once.CompareAndSwap(false, true) {
				return nil
			}
			return errorOf(other.RemovePacks(t.Context(), project, 10))
		}
	})
	if all, _ := packs(t, d); len(all) != 1 || len(all[0].Data) != 1 || !once.Load() {
		t.Errorf("got %+v", all)
	}
}

// A process that drops packs until none is left must not stop because others dropped those that it
// found.
func TestPacksAreSearchedAgainAfterAConcurrentDrop(t *testing.T) {
	t.Parallel()
	db := dbtest.Spanner(t)
	other := db.Open(t).(*spanner.Driver)
	for _, id := range []string{"a", "b", "c"} {
		storePack(t, other, id, 2)
	}
	w := &wire{}
	d := openWire(t, db, w)
	var queries atomic.Int32
	w.set(func(w *wire) {
		w.before = func(_ context.Context, name string) error {
			if name != "ExecuteStreamingSql" || queries.Add(1) != 2 {
				return nil
			}
			return errorOf(other.RemovePacks(t.Context(), project, 2)) // the packs that were found
		}
	})
	if n, err := d.RemovePacks(t.Context(), project, 2); n != 1 || err != nil {
		t.Errorf("%d packs were removed, %v", n, err)
	}
	if u, err := d.PackUsage(t.Context(), ""); err != nil || u != (driver.PackUsage{}) {
		t.Errorf("%+v remain, %v", u, err)
	}
}

func TestRoundTripsAboutPacks(t *testing.T) {
	t.Parallel()
	const query, commit, read = "ExecuteStreamingSql", "Commit", "StreamingRead"
	w := &wire{}
	d := openWire(t, dbtest.Spanner(t), w)
	ctx := t.Context()
	many := preparing("n", names(1000)...)
	many.Packs = []string{"a", "b"}
	carrying := using("m", "c", "d")
	carrying.Parts = []driver.PackPart{partOf("c", 0, 1), partOf("d", 0, 1)}
	for _, step := range []struct {
		name string
		do   func() error
		want []string
	}{
		{"storing a small pack", func() error { return d.StorePart(ctx, partOf("a", 0, 1)) }, []string{query, commit}},
		{"storing the first part", func() error { return d.StorePart(ctx, partOf("b", 0, 2)) }, []string{query, commit}},
		{"storing the last part", func() error { return d.StorePart(ctx, partOf("b", 1, 2)) }, []string{query, commit}},
		{"preparing a thousand refs with packs", func() error { return errorOf(d.Prepare(ctx, many)) }, []string{query, commit}},
		{"preparing with packs in the request", func() error { return errorOf(d.Prepare(ctx, carrying)) }, []string{query, commit}},
		{"listing packs", func() error { return errorOf(d.Packs(ctx, driver.PackQuery{Project: project, Limit: 10})) }, []string{query}},
		{"listing packs with data", func() error {
			return errorOf(d.Packs(ctx, driver.PackQuery{Project: project, Limit: 10, Inline: 10}))
		}, []string{query, read}},
		{"reading a part", func() error { return errorOf(d.PackPart(ctx, "b", 1)) }, []string{query}},
		{"counting packs", func() error { return errorOf(d.PackUsage(ctx, project)) }, []string{query}},
		{"dropping a used pack", func() error { return d.DropPack(ctx, "a") }, []string{query, commit}},
		{"dropping abandoned packs where there are none", func() error { return errorOf(d.DropAbandonedPacks(ctx, time.Hour, 10)) }, []string{query}},
		{"dropping superseded packs without a base", func() error { return errorOf(d.DropSupersededPacks(ctx, project, 10)) }, []string{query}},
		{"removing packs", func() error { return errorOf(d.RemovePacks(ctx, project, 10)) }, []string{query, query, commit}},
	} {
		w.take()
		must(t, step.do())
		if got := w.take(); !slices.Equal(got, step.want) {
			t.Errorf("%s: the requests were %v, want %v", step.name, got, step.want)
		}
	}
}

// A large pack is deleted in pieces. A pack whose deletion is interrupted can't be read, listed or
// used, and is later deleted as abandoned.
func TestAnInterruptedDropOfALargePack(t *testing.T) {
	t.Parallel()
	const parts = 130
	w := &wire{}
	d := openWire(t, dbtest.Spanner(t), w)
	for number := range parts {
		p := partOf("p", number, parts)
		p.Pack.Size = parts << 20
		must(t, d.StorePart(t.Context(), p))
	}
	must(t, errorOf(d.Prepare(t.Context(), using("n", "p"))))
	var commits atomic.Int32
	w.set(func(w *wire) {
		w.around = func(name string, send func() error) error {
			if name == "Commit" && commits.Add(1) == 2 {
				return status.Error(codes.PermissionDenied, "injected: refused")
			}
			return send()
		}
	})
	if n, err := d.RemovePacks(t.Context(), project, 10); n != 0 || err == nil {
		t.Errorf("%d packs were deleted, %v", n, err)
	}
	if all, _ := packs(t, d); len(all) > 0 {
		t.Errorf("listed are %+v", all)
	}
	again := using("again", "p")
	again.Updates[0].Ref = "refs/heads/again"
	for what, err := range map[string]error{
		"reading it": errorOf(d.PackPart(t.Context(), "p", parts-1)),
		"using it":   errorOf(d.Prepare(t.Context(), again)),
		"ending it":  d.StorePart(t.Context(), partOf("p", parts, parts+1)),
	} {
		if !errors.Is(err, driver.ErrNoPack) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if u, err := d.PackUsage(t.Context(), project); err != nil || u != (driver.PackUsage{Unused: 1, UnusedSize: (parts - 64) << 20}) {
		t.Errorf("%+v, %v", u, err)
	}
	if n, err := d.DropAbandonedPacks(t.Context(), 0, 10); n != 1 || err != nil {
		t.Errorf("%d abandoned packs were deleted, %v", n, err)
	}
	if u, err := d.PackUsage(t.Context(), ""); err != nil || u != (driver.PackUsage{}) {
		t.Errorf("%+v remain, %v", u, err)
	}
}

func errorOf[T any](_ T, err error) error { return err }
