package refdbtest

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
)

// A DB stores packs, lists them, and names them in preparations.
func dbPackRows() []row {
	return append(ifPacks([]row{
		{"a pack is stored, used and read through a DB", func(e *env) {
			db := e.open(refdb.Options{})
			p := e.newPack(10, 5)
			for number := range p.parts {
				e.must(db.StorePackPart(e.Context(), p.part(number)))
			}
			l, err := db.Prepare(e.Context(), e.project, []refdb.Update{move(refA, "", v1)}, agent, refdb.WithPacks(p.ID))
			e.must(err)
			e.must(db.Finish(e.Context(), l, []string{refA}, nil))
			page, err := db.Packs(e.Context(), refdb.PackQuery{Project: e.project, Limit: 10})
			e.must(err)
			e.wantListed(page.Packs, p)
			data, err := db.PackPart(e.Context(), p.ID, 1)
			if e.must(err); string(data) != string(p.parts[1]) {
				e.Errorf("read %q", data)
			}
			u, err := db.PackUsage(e.Context(), e.project)
			if want := (refdb.PackUsage{Packs: 1, Size: 15}); err != nil || u != want {
				e.Errorf("%+v, %v", u, err)
			}
			e.must(db.DropPack(e.Context(), p.ID))
			e.wantStored(p)
		}},
		{"a project says which of its objects the database keeps", func(e *env) {
			db := e.open(refdb.Options{})
			p := refdb.Project{Project: e.project, ID: "id", Rules: "ref refs/heads/*", Mode: "enforce"}
			for _, store := range []string{"", "all", "some", ""} {
				p.Store = store
				wrote, err := db.PutProject(e.Context(), p)
				e.must(err)
				if got := e.projects(refdb.ProjectQuery{Project: e.project}); len(got) != 1 || !sameProject(got[0], wrote) || wrote.Store != store {
					e.Errorf("wrote %+v, read %+v, want %q", wrote, got, store)
				}
				p = wrote
			}
			p.Store = "a\x00b"
			_, err := db.PutProject(e.Context(), p)
			e.wantIs(err, refdb.ErrInvalid)
		}},
		{"a preparation without its packs does nothing", func(e *env) {
			db := e.open(refdb.Options{})
			p := e.stored()
			_, err := db.Prepare(e.Context(), e.project, []refdb.Update{move(refA, "", v1)}, agent, refdb.WithPacks(p.ID, "none"))
			e.wantClass(err, refdb.ErrNoPack, refdb.Permanent)
			e.wantNone()
			e.wantPacks()
		}},
		{"a part whose reply was lost is stored again", func(e *env) {
			for _, lose := range []func(string) func(call) error{loseReply, loseRequest} {
				db, t := e.openFaultyPacks()
				p := e.newPack(3, 4)
				for number := range p.parts {
					t.inject(lose("StorePart"))
					e.must(db.StorePackPart(e.Context(), p.part(number)))
				}
				if n := t.count("StorePart"); n != 4 {
					e.Errorf("%d requests, want 4", n)
				}
				e.wantStored(p)
			}
		}},
		{"P7 a preparation whose reply was lost is made again, with its packs", func(e *env) {
			for _, lose := range []func(string) func(call) error{loseReply, loseRequest} {
				db, t := e.openFaultyPacks()
				p := e.stored()
				t.inject(lose("Prepare"))
				ref := "refs/heads/" + p.ID
				l, err := db.Prepare(e.Context(), e.project, []refdb.Update{move(ref, "", v1)}, agent, refdb.WithPacks(p.ID))
				e.must(err)
				e.listed(p)
				e.must(db.Finish(e.Context(), l, []string{ref}, nil))
			}
		}},
		{"a part that no pack may have is refused, and not asked about", func(e *env) {
			db, t := e.openFaultyPacks()
			for what, change := range map[string]func(*refdb.PackPart){
				"no ID":           func(p *refdb.PackPart) { p.Pack.ID = "" },
				"a long ID":       func(p *refdb.PackPart) { p.Pack.ID = strings.Repeat("i", 65) },
				"no data":         func(p *refdb.PackPart) { p.Data = nil },
				"too much data":   func(p *refdb.PackPart) { p.Data = make([]byte, refdb.MaxPackPart+1) },
				"number -1":       func(p *refdb.PackPart) { p.Number = -1 },
				"no tips":         func(p *refdb.PackPart) { p.Pack.Tips = nil },
				"no project":      func(p *refdb.PackPart) { p.Pack.Project = "" },
				"a bad project":   func(p *refdb.PackPart) { p.Pack.Project = "a\x00b" },
				"a marker's name": func(p *refdb.PackPart) { p.Pack.Project = "RECLAIM_x" },
			} {
				part := e.newPack(1).part(0)
				change(&part)
				if err := db.StorePackPart(e.Context(), part); !errors.Is(err, refdb.ErrInvalid) {
					e.Errorf("%s: %v", what, err)
				}
			}
			if n := t.count(""); n != 0 {
				e.Errorf("%d requests", n)
			}
		}},
		{"packs are dropped chunk by chunk until none is left", alone(func(e *env) {
			const many = 110
			db := e.open(refdb.Options{})
			for range many {
				e.stored()
			}
			e.pass(time.Millisecond)
			if n, err := db.DropAbandonedPacks(e.Context(), 0); n != many || err != nil {
				e.Errorf("abandoned: %d, %v", n, err)
			}
			var all []pack
			for range many {
				all = append(all, e.stored())
			}
			e.use(e.a, all...)
			e.storePack(e.a, e.newBase(e.listed(all[0]).Position+1, 1))
			if n, err := db.DropSupersededPacks(e.Context(), e.project); n != many || err != nil {
				e.Errorf("superseded: %d, %v", n, err)
			}
			for range many {
				e.stored()
			}
			if n, err := db.RemovePacks(e.Context(), e.project); n != many+1 || err != nil {
				e.Errorf("removed: %d, %v", n, err)
			}
			e.wantUsage(refdb.PackUsage{})
		})},
		{"a removed project takes its packs along, and those of no other", func(e *env) {
			db := e.open(refdb.Options{})
			e.must(e.update(e.a, move(refA, "", v1)))
			p, other := e.stored(), e.newPack(1)
			other.Project += "/below"
			e.storePack(e.a, other)
			if n, err := db.RemoveProject(e.Context(), e.project); n != 1 || err != nil {
				e.Errorf("%d, %v", n, err)
			}
			e.wantRefs(map[string]refdb.Value{})
			e.wantGone(p)
			e.wantUsage(refdb.PackUsage{})
			e.wantStored(other)
		}},
		{"a project that is not removed keeps its packs", func(e *env) {
			db := e.open(refdb.Options{})
			e.must(e.update(e.a, move(refA, "", v1)))
			p := e.stored()
			l := e.acquire(e.a, refA)
			if _, err := db.RemoveProject(e.Context(), e.project); !errors.Is(err, refdb.ErrLocked) {
				e.Errorf("%v", err)
			}
			e.wantStored(p)
			e.release(e.a, l)
		}},
	}), row{"what is about packs is unsupported on a driver without them, and all else works", func(e *env) {
		db, t := e.openFaulty(refdb.Options{})
		p, ctx := e.newPack(1), e.Context()
		_, prepared := db.Prepare(ctx, e.project, []refdb.Update{move(refA, "", v1)}, agent, refdb.WithPacks(p.ID))
		for what, err := range map[string]error{
			"Prepare":             prepared,
			"StorePackPart":       db.StorePackPart(ctx, p.part(0)),
			"Packs":               errorOf(db.Packs(ctx, refdb.PackQuery{Project: e.project, Limit: 1})),
			"PackPart":            errorOf(db.PackPart(ctx, p.ID, 0)),
			"DropPack":            db.DropPack(ctx, p.ID),
			"DropAbandonedPacks":  errorOf(db.DropAbandonedPacks(ctx, time.Hour)),
			"DropSupersededPacks": errorOf(db.DropSupersededPacks(ctx, e.project)),
			"RemovePacks":         errorOf(db.RemovePacks(ctx, e.project)),
			"PackUsage":           errorOf(db.PackUsage(ctx, e.project)),
		} {
			if !errors.Is(err, errors.ErrUnsupported) {
				e.Errorf("%s: %v", what, err)
			}
		}
		if n := t.count("Prepare"); n != 0 {
			e.Errorf("%d preparations", n)
		}
		e.must(e.update(e.a, move(refA, "", v1)))
		if n, err := db.RemoveProject(ctx, e.project); n != 1 || err != nil {
			e.Errorf("removed: %d, %v", n, err)
		}
	}})
}

// faultyPacks is a faultyDriver that keeps packs.
type faultyPacks struct {
	*faultyDriver
	refdb.PackStore
}

func (t *faultyPacks) StorePart(ctx context.Context, p refdb.PackPart) error {
	return t.call(ctx, "StorePart", p, func() error { return t.PackStore.StorePart(ctx, p) })
}

// openFaultyPacks is openFaulty for a driver that keeps packs.
func (e *env) openFaultyPacks() (*refdb.DB, *faultyDriver) {
	e.Helper()
	t := e.faulty()
	return e.openOn(&faultyPacks{t, t.Driver.(refdb.PackStore)}, refdb.Options{}), t
}
