package refdbtest

import (
	"fmt"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
)

// A preparation uses complete packs of its project, or does nothing.
func packUseRows() []row {
	return ifPacks([]row{
		{"packs get the position of the preparation that first uses them", func(e *env) {
			a, b, c := e.stored(), e.newPack(1, 2), e.stored()
			e.storePack(e.b, b)
			e.wantPacks()
			e.use(e.a, a, b)
			if got := e.packList(); len(got) != 2 || got[0].Position != got[1].Position || got[0].Position <= 0 {
				e.Fatalf("%+v", got)
			}
			at := e.listed(a).Position
			e.use(e.b, c)
			if got := e.listed(c).Position; got <= at {
				e.Errorf("position %d follows %d", got, at)
			}
		}},
		{"a pack that is used again keeps its position", func(e *env) {
			first := e.used()
			second := e.stored()
			e.use(e.b, first, second)
			if got := e.listed(first).Position; got != first.Position {
				e.Errorf("its position was %d and is %d", first.Position, got)
			}
			if got := e.listed(second).Position; got <= first.Position {
				e.Errorf("position %d follows %d", got, first.Position)
			}
		}},
		{"a pack that is named twice is used once", func(e *env) {
			p := e.stored()
			e.use(e.a, p, p)
			e.wantPacks(p)
		}},
		{"a pack comes after the changes before it, and before those that it is for", func(e *env) {
			e.must(e.update(e.a, move(refA, "", v1)))
			p := e.stored()
			l := e.use(e.a, p)
			e.must(e.finish(e.b, l))
			log := e.log("")
			if at := e.listed(p).Position; len(log) != 2 || log[0].Position >= at || log[1].Position <= at {
				e.Errorf("the pack has position %d, the changes are %+v", at, log)
			}
		}},
		{"a preparation does nothing if one of its packs is not there, not complete, or another project's", func(e *env) {
			good, begun, dropped, other := e.stored(), e.newPack(1, 1), e.stored(), e.newPack(1)
			e.storePack(e.a, begun, 0)
			e.must(e.dropPack(dropped))
			other.Project += "/below"
			e.storePack(e.a, other)
			for _, bad := range []pack{begun, dropped, other, e.newPack(1)} {
				for _, packs := range [][]pack{{bad}, {good, bad}, {bad, good}} {
					if _, err := e.tryUse(e.a, packs, move(refA, "", v1), move(refB, "", v1)); !e.noPack(err) {
						e.Errorf("pack %s was used", bad.ID)
					}
				}
			}
			e.wantNone()
			e.wantPacks()
			e.use(e.a, good)
			e.wantPacks(good)
		}},
		{"locks and values that refuse a preparation come before its packs, and leave them unused", func(e *env) {
			e.must(e.update(e.a, move(refB, "", v2)))
			l := e.acquire(e.b, refA)
			p := e.stored()
			for _, packs := range [][]pack{{p}, {p, e.newPack(1)}} {
				_, err := e.tryUse(e.a, packs, move(refA, "", v1), move(refB, v1, v3))
				e.wantHolders(err, refA)
				_, err = e.tryUse(e.a, packs, move(refB, v1, v3), move(refC, "", v1))
				e.wantMismatches(err, refdb.Mismatch{Ref: refB, Want: v1, Have: v2})
			}
			e.release(e.b, l)
			e.wantNone()
			e.wantPacks()
			e.wantDropped(1, e.removePacks, 10)
		}},
		{"P7 a preparation that is sent again is the same, whatever became of its packs", func(e *env) {
			p := e.stored()
			l := e.use(e.a, p)
			again, err := e.sendPrepare(e.b, l.PrepareRequest)
			if e.must(err); again.Token != l.Token {
				e.Errorf("token %d, and again %d", l.Token, again.Token)
			}
			e.wantDropped(1, e.removePacks, 10)
			again, err = e.sendPrepare(e.a, l.PrepareRequest)
			if e.must(err); again.Token != l.Token {
				e.Errorf("token %d, and again %d", l.Token, again.Token)
			}
			e.wantIntended(l)
		}},
		{"a preparation that was revoked uses no packs", func(e *env) {
			p := e.stored()
			r := e.prepareRequest(e.a, move(refA, "", v1))
			r.Packs = []string{p.ID}
			e.revoke(e.b, r)
			_, err := e.sendPrepare(e.a, r)
			e.wantIs(err, refdb.ErrReleased)
			e.wantPacks()
		}},
		{"packs stay used when the intents end, however", func(e *env) {
			var all []pack
			for _, end := range []func(preparation){
				func(l preparation) { e.must(e.finish(e.a, l)) },
				func(l preparation) { e.drop(e.a, l) },
				func(l preparation) { e.resolve(e.b, refdb.KeepOld, l.ids()...) },
				func(l preparation) { e.revoke(e.b, l.PrepareRequest) },
			} {
				p := e.stored()
				end(e.use(e.a, p))
				all = append(all, p)
			}
			e.wantPacks(all...)
		}},
	})
}

