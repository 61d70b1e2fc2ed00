package driver

import (
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/refdbtest/internal/suite"
)

// A preparation stores packs that come with it, and uses them.
func packCarriedRows() []row {
	return suite.IfPacks([]row{
		{"packs in a preparation are stored and used by it, like packs that exist already", func(e *env) {
			a, b, c := e.NewCarried(), e.Stored(), e.NewCarried()
			e.Use(e.A, a, b, c)
			for _, p := range []pack{a, b, c} {
				e.WantStored(p)
				got := e.Listed(p)
				want := p.Part(0).Pack
				if got.Project != want.Project || got.Owner != want.Owner || got.Size != want.Size || got.Sum != want.Sum || got.Parts != 1 || got.Full ||
					len(got.Prerequisites) != len(want.Prerequisites) || len(got.Tips) != len(want.Tips) {
					e.Errorf("got %+v, want %+v", got, want)
				}
				if got.Position != e.Listed(a).Position || got.Position <= 0 {
					e.Errorf("position %d", got.Position)
				}
			}
			e.WantUsage(driver.PackUsage{Packs: 3, Size: 30})
			e.WantDropped(3, e.RemovePacks, 10)
			e.WantGone(a, b, c)
		}},
		{"a pack in a preparation that exists already is used unchanged", func(e *env) {
			p := e.NewCarried()
			e.StorePack(e.B, p)
			used := e.NewCarried()
			e.Use(e.B, used)
			at := e.Listed(used).Position
			e.Use(e.A, p, used)
			e.WantStored(p)
			e.WantPacks(used, p)
			if got := e.Listed(used).Position; got != at {
				e.Errorf("its position was %d and is %d", at, got)
			}
			e.WantUsage(driver.PackUsage{Packs: 2, Size: 20})
		}},
		{"a pack of a refused preparation is not used, and can be sent again", func(e *env) {
			e.Must(e.Update(e.A, suite.Move(refB, "", v2)))
			l := e.Acquire(e.B, refA)
			p := e.NewCarried()
			try := func(packs ...pack) (preparation, error) {
				return e.TryUse(e.A, packs, suite.Move(refA, "", v1))
			}
			_, err := try(p)
			e.WantHolders(err, refA)
			_, err = e.TryUse(e.A, []pack{p}, suite.Move(refB, v1, v3))
			e.WantMismatches(err, driver.Mismatch{Ref: refB, Want: v1, Have: v2})
			e.Release(e.B, l)
			if _, err := try(p, e.NewPack(1)); !e.NoPack(err) {
				e.Error("a pack was used that is not there")
			}
			e.WantNone()
			e.WantPacks()
			prepared, err := try(p)
			e.Must(err)
			e.WantIntended(prepared)
			e.WantStored(p)
			e.WantPacks(p)
			e.WantUsage(driver.PackUsage{Packs: 1, Size: 10})
		}},
		{"a pack of another project is not used", func(e *env) {
			p := e.NewCarried()
			p.Project += "/below"
			e.StorePack(e.A, p)
			if _, err := e.TryUse(e.A, []pack{p}, suite.Move(refA, "", v1)); !e.NoPack(err) {
				e.Error("it was used")
			}
			e.WantNone()
		}},
		{"a pack with required values is used if the refs hold them, whether locked or not", func(e *env) {
			e.Must(e.Update(e.A, suite.Move(refA, "", v1), suite.Move(refB, "", v2), suite.Move(refC, "", v3)))
			e.Must(e.Update(e.A, suite.Move(refC, v3, driver.Deleted)))
			l := e.Acquire(e.B, refB)
			p := e.NewCarried()
			try := func(bases ...driver.RefValue) (preparation, error) {
				r := e.PrepareRequest(e.A, suite.Move(refA, v1, v2))
				r.Packs, r.Parts, r.RequiredValues = []string{p.ID}, []driver.PackPart{p.Part(0)}, bases
				return e.SendPrepare(e.A, r)
			}
			for _, bases := range [][]driver.RefValue{
				{{Ref: refB, Value: v1}}, {{Ref: refC, Value: v3}}, {{Ref: "refs/heads/none", Value: v1}},
				{{Ref: refA, Value: v2}}, {{Ref: refA, Value: v1}, {Ref: refB, Value: v3}}, {{Ref: refB, Value: v1}, {Ref: refB, Value: v2}},
			} {
				if _, err := try(bases...); !e.NoPack(err) {
					e.Errorf("it was used, built on %+v", bases)
				}
			}
			e.WantPacks()
			prepared, err := try(driver.RefValue{Ref: refA, Value: v1}, driver.RefValue{Ref: refB, Value: v2})
			e.Must(err)
			e.WantIntended(prepared)
			e.WantPacks(p)
			e.Release(e.B, l)
			other := e.Acquire(e.A, refB)
			e.Release(e.A, other)
		}},
		{"P7 a repeated preparation is the same, whatever happened to its inline pack", func(e *env) {
			p := e.NewCarried()
			l := e.Use(e.A, p)
			again, err := e.SendPrepare(e.B, l.PrepareRequest)
			if e.Must(err); again.Token != l.Token {
				e.Errorf("token %d, and again %d", l.Token, again.Token)
			}
			e.WantPacks(p)
			e.WantDropped(1, e.RemovePacks, 10)
			again, err = e.SendPrepare(e.A, l.PrepareRequest)
			if e.Must(err); again.Token != l.Token {
				e.Errorf("token %d, and again %d", l.Token, again.Token)
			}
			e.WantIntended(l)
			e.WantPacks()
		}},
		{"a pack of a revoked preparation is not used", func(e *env) {
			p := e.NewCarried()
			r := e.PrepareRequest(e.A, suite.Move(refA, "", v1))
			r.Packs, r.Parts = []string{p.ID}, []driver.PackPart{p.Part(0)}
			e.Revoke(e.B, r)
			_, err := e.SendPrepare(e.A, r)
			e.WantIs(err, driver.ErrReleased)
			e.WantPacks()
		}},
	})
}
