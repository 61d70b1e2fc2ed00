package refdbtest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
)

// A pack is stored part by part, and complete once the last one is there.
func packRows() []row {
	return ifPacks([]row{
		{"a pack is as it was stored", func(e *env) {
			p := e.newPack(40, refdb.MaxPackPart, 1)
			p.Owner, p.Tips = "o'brien/ö", []string{string(v3), string(v1)}
			for range 2000 {
				p.Bases = append(p.Bases, strings.ToLower(rand.Text()))
			}
			before, err := e.a.Now(e.Context())
			e.must(err)
			for number := range p.parts {
				e.storePack([]process{e.a, e.b}[number%2], p, number)
			}
			e.wantStored(p)
			e.use(e.b, p)
			e.wantStored(p)
			got := e.listed(p)
			after, err := e.a.Now(e.Context())
			e.must(err)
			last := p.part(2).Pack
			if got.Project != e.project || got.Owner != p.Owner || !slices.Equal(got.Bases, p.Bases) || !slices.Equal(got.Tips, p.Tips) || got.Base ||
				got.Parts != 3 || got.Size != last.Size || got.Sum != last.Sum || got.Position == 0 || got.Data != nil {
				e.Errorf("got %+v, stored %+v", got, last)
			}
			if got.Age < 0 || got.Age > after.Sub(before) {
				e.Errorf("it is %s old, and began %s ago", got.Age, after.Sub(before))
			}
		}},
		{"the age of a pack is that of its latest part", func(e *env) {
			for range 5 { // a slow machine may take longer to look than it waits
				p := e.newPack(1, 1)
				e.storePack(e.a, p, 0)
				e.pass(30 * time.Millisecond)
				between, err := e.a.Now(e.Context())
				e.must(err)
				e.storePack(e.b, p, 1)
				e.use(e.a, p)
				got := e.listed(p)
				after, err := e.a.Now(e.Context())
				if e.must(err); got.Age > after.Sub(between) {
					e.Errorf("it is %s old, and its last part at most %s", got.Age, after.Sub(between))
				}
			}
		}},
		{"a pack need not leave anything out", func(e *env) {
			p := e.newPack(3)
			p.Bases = nil
			e.storePack(e.a, p)
			e.use(e.a, p)
			if got := e.listed(p); len(got.Bases) != 0 || !slices.Equal(got.Tips, p.Tips) {
				e.Errorf("got %+v", got)
			}
		}},
		{"a part that is stored again changes nothing", func(e *env) {
			p := e.newPack(10, 20, 30)
			other := p
			other.parts = [][]byte{[]byte("x"), []byte("y"), []byte("z")}
			e.storePack(e.a, p, 0, 1)
			e.storePack(e.b, other, 1, 0)
			e.wantUsage(refdb.PackUsage{Unused: 1, UnusedSize: 30})
			e.storePack(e.a, p, 2)
			e.storePack(e.b, other)
			e.wantStored(p)
			e.wantUsage(refdb.PackUsage{Unused: 1, UnusedSize: 60})
			e.use(e.a, p)
			was := e.listed(p)
			e.storePack(e.b, other)
			now := e.listed(p)
			if was.Age, now.Age = 0, 0; fmt.Sprint(was) != fmt.Sprint(now) {
				e.Errorf("it was %+v and is %+v", was, now)
			}
			e.wantStored(p)
		}},
		{"a part of a pack that was not begun, or was dropped, is refused", func(e *env) {
			p := e.newPack(1, 1, 1)
			e.wantIs(e.tryStorePack(e.a, p, 1), refdb.ErrNoPack)
			e.wantIs(e.tryStorePack(e.a, p, 2), refdb.ErrNoPack)
			e.wantUsage(refdb.PackUsage{})
			e.storePack(e.a, p, 0, 1)
			e.must(e.dropPack(p))
			e.wantIs(e.tryStorePack(e.a, p, 2), refdb.ErrNoPack)
			e.wantIs(e.tryStorePack(e.a, p, 1), refdb.ErrNoPack)
			e.wantUsage(refdb.PackUsage{})
			e.wantGone(p)
		}},
		{"nothing is left of the parts of a dropped pack", func(e *env) {
			p := e.newPack(1, 2, 3)
			e.storePack(e.a, p)
			e.must(e.dropPack(p))
			again := e.newPack(4, 5, 6)
			again.ID = p.ID
			e.storePack(e.a, again)
			e.wantStored(again)
		}},
		{"the last part is refused until all others are there, in any order", func(e *env) {
			p := e.newPack(1, 2, 3, 4)
			e.storePack(e.a, p, 0, 2)
			e.wantIs(e.tryStorePack(e.b, p, 3), refdb.ErrNoPack)
			_, err := e.tryUse(e.a, []pack{p}, move(refA, "", v1))
			e.wantIs(err, refdb.ErrNoPack)
			e.storePack(e.a, p, 1)
			e.storePack(e.b, p, 3)
			e.wantStored(p)
			e.use(e.a, p)
		}},
		{"a complete pack takes no other part", func(e *env) {
			p := e.newPack(1, 2)
			e.storePack(e.a, p)
			longer := e.newPack(1, 2, 3, 4)
			longer.ID = p.ID
			e.wantIs(e.tryStorePack(e.b, longer, 2), refdb.ErrNoPack)
			e.wantIs(e.tryStorePack(e.b, longer, 3), refdb.ErrNoPack)
			e.wantStored(p)
		}},
		{"a pack that is not complete can't be read", func(e *env) {
			p := e.newPack(1, 1)
			e.storePack(e.a, p, 0)
			_, err := e.b.packs().PackPart(e.Context(), p.ID, 0)
			e.wantIs(err, refdb.ErrNoPack)
			_, err = e.b.packs().PackPart(e.Context(), "none", 0)
			e.wantIs(err, refdb.ErrNoPack)
		}},
		{"a base is in the order at the position that it says, once it is complete", func(e *env) {
			first, second := e.used(), e.used()
			base := e.newBase(first.Position, 1, 1)
			base.ID = first.ID + "a"
			e.storePack(e.a, base, 0)
			e.wantPacks(first, second)
			e.storePack(e.b, base, 1)
			e.wantPacks(base, second)
			if got := e.listed(base); !got.Base || got.Position != first.Position || len(got.Tips) != 0 || got.Parts != 2 {
				e.Errorf("got %+v", got)
			}
			e.use(e.a, base)
			e.wantPacks(base, second)
		}},
		{"packs are counted, of a project or of all", alone(func(e *env) {
			e.wantUsage(refdb.PackUsage{})
			used, unused, base, begun := e.newPack(10, 5), e.newPack(7), e.newBase(1, 100), e.newBase(1, 1000, 1)
			e.storePack(e.a, used)
			e.storePack(e.a, unused)
			e.storePack(e.a, base)
			e.storePack(e.a, begun, 0)
			e.use(e.a, used)
			other := e.newPack(20_000)
			other.Project += "/below"
			e.storePack(e.a, other)
			e.wantUsage(refdb.PackUsage{Packs: 2, Bases: 1, Size: 115, Unused: 2, UnusedSize: 1007})
			all, err := e.b.packs().PackUsage(e.Context(), "")
			if want := (refdb.PackUsage{Packs: 2, Bases: 1, Size: 115, Unused: 3, UnusedSize: 21_007}); err != nil || all != want {
				e.Errorf("of all: %+v, %v, want %+v", all, err, want)
			}
		})},
		{"an ended context is told", func(e *env) {
			p := e.stored()
			ctx, cancel := context.WithCancel(e.Context())
			cancel()
			s := e.a.packs()
			for what, do := range map[string]func() error{
				"StorePart":           func() error { return s.StorePart(ctx, e.newPack(1).part(0)) },
				"Packs":               func() error { return errorOf(s.Packs(ctx, refdb.PackQuery{Project: e.project, Limit: 1})) },
				"PackPart":            func() error { return errorOf(s.PackPart(ctx, p.ID, 0)) },
				"DropPack":            func() error { return s.DropPack(ctx, p.ID) },
				"DropAbandonedPacks":  func() error { return errorOf(s.DropAbandonedPacks(ctx, 24*time.Hour, 1)) },
				"DropSupersededPacks": func() error { return errorOf(s.DropSupersededPacks(ctx, e.project, 1)) },
				"RemovePacks":         func() error { return errorOf(s.RemovePacks(ctx, e.project, 1)) },
				"PackUsage":           func() error { return errorOf(s.PackUsage(ctx, e.project)) },
			} {
				if err := do(); !errors.Is(err, context.Canceled) {
					e.Errorf("%s: %v", what, err)
				}
			}
			e.wantStored(p)
		}},
	})
}

