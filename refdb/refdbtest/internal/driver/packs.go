package driver

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/refdbtest/internal/suite"
)

// A pack is stored part by part, and complete once the last one is there.
func packRows() []row {
	return suite.IfPacks([]row{
		{"a pack is read as it was stored", func(e *env) {
			p := e.NewPack(40, driver.MaxPackPart, 1)
			p.Owner, p.Tips = "o'brien/ö", []string{string(v3), string(v1)}
			for range 2000 {
				p.Prerequisites = append(p.Prerequisites, strings.ToLower(rand.Text()))
			}
			before, err := e.A.Now(e.Context())
			e.Must(err)
			for number := range p.Contents {
				e.StorePack([]process{e.A, e.B}[number%2], p, number)
			}
			e.WantStored(p)
			e.Use(e.B, p)
			e.WantStored(p)
			got := e.Listed(p)
			after, err := e.A.Now(e.Context())
			e.Must(err)
			last := p.Part(2).Pack
			if got.Project != e.Project || got.Owner != p.Owner || !slices.Equal(got.Prerequisites, p.Prerequisites) || !slices.Equal(got.Tips, p.Tips) || got.Full ||
				got.Parts != 3 || got.Size != last.Size || got.Sum != last.Sum || got.Position == 0 || got.Data != nil {
				e.Errorf("got %+v, stored %+v", got, last)
			}
			if got.Age < 0 || got.Age > after.Sub(before) {
				e.Errorf("it is %s old, and began %s ago", got.Age, after.Sub(before))
			}
		}},
		{"the age of a pack is that of its latest part", func(e *env) {
			for range 5 { // a slow machine may take longer to look than it waits
				p := e.NewPack(1, 1)
				e.StorePack(e.A, p, 0)
				e.Pass(30 * time.Millisecond)
				between, err := e.A.Now(e.Context())
				e.Must(err)
				e.StorePack(e.B, p, 1)
				e.Use(e.A, p)
				got := e.Listed(p)
				after, err := e.A.Now(e.Context())
				if e.Must(err); got.Age > after.Sub(between) {
					e.Errorf("it is %s old, and its last part at most %s", got.Age, after.Sub(between))
				}
			}
		}},
		{"a pack need not have prerequisites", func(e *env) {
			p := e.NewPack(3)
			p.Prerequisites = nil
			e.StorePack(e.A, p)
			e.Use(e.A, p)
			if got := e.Listed(p); len(got.Prerequisites) != 0 || !slices.Equal(got.Tips, p.Tips) {
				e.Errorf("got %+v", got)
			}
		}},
		{"a part that is stored again changes nothing", func(e *env) {
			p := e.NewPack(10, 20, 30)
			other := p
			other.Contents = [][]byte{[]byte("x"), []byte("y"), []byte("z")}
			e.StorePack(e.A, p, 0, 1)
			e.StorePack(e.B, other, 1, 0)
			e.WantUsage(driver.PackUsage{Unused: 1, UnusedSize: 30})
			e.StorePack(e.A, p, 2)
			e.StorePack(e.B, other)
			e.WantStored(p)
			e.WantUsage(driver.PackUsage{Unused: 1, UnusedSize: 60})
			e.Use(e.A, p)
			was := e.Listed(p)
			e.StorePack(e.B, other)
			now := e.Listed(p)
			if was.Age, now.Age = 0, 0; fmt.Sprint(was) != fmt.Sprint(now) {
				e.Errorf("it was %+v and is %+v", was, now)
			}
			e.WantStored(p)
		}},
		{"a part of a pack that was not begun, or was dropped, is refused", func(e *env) {
			p := e.NewPack(1, 1, 1)
			e.WantIs(e.TryStorePack(e.A, p, 1), driver.ErrNoPack)
			e.WantIs(e.TryStorePack(e.A, p, 2), driver.ErrNoPack)
			e.WantUsage(driver.PackUsage{})
			e.StorePack(e.A, p, 0, 1)
			e.Must(e.DropPack(p))
			e.WantIs(e.TryStorePack(e.A, p, 2), driver.ErrNoPack)
			e.WantIs(e.TryStorePack(e.A, p, 1), driver.ErrNoPack)
			e.WantUsage(driver.PackUsage{})
			e.WantGone(p)
		}},
		{"a dropped pack leaves no parts", func(e *env) {
			p := e.NewPack(1, 2, 3)
			e.StorePack(e.A, p)
			e.Must(e.DropPack(p))
			again := e.NewPack(4, 5, 6)
			again.ID = p.ID
			e.StorePack(e.A, again)
			e.WantStored(again)
		}},
		{"the last part is refused until all others are there, in any order", func(e *env) {
			p := e.NewPack(1, 2, 3, 4)
			e.StorePack(e.A, p, 0, 2)
			e.WantIs(e.TryStorePack(e.B, p, 3), driver.ErrNoPack)
			_, err := e.TryUse(e.A, []pack{p}, suite.Move(refA, "", v1))
			e.WantIs(err, driver.ErrNoPack)
			e.StorePack(e.A, p, 1)
			e.StorePack(e.B, p, 3)
			e.WantStored(p)
			e.Use(e.A, p)
		}},
		{"a complete pack takes no other part", func(e *env) {
			p := e.NewPack(1, 2)
			e.StorePack(e.A, p)
			longer := e.NewPack(1, 2, 3, 4)
			longer.ID = p.ID
			e.WantIs(e.TryStorePack(e.B, longer, 2), driver.ErrNoPack)
			e.WantIs(e.TryStorePack(e.B, longer, 3), driver.ErrNoPack)
			e.WantStored(p)
		}},
		{"a pack that is not complete can't be read", func(e *env) {
			p := e.NewPack(1, 1)
			e.StorePack(e.A, p, 0)
			_, err := e.B.PackStore().PackPart(e.Context(), p.ID, 0)
			e.WantIs(err, driver.ErrNoPack)
			_, err = e.B.PackStore().PackPart(e.Context(), "none", 0)
			e.WantIs(err, driver.ErrNoPack)
		}},
		{"a base is used at its own position once it is complete", func(e *env) {
			first, second := e.Used(), e.Used()
			base := e.NewBase(first.Position, 1, 1)
			base.ID = first.ID + "a"
			e.StorePack(e.A, base, 0)
			e.WantPacks(first, second)
			e.StorePack(e.B, base, 1)
			e.WantPacks(base, second)
			if got := e.Listed(base); !got.Full || got.Position != first.Position || len(got.Tips) != 0 || got.Parts != 2 {
				e.Errorf("got %+v", got)
			}
			e.Use(e.A, base)
			e.WantPacks(base, second)
		}},
		{"packs of one project or of all are counted", suite.Alone(func(e *env) {
			e.WantUsage(driver.PackUsage{})
			used, unused, base, begun := e.NewPack(10, 5), e.NewPack(7), e.NewBase(1, 100), e.NewBase(1, 1000, 1)
			e.StorePack(e.A, used)
			e.StorePack(e.A, unused)
			e.StorePack(e.A, base)
			e.StorePack(e.A, begun, 0)
			e.Use(e.A, used)
			other := e.NewPack(20_000)
			other.Project += "/below"
			e.StorePack(e.A, other)
			e.WantUsage(driver.PackUsage{Packs: 2, FullPacks: 1, Size: 115, Unused: 2, UnusedSize: 1007})
			all, err := e.B.PackStore().PackUsage(e.Context(), "")
			if want := (driver.PackUsage{Packs: 2, FullPacks: 1, Size: 115, Unused: 3, UnusedSize: 21_007}); err != nil || all != want {
				e.Errorf("of all: %+v, %v, want %+v", all, err, want)
			}
		})},
		{"an ended context is reported", func(e *env) {
			p := e.Stored()
			ctx, cancel := context.WithCancel(e.Context())
			cancel()
			s := e.A.PackStore()
			for what, do := range map[string]func() error{
				"StorePart":           func() error { return s.StorePart(ctx, e.NewPack(1).Part(0)) },
				"Packs":               func() error { return suite.ErrorOf(s.Packs(ctx, driver.PackQuery{Project: e.Project, Limit: 1})) },
				"PackPart":            func() error { return suite.ErrorOf(s.PackPart(ctx, p.ID, 0)) },
				"DropPack":            func() error { return s.DropPack(ctx, p.ID) },
				"DropAbandonedPacks":  func() error { return suite.ErrorOf(s.DropAbandonedPacks(ctx, 24*time.Hour, 1)) },
				"DropSupersededPacks": func() error { return suite.ErrorOf(s.DropSupersededPacks(ctx, e.Project, 1)) },
				"RemovePacks":         func() error { return suite.ErrorOf(s.RemovePacks(ctx, e.Project, 1)) },
				"PackUsage":           func() error { return suite.ErrorOf(s.PackUsage(ctx, e.Project)) },
			} {
				if err := do(); !errors.Is(err, context.Canceled) {
					e.Errorf("%s: %v", what, err)
				}
			}
			e.WantStored(p)
		}},
	})
}