// Packs that are not needed any more are deleted, with all of their parts.
func packDropRows() []row {
	return ifPacks([]row{
		{"a pack that was not used can be dropped, complete or not", func(e *env) {
			whole, begun, used := e.newPack(1, 1), e.newPack(1, 1), e.used()
			e.storePack(e.a, whole)
			e.storePack(e.a, begun, 0)
			for _, p := range []pack{whole, begun, used, e.newPack(1)} {
				e.must(e.dropPack(p))
				e.must(e.dropPack(p))
			}
			e.wantGone(whole, begun)
			e.wantStored(used)
			e.wantPacks(used)
			e.wantUsage(refdb.PackUsage{Packs: 1, Size: 10})
		}},
		{"abandoned are packs that were not used and are old enough, and bases that were not completed", alone(func(e *env) {
			used, whole, begun, begunBase := e.used(), e.newPack(1, 1), e.newPack(1, 1), e.newBase(1, 1, 1)
			base := e.newBase(used.Position, 1, 1)
			base.ID = used.ID + "a"
			e.storePack(e.a, base)
			e.storePack(e.a, whole)
			e.storePack(e.a, begun, 0)
			e.storePack(e.a, begunBase, 0)
			other := e.newPack(1)
			other.Project += "/below"
			e.storePack(e.a, other)
			e.wantDropped(0, func(limit int) (int, error) { return e.dropAbandoned(time.Hour, limit) }, 10)
			e.wantStored(whole)
			e.pass(time.Millisecond)
			e.wantDropped(4, func(limit int) (int, error) { return e.dropAbandoned(0, limit) }, 3)
			e.wantGone(whole, begun, begunBase, other)
			e.wantPacks(base)
			e.wantStored(used)
			e.wantStored(base)
			e.wantUsage(refdb.PackUsage{Packs: 2, Bases: 1, Size: 12})
			e.wantIs(e.tryStorePack(e.a, begun, 1), refdb.ErrNoPack)
		})},
		{"a pack that still gets parts is not abandoned", alone(func(e *env) {
			// A slow machine takes longer than that to tell.
			for old := 50 * time.Millisecond; old < 5*time.Second; old *= 2 {
				p := e.newPack(1, 1, 1)
				e.storePack(e.a, p, 0)
				e.pass(old + 10*time.Millisecond)
				begin, err := e.a.Now(e.Context())
				e.must(err)
				e.storePack(e.b, p, 1)
				n, err := e.dropAbandoned(old, 10)
				e.must(err)
				now, err := e.a.Now(e.Context())
				if e.must(err); now.Sub(begin) > old {
					e.must(e.dropPack(p))
					continue
				}
				if n != 0 {
					e.Errorf("it was dropped %s after its second part", now.Sub(begin))
				}
				return
			}
		})},
		{"superseded are used packs before the latest complete base", func(e *env) {
			unused, other := e.stored(), e.newPack(1)
			other.Project += "/below"
			e.storePack(e.a, other)
			r := e.prepareRequest(e.a, move(refA, "", v1))
			r.Project, r.Packs = other.Project, []string{other.ID}
			_, err := e.sendPrepare(e.a, r)
			e.must(err)
			first, second, third := e.used(), e.used(), e.used()
			old, base, begun := e.newBase(first.Position, 1), e.newBase(second.Position, 1, 1), e.newBase(third.Position, 1, 1)
			base.ID = second.ID + "a"
			e.storePack(e.a, begun, 0)
			e.wantDropped(0, e.dropSuperseded, 10)
			e.storePack(e.a, old)
			e.storePack(e.a, base)
			e.wantDropped(3, e.dropSuperseded, 2)
			e.wantPacks(base, third)
			for _, p := range []pack{base, third, unused, other} {
				e.wantStored(p)
			}
			e.wantGone(first, second, old)
			e.storePack(e.a, begun, 1)
			last := []pack{begun}
			if third.ID > begun.ID {
				last = append(last, third)
			}
			e.wantDropped(3-len(last), e.dropSuperseded, 1)
			e.wantPacks(last...)
		}},
		{"all packs of a project are removed, and none of another one", func(e *env) {
			used, unused, begun, base, other := e.used(), e.stored(), e.newPack(1, 1), e.newBase(1, 1), e.newPack(1, 1)
			e.storePack(e.a, begun, 0)
			e.storePack(e.a, base)
			other.Project += "/below"
			e.storePack(e.a, other)
			e.wantDropped(4, e.removePacks, 3)
			e.wantGone(used, unused, begun, base)
			e.wantUsage(refdb.PackUsage{})
			e.wantStored(other)
			e.wantIs(e.tryStorePack(e.a, begun, 1), refdb.ErrNoPack)
		}},
		{"large packs go in several transactions, each as a whole", func(e *env) {
			if e.slow() {
				e.Skip("the database is slow")
			}
			var sizes []int
			for range 24 {
				sizes = append(sizes, refdb.MaxPackPart)
			}
			var all []pack
			for range 4 {
				p := e.newPack(sizes...)
				e.storePack(e.a, p)
				all = append(all, p)
			}
			e.wantDropped(4, e.removePacks, 10)
			e.wantGone(all...)
		}},
	})
}