// pass waits until the database's clock has moved on.
func (e *env) pass(d time.Duration) {
	e.Helper()
	begin, err := e.a.Now(e.Context())
	e.must(err)
	e.eventually("the time passes", func() bool {
		now, err := e.a.Now(e.Context())
		e.must(err)
		return now.Sub(begin) >= d
	})
}

// Used packs are listed by pages, in the order of their keys.
func packListRows() []row {
	return ifPacks([]row{
		{"used packs come in the order of position, then ID, by pages of any size", func(e *env) {
			var all []pack
			for _, n := range []int{1, 3, 2} {
				var packs []pack
				for range n {
					packs = append(packs, e.stored())
				}
				e.use(e.a, packs...)
				slices.SortFunc(packs, func(a, b pack) int { return strings.Compare(a.ID, b.ID) })
				all = append(all, packs...)
			}
			e.stored()
			e.storePack(e.a, e.newPack(1, 1), 0)
			other := e.newPack(1)
			other.Project += "/below"
			e.storePack(e.a, other)
			r := e.prepareRequest(e.a, move(refA, "", v1))
			r.Project, r.Packs = other.Project, []string{other.ID}
			_, err := e.sendPrepare(e.a, r)
			e.must(err)
			for limit := 1; limit <= 7; limit++ {
				var got []refdb.Pack
				for q := (refdb.PackQuery{Limit: limit}); len(got) <= len(all); {
					page := e.packPage(q)
					if got = append(got, page.Packs...); len(page.Packs) > limit || page.More && len(page.Packs) < limit {
						e.Fatalf("a page of at most %d has %d packs, and more is %t", limit, len(page.Packs), page.More)
					}
					if !page.More {
						break
					}
					q.After = page.Packs[limit-1].Key()
				}
				e.wantListed(got, all...)
				if !slices.IsSortedFunc(got, func(a, b refdb.Pack) int { return a.Key().Compare(b.Key()) }) {
					e.Errorf("by pages of %d: %s", limit, keysOf(got))
				}
			}
		}},
		{"a page begins after any key", func(e *env) {
			first, second := e.used(), e.used()
			for _, c := range []struct {
				after refdb.PackKey
				want  []pack
			}{
				{refdb.PackKey{}, []pack{first, second}},
				{refdb.PackKey{Position: first.Position}, []pack{first, second}},
				{first.Key(), []pack{second}},
				{refdb.PackKey{Position: first.Position, ID: first.ID + "a"}, []pack{second}},
				{refdb.PackKey{Position: second.Position}, []pack{second}},
				{second.Key(), nil},
			} {
				e.wantListed(e.packPage(refdb.PackQuery{After: c.after, Limit: 10}).Packs, c.want...)
			}
		}},
		{"a page begins with the latest complete base, whatever was dropped", func(e *env) {
			first, second, third := e.used(), e.used(), e.used()
			other := e.newBase(third.Position, 1)
			other.Project += "/below"
			e.storePack(e.a, other)
			old, base, begun := e.newBase(first.Position, 1), e.newBase(second.Position, 1), e.newBase(third.Position, 1, 1)
			old.ID, base.ID, begun.ID = first.ID+"a", second.ID+"a", third.ID+"a"
			e.storePack(e.a, base)
			e.storePack(e.a, old)
			e.storePack(e.a, begun, 0)
			for after, want := range map[refdb.PackKey][]pack{
				{}: {base, third}, first.Key(): {base, third}, second.Key(): {base, third}, base.Key(): {third}, third.Key(): nil,
			} {
				e.wantListed(e.packPage(refdb.PackQuery{After: after, Limit: 10}).Packs, want...)
			}
			if page := e.packPage(refdb.PackQuery{Limit: 1, Inline: 10}); !page.More || len(page.Packs) != 1 || len(page.Packs[0].Data) != 1 {
				e.Errorf("a page of one: %+v", page)
			}
			e.storePack(e.a, begun, 1)
			e.wantPacks(begun)
			e.wantStored(first)
		}},
		{"a page has the data of packs of one part, from the first on until one does not fit", func(e *env) {
			var all []pack
			for _, sizes := range [][]int{{10}, {20, 1}, {30}, {5}, {1}} {
				p := e.newPack(sizes...)
				e.storePack(e.a, p)
				e.use(e.a, p)
				all = append(all, p)
			}
			for inline, want := range map[int]string{0: ".....", 9: ".....", 10: "x....", 39: "x....", 40: "x.x..", 44: "x.x..", 45: "x.xx.", 46: "x.xxx", 1000: "x.xxx"} {
				var has strings.Builder
				for i, p := range e.packPage(refdb.PackQuery{Limit: 10, Inline: inline}).Packs {
					switch {
					case p.Data == nil:
						has.WriteByte('.')
					case string(p.Data) == string(all[i].parts[0]):
						has.WriteByte('x')
					default:
						has.WriteByte('?')
					}
				}
				if has.String() != want {
					e.Errorf("with %d bytes: %s, want %s", inline, &has, want)
				}
			}
			if page := e.packPage(refdb.PackQuery{Limit: 1, Inline: 1000}); !page.More || len(page.Packs) != 1 || len(page.Packs[0].Data) != 10 {
				e.Errorf("a page of one: %+v", page)
			}
		}},
		{"a page is complete up to where the history is", func(e *env) {
			p := e.used()
			e.must(e.update(e.a, move(refA, "", v1)))
			changed := e.complete()
			before := e.history().Upto
			page := e.packPage(refdb.PackQuery{Limit: 10})
			after := e.history().Upto
			if page.Upto < before || page.Upto > after || page.Upto < changed || page.Upto < p.Position {
				e.Errorf("the pack %d and the change %d are complete up to %d; the history was up to %d before, and %d after", p.Position, changed, page.Upto, before, after)
			}
		}},
	})
}