// Used packs are listed by pages, in the order of their keys.
func packListRows() []row {
	return suite.IfPacks([]row{
		{"used packs come in the order of position, then ID, in pages of any size", suite.Long(func(e *env) {
			var all []pack
			for _, n := range []int{1, 3, 2} {
				var packs []pack
				for range n {
					packs = append(packs, e.Stored())
				}
				e.Use(e.A, packs...)
				slices.SortFunc(packs, func(a, b pack) int { return strings.Compare(a.ID, b.ID) })
				all = append(all, packs...)
			}
			e.Stored()
			e.StorePack(e.A, e.NewPack(1, 1), 0)
			other := e.NewPack(1)
			other.Project += "/below"
			e.StorePack(e.A, other)
			r := e.PrepareRequest(e.A, suite.Move(refA, "", v1))
			r.Project, r.Packs = other.Project, []string{other.ID}
			_, err := e.SendPrepare(e.A, r)
			e.Must(err)
			for limit := 1; limit <= 7; limit++ {
				var got []driver.Pack
				for q := (driver.PackQuery{Limit: limit}); len(got) <= len(all); {
					page := e.PackPage(q)
					if got = append(got, page.Packs...); len(page.Packs) > limit || page.More && len(page.Packs) < limit {
						e.Fatalf("a page of at most %d has %d packs, and more is %t", limit, len(page.Packs), page.More)
					}
					if !page.More {
						break
					}
					q.After = page.Packs[limit-1].Key()
				}
				e.WantListed(got, all...)
				if !slices.IsSortedFunc(got, func(a, b driver.Pack) int { return a.Key().Compare(b.Key()) }) {
					e.Errorf("by pages of %d: %s", limit, suite.KeysOf(got))
				}
			}
		})},
		{"a page begins after any key", func(e *env) {
			first, second := e.Used(), e.Used()
			for _, c := range []struct {
				after driver.PackKey
				want  []pack
			}{
				{driver.PackKey{}, []pack{first, second}},
				{driver.PackKey{Position: first.Position}, []pack{first, second}},
				{first.Key(), []pack{second}},
				{driver.PackKey{Position: first.Position, ID: first.ID + "a"}, []pack{second}},
				{driver.PackKey{Position: second.Position}, []pack{second}},
				{second.Key(), nil},
			} {
				e.WantListed(e.PackPage(driver.PackQuery{After: c.after, Limit: 10}).Packs, c.want...)
			}
		}},
		{"a page begins with the latest complete base, whatever was dropped", func(e *env) {
			first, second, third := e.Used(), e.Used(), e.Used()
			other := e.NewBase(third.Position, 1)
			other.Project += "/below"
			e.StorePack(e.A, other)
			old, base, begun := e.NewBase(first.Position, 1), e.NewBase(second.Position, 1), e.NewBase(third.Position, 1, 1)
			old.ID, base.ID, begun.ID = first.ID+"a", second.ID+"a", third.ID+"a"
			e.StorePack(e.A, base)
			e.StorePack(e.A, old)
			e.StorePack(e.A, begun, 0)
			for after, want := range map[driver.PackKey][]pack{
				{}: {base, third}, first.Key(): {base, third}, second.Key(): {base, third}, base.Key(): {third}, third.Key(): nil,
			} {
				e.WantListed(e.PackPage(driver.PackQuery{After: after, Limit: 10}).Packs, want...)
			}
			if page := e.PackPage(driver.PackQuery{Limit: 1, Inline: 10}); !page.More || len(page.Packs) != 1 || len(page.Packs[0].Data) != 1 {
				e.Errorf("a page of one: %+v", page)
			}
			e.StorePack(e.A, begun, 1)
			e.WantPacks(begun)
			e.WantStored(first)
		}},
		{"a page has the data of packs of one part, from the first on until one does not fit", func(e *env) {
			var all []pack
			for _, sizes := range [][]int{{10}, {20, 1}, {30}, {5}, {1}} {
				p := e.NewPack(sizes...)
				e.StorePack(e.A, p)
				e.Use(e.A, p)
				all = append(all, p)
			}
			for inline, want := range map[int]string{0: ".....", 9: ".....", 10: "x....", 39: "x....", 40: "x.x..", 44: "x.x..", 45: "x.xx.", 46: "x.xxx", 1000: "x.xxx"} {
				var has strings.Builder
				for i, p := range e.PackPage(driver.PackQuery{Limit: 10, Inline: inline}).Packs {
					switch {
					case p.Data == nil:
						has.WriteByte('.')
					case string(p.Data) == string(all[i].Contents[0]):
						has.WriteByte('x')
					default:
						has.WriteByte('?')
					}
				}
				if has.String() != want {
					e.Errorf("with %d bytes: %s, want %s", inline, &has, want)
				}
			}
			if page := e.PackPage(driver.PackQuery{Limit: 1, Inline: 1000}); !page.More || len(page.Packs) != 1 || len(page.Packs[0].Data) != 10 {
				e.Errorf("a page of one: %+v", page)
			}
		}},
		{"a page of packs is complete up to the history's complete position", func(e *env) {
			p := e.Used()
			e.Must(e.Update(e.A, suite.Move(refA, "", v1)))
			changed := e.Complete()
			before := e.History().Upto
			page := e.PackPage(driver.PackQuery{Limit: 10})
			after := e.History().Upto
			if page.Upto < before || page.Upto > after || page.Upto < changed || page.Upto < p.Position {
				e.Errorf("the pack %d and the change %d are complete up to %d; the history was up to %d before, and %d after", p.Position, changed, page.Upto, before, after)
			}
		}},
	})
}