// packWrites are requests of the methods that need an admitted server.
func (e *env) packWrites() []write {
	e.Helper()
	if !keepsPacks(e.a.Driver) {
		return nil
	}
	first, second, unused := e.used(), e.used(), e.stored()
	base, next := e.newBase(second.Position, 1), e.newPack(1)
	base.ID = second.ID + "a"
	e.storePack(e.a, base)
	ctx, s := e.Context(), e.a.packs()
	use := e.prepareRequest(e.a, move("refs/heads/with-a-pack", "", v1))
	use.Packs = []string{first.ID}
	return []write{
		{"StorePart", func() error { return s.StorePart(ctx, next.part(0)) }},
		{"Prepare with packs", func() error { return errorOf(e.a.Prepare(ctx, use)) }},
		{"DropPack", func() error { return s.DropPack(ctx, unused.ID) }},
		{"DropSupersededPacks", func() error { return errorOf(s.DropSupersededPacks(ctx, e.project, 10)) }},
		{"DropAbandonedPacks", func() error { return errorOf(s.DropAbandonedPacks(ctx, 0, 10)) }},
		{"RemovePacks", func() error { return errorOf(s.RemovePacks(ctx, e.project, 10)) }},
	}
}

// packsText is all that the project's packs have, as text.
func (e *env) packsText() string {
	e.Helper()
	if !keepsPacks(e.a.Driver) {
		return ""
	}
	return fmt.Sprintf("%s %+v", keysOf(e.packList()), e.usage())
}
