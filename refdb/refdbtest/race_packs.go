package refdbtest

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/globalrefdb/globalrefdb/refdb"
)

// Whatever deletes packs comes before a preparation that uses them, or after it.
func packRaceRows() []row {
	return ifPacks([]row{
		{"a pack that a preparation uses is not dropped, or the preparation does nothing", func(e *env) {
			e.useAgainst(func(p pack) error { return e.dropPack(p) })
		}},
		{"a pack that a preparation uses is not abandoned, or the preparation does nothing", alone(func(e *env) {
			e.useAgainst(func(pack) error { return errorOf(e.dropAbandoned(0, 10)) })
		})},
		{"packs of a project that is removed are used before, or not at all", func(e *env) {
			e.repeat(func(ref, _, _ string) {
				p := e.newPack(5, 5)
				e.storePack(e.a, p)
				var l preparation
				var err, dropErr error
				race(
					func() { l, err = e.tryUse(e.a, []pack{p}, move(ref, "", v1)) },
					func() { dropErr = errorOf(e.removePacks(10)) },
				)
				e.must(dropErr)
				if e.noPack(err) {
					e.wantNone()
				} else {
					e.wantIntended(l)
					e.drop(e.a, l)
				}
				if got := e.packList(); len(got) != 0 {
					e.Errorf("left is %s", keysOf(got))
				}
				e.wantGone(p)
			})
		}},
		{"of two preparations that use one pack both succeed, and it has the position of the first", func(e *env) {
			e.repeat(func(a, b, _ string) {
				p, other := e.stored(), e.stored()
				var ab, ba preparation
				var abErr, baErr error
				race(
					func() { ab, abErr = e.tryUse(e.a, []pack{p, other}, move(a, "", v1)) },
					func() { ba, baErr = e.tryUse(e.b, []pack{other, p}, move(b, "", v1)) },
				)
				e.must(abErr)
				e.must(baErr)
				was, wasOther := e.listed(p).Position, e.listed(other).Position
				if was != wasOther {
					e.Errorf("one preparation used both, at %d and %d", was, wasOther)
				}
				e.must(e.finish(e.a, ab))
				e.must(e.finish(e.b, ba))
				if now := e.listed(p).Position; now != was {
					e.Errorf("its position was %d and is %d", was, now)
				}
				for _, c := range slices.Concat(e.log(a), e.log(b)) {
					if c.Position <= was {
						e.Errorf("the pack has position %d, a change that it is for %d", was, c.Position)
					}
				}
			})
		}},
		{"a pack that is dropped while its last part is stored leaves nothing", func(e *env) {
			e.repeat(func(_, _, _ string) {
				p := e.newPack(3, 4, 5)
				e.storePack(e.a, p, 0, 1)
				var err, dropErr error
				race(
					func() { err = e.tryStorePack(e.a, p, 2) },
					func() { dropErr = e.dropPack(p) },
				)
				e.noPack(err)
				e.must(dropErr)
				e.wantGone(p)
				again := e.newPack(6, 7, 8)
				again.ID = p.ID
				e.storePack(e.b, again)
				e.wantStored(again)
				e.must(e.dropPack(again))
			})
		}},
		{"the last part is refused, or all others are there", func(e *env) {
			e.repeat(func(_, _, _ string) {
				p := e.newPack(3, 4, 5)
				e.storePack(e.a, p, 0)
				var err, lastErr error
				race(
					func() { err = e.tryStorePack(e.a, p, 1) },
					func() { lastErr = e.tryStorePack(e.b, p, 2) },
				)
				e.must(err)
				if e.noPack(lastErr) {
					_, err := e.b.packs().PackPart(e.Context(), p.ID, 0)
					e.wantIs(err, refdb.ErrNoPack)
					e.storePack(e.b, p, 2)
				}
				e.wantStored(p)
			})
		}},
		{"a part that is stored twice at once is stored once", func(e *env) {
			e.repeat(func(_, _, _ string) {
				p := e.newPack(3, 4, 5)
				want := e.usage().UnusedSize
				for number, data := range p.parts {
					var err, other error
					race(
						func() { err = e.tryStorePack(e.a, p, number) },
						func() { other = e.tryStorePack(e.b, p, number) },
					)
					e.must(err)
					e.must(other)
					want += int64(len(data))
					if got := e.usage().UnusedSize; got != want {
						e.Errorf("after part %d there are %d bytes, want %d", number, got, want)
					}
				}
				e.wantStored(p)
			})
		}},
		{"no pack appears at a position that was complete", func(e *env) {
			const writers = 4
			perWriter := max(e.rounds()/4, 5)
			var writing sync.WaitGroup
			var done atomic.Bool
			for w := range writers {
				writing.Go(func() {
					by := []process{e.a, e.b}[w%2]
					for range perWriter {
						p := e.newPack(1)
						if err := e.tryStorePack(by, p); err != nil {
							e.Error(err)
						}
						if _, err := e.tryUse(by, []pack{p}, move("refs/heads/"+p.ID, "", v1)); err != nil {
							e.Error(err)
						}
					}
				})
			}
			go func() {
				writing.Wait()
				done.Store(true)
			}()
			type look struct {
				upto refdb.Position
				keys []refdb.PackKey
			}
			var looks []look
			for finished := false; !finished; {
				finished = done.Load()
				page, err := e.b.packs().Packs(e.Context(), refdb.PackQuery{Project: e.project, Limit: 10_000})
				e.must(err)
				l := look{upto: page.Upto}
				for _, p := range page.Packs {
					l.keys = append(l.keys, p.Key())
				}
				looks = append(looks, l)
			}
			all := e.packList()
			if len(all) != writers*perWriter {
				e.Errorf("%d packs are listed, want %d", len(all), writers*perWriter)
			}
			for _, l := range looks {
				for _, p := range all {
					if p.Position <= l.upto && !slices.Contains(l.keys, p.Key()) {
						e.Fatalf("pack %v appeared when all up to %d were complete", p.Key(), l.upto)
					}
				}
			}
		}},
	})
}

// useAgainst lets preparations use packs while drop may delete them. If a preparation succeeds its pack is there.
func (e *env) useAgainst(drop func(pack) error) {
	e.Helper()
	e.repeat(func(a, b, _ string) {
		p := e.newPack(5, 5)
		e.storePack(e.a, p)
		var l preparation
		var err, dropErr error
		race(
			func() { l, err = e.tryUse(e.a, []pack{p}, move(a, "", v1), move(b, "", v1)) },
			func() { dropErr = drop(p) },
		)
		e.must(dropErr)
		if e.noPack(err) {
			e.wantNone()
			e.wantGone(p)
			return
		}
		e.wantIntended(l)
		e.listed(p)
		e.wantStored(p)
		e.drop(e.a, l)
	})
}
