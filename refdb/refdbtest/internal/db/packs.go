package db

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/intents"
	"github.com/globalrefdb/globalrefdb/refdb/refdbtest/internal/suite"
)

// A DB stores packs, lists them, and names them in preparations.
func packRows() []row {
	return append(suite.IfPacks([]row{
		{"a pack is stored, used and read through a DB", func(e *env) {
			db := e.Open(refdb.Options{})
			p := e.NewPack(10, 5)
			for number := range p.Contents {
				e.Must(db.Packs().Store(e.Context(), p.Part(number)))
			}
			l, err := db.Intents().Prepare(e.Context(), e.Project, []driver.Update{suite.Move(refA, "", v1)}, agent, intents.WithPacks(p.ID))
			e.Must(err)
			e.Must(db.Intents().Finish(e.Context(), l, []string{refA}, nil))
			page, err := db.Packs().Page(e.Context(), driver.PackQuery{Project: e.Project, Limit: 10})
			e.Must(err)
			e.WantListed(page.Packs, p)
			data, err := db.Packs().Part(e.Context(), p.ID, 1)
			if e.Must(err); string(data) != string(p.Contents[1]) {
				e.Errorf("read %q", data)
			}
			u, err := db.Packs().Usage(e.Context(), e.Project)
			if want := (driver.PackUsage{Packs: 1, Size: 15}); err != nil || u != want {
				e.Errorf("%+v, %v", u, err)
			}
			e.Must(db.Packs().Drop(e.Context(), p.ID))
			e.WantStored(p)
		}},
		{"a project says which of its objects the database keeps", func(e *env) {
			db := e.Open(refdb.Options{})
			p := driver.Project{Project: e.Project, ID: "id", Rules: "ref refs/heads/*", Mode: "enforce"}
			for _, store := range []string{"", "all", "some", ""} {
				p.Store = store
				wrote, err := db.Projects().Put(e.Context(), p)
				e.Must(err)
				if got := e.Projects(driver.ProjectQuery{Project: e.Project}); len(got) != 1 || !suite.SameProject(got[0], wrote) || wrote.Store != store {
					e.Errorf("wrote %+v, read %+v, want %q", wrote, got, store)
				}
				p = wrote
			}
			p.Store = "a\x00b"
			_, err := db.Projects().Put(e.Context(), p)
			e.WantIs(err, driver.ErrInvalid)
		}},
		{"a preparation without its packs does nothing", func(e *env) {
			db := e.Open(refdb.Options{})
			p := e.Stored()
			_, err := db.Intents().Prepare(e.Context(), e.Project, []driver.Update{suite.Move(refA, "", v1)}, agent, intents.WithPacks(p.ID, "none"))
			e.WantClass(err, driver.ErrNoPack, driver.Permanent)
			e.WantNone()
			e.WantPacks()
		}},
		{"a part whose reply was lost is stored again", func(e *env) {
			for _, lose := range []func(string) func(suite.Call) error{suite.LoseReply, suite.LoseRequest} {
				db, t := openFaultyPacks(e)
				p := e.NewPack(3, 4)
				for number := range p.Contents {
					t.Inject(lose("StorePart"))
					e.Must(db.Packs().Store(e.Context(), p.Part(number)))
				}
				if n := t.Count("StorePart"); n != 4 {
					e.Errorf("%d requests, want 4", n)
				}
				e.WantStored(p)
			}
		}},
		{"P7 a preparation whose reply was lost is made again, with its packs", func(e *env) {
			for _, lose := range []func(string) func(suite.Call) error{suite.LoseReply, suite.LoseRequest} {
				db, t := openFaultyPacks(e)
				p := e.Stored()
				t.Inject(lose("Prepare"))
				ref := "refs/heads/" + p.ID
				l, err := db.Intents().Prepare(e.Context(), e.Project, []driver.Update{suite.Move(ref, "", v1)}, agent, intents.WithPacks(p.ID))
				e.Must(err)
				e.Listed(p)
				e.Must(db.Intents().Finish(e.Context(), l, []string{ref}, nil))
			}
		}},
		{"P7 a preparation whose reply was lost is made again, with the pack that comes with it", func(e *env) {
			for _, lose := range []func(string) func(suite.Call) error{suite.LoseReply, suite.LoseRequest} {
				db, t := openFaultyPacks(e)
				p := e.NewPack(10)
				t.Inject(lose("Prepare"))
				ref := "refs/heads/" + p.ID
				l, err := db.Intents().Prepare(e.Context(), e.Project, []driver.Update{suite.Move(ref, "", v1)}, agent, intents.WithPack(p.Part(0)))
				e.Must(err)
				e.Listed(p)
				e.WantStored(p)
				e.Must(db.Intents().Finish(e.Context(), l, []string{ref}, nil))
				if n := t.Count("StorePart"); n != 0 {
					e.Errorf("%d parts were stored", n)
				}
			}
		}},
		{"a pack that no preparation may store is refused before the database is asked", func(e *env) {
			db, t := openFaultyPacks(e)
			large := func() driver.PackPart {
				p := e.NewPack(driver.MaxPackPart/2 + 1)
				return p.Part(0)
			}
			many, base, other := e.NewPack(1, 1), e.NewBase(1, 1), e.NewPack(1)
			base.Tips = []string{string(v1)}
			other.Project += "/below"
			for what, parts := range map[string][]driver.PackPart{
				"no ID":           {{Last: true, Data: []byte("x")}},
				"the first part":  {many.Part(0)},
				"the last part":   {many.Part(1)},
				"a base":          {base.Part(0)},
				"another project": {other.Part(0)},
				"too much":        {large(), large()},
			} {
				options := make([]intents.Option, len(parts))
				for i, p := range parts {
					options[i] = intents.WithPack(p)
				}
				_, err := db.Intents().Prepare(e.Context(), e.Project, []driver.Update{suite.Move(refA, "", v1)}, agent, options...)
				if !errors.Is(err, driver.ErrInvalid) && !errors.Is(err, driver.ErrTooMany) {
					e.Errorf("%s: %v", what, err)
				}
			}
			if n := t.Count(""); n != 0 {
				e.Errorf("%d requests", n)
			}
		}},
		{"a part that no pack may have is refused before the database is asked", func(e *env) {
			db, t := openFaultyPacks(e)
			for what, change := range map[string]func(*driver.PackPart){
				"no ID":           func(p *driver.PackPart) { p.Pack.ID = "" },
				"a long ID":       func(p *driver.PackPart) { p.Pack.ID = strings.Repeat("i", 65) },
				"no data":         func(p *driver.PackPart) { p.Data = nil },
				"too much data":   func(p *driver.PackPart) { p.Data = make([]byte, driver.MaxPackPart+1) },
				"number -1":       func(p *driver.PackPart) { p.Number = -1 },
				"no tips":         func(p *driver.PackPart) { p.Pack.Tips = nil },
				"no project":      func(p *driver.PackPart) { p.Pack.Project = "" },
				"a bad project":   func(p *driver.PackPart) { p.Pack.Project = "a\x00b" },
				"a marker's name": func(p *driver.PackPart) { p.Pack.Project = "RECLAIM_x" },
			} {
				part := e.NewPack(1).Part(0)
				change(&part)
				if err := db.Packs().Store(e.Context(), part); !errors.Is(err, driver.ErrInvalid) {
					e.Errorf("%s: %v", what, err)
				}
			}
			if n := t.Count(""); n != 0 {
				e.Errorf("%d requests", n)
			}
		}},
		{"packs are dropped chunk by chunk until none is left", suite.Long(suite.Alone(func(e *env) {
			const many = 110
			db := e.Open(refdb.Options{})
			for range many {
				e.Stored()
			}
			e.Pass(time.Millisecond)
			if n, err := db.Packs().DropAbandoned(e.Context(), 0); n != many || err != nil {
				e.Errorf("abandoned: %d, %v", n, err)
			}
			var all []pack
			for range many {
				all = append(all, e.Stored())
			}
			e.Use(e.A, all...)
			e.Must(e.Update(e.A, suite.Move(refA, "", v1)))
			e.StorePack(e.A, e.NewBase(e.Complete(), 1)) // of the state after all
			if n, err := db.Packs().DropSuperseded(e.Context(), e.Project); n != many || err != nil {
				e.Errorf("superseded: %d, %v", n, err)
			}
			for range many {
				e.Stored()
			}
			if n, err := db.Packs().Remove(e.Context(), e.Project); n != many+1 || err != nil {
				e.Errorf("removed: %d, %v", n, err)
			}
			e.WantUsage(driver.PackUsage{})
		}))},
		{"removing a project removes its packs, and those of no other project", func(e *env) {
			db := e.Open(refdb.Options{})
			e.Must(e.Update(e.A, suite.Move(refA, "", v1)))
			p, other := e.Stored(), e.NewPack(1)
			other.Project += "/below"
			e.StorePack(e.A, other)
			if n, err := db.Projects().Remove(e.Context(), e.Project); n != 1 || err != nil {
				e.Errorf("%d, %v", n, err)
			}
			e.WantRefs(map[string]driver.Value{})
			e.WantGone(p)
			e.WantUsage(driver.PackUsage{})
			e.WantStored(other)
		}},
		{"a project that is not removed keeps its packs", func(e *env) {
			db := e.Open(refdb.Options{})
			e.Must(e.Update(e.A, suite.Move(refA, "", v1)))
			p := e.Stored()
			l := e.Acquire(e.A, refA)
			if _, err := db.Projects().Remove(e.Context(), e.Project); !errors.Is(err, driver.ErrLocked) {
				e.Errorf("%v", err)
			}
			e.WantStored(p)
			e.Release(e.A, l)
		}},
	}), row{"what is about packs is unsupported on a driver without them, and all else works", func(e *env) {
		db, t := e.OpenFaulty(refdb.Options{})
		p, ctx := e.NewPack(1), e.Context()
		_, prepared := db.Intents().Prepare(ctx, e.Project, []driver.Update{suite.Move(refA, "", v1)}, agent, intents.WithPacks(p.ID))
		for what, err := range map[string]error{
			"Prepare":             prepared,
			"StorePackPart":       db.Packs().Store(ctx, p.Part(0)),
			"Packs":               suite.ErrorOf(db.Packs().Page(ctx, driver.PackQuery{Project: e.Project, Limit: 1})),
			"PackPart":            suite.ErrorOf(db.Packs().Part(ctx, p.ID, 0)),
			"DropPack":            db.Packs().Drop(ctx, p.ID),
			"DropAbandonedPacks":  suite.ErrorOf(db.Packs().DropAbandoned(ctx, time.Hour)),
			"DropSupersededPacks": suite.ErrorOf(db.Packs().DropSuperseded(ctx, e.Project)),
			"RemovePacks":         suite.ErrorOf(db.Packs().Remove(ctx, e.Project)),
			"PackUsage":           suite.ErrorOf(db.Packs().Usage(ctx, e.Project)),
		} {
			if !errors.Is(err, errors.ErrUnsupported) {
				e.Errorf("%s: %v", what, err)
			}
		}
		if n := t.Count("Prepare"); n != 0 {
			e.Errorf("%d preparations", n)
		}
		e.Must(e.Update(e.A, suite.Move(refA, "", v1)))
		if n, err := db.Projects().Remove(ctx, e.Project); n != 1 || err != nil {
			e.Errorf("removed: %d, %v", n, err)
		}
	}})
}

// faultyPacks is a FaultyDriver that keeps packs.
type faultyPacks struct {
	*suite.FaultyDriver
	driver.PackStore
}

func (t *faultyPacks) StorePart(ctx context.Context, p driver.PackPart) error {
	return t.Call(ctx, "StorePart", p, func() error { return t.PackStore.StorePart(ctx, p) })
}

// openFaultyPacks is OpenFaulty for a driver that keeps packs.
func openFaultyPacks(e *env) (*refdb.DB, *suite.FaultyDriver) {
	e.Helper()
	t := e.Faulty()
	return e.OpenOn(&faultyPacks{t, t.Driver.(driver.PackStore)}, refdb.Options{}), t
}
