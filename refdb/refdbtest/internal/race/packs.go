package race

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/refdbtest/internal/suite"
)

// Whatever deletes packs comes before a preparation that uses them, or after it.
func packRows() []row {
	return suite.IfPacks([]row{
		{"a pack that a preparation uses is not dropped, or the preparation does nothing", func(e *env) {
			useAgainst(e, func(p pack) error { return e.DropPack(p) })
		}},
		{"a pack that a preparation uses is not abandoned, or the preparation does nothing", suite.Alone(func(e *env) {
			useAgainst(e, func(pack) error { return suite.ErrorOf(e.DropAbandoned(0, 10)) })
		})},
		{"packs of a project that is removed are used before, or not at all", func(e *env) {
			repeat(e, func(ref, _, _ string) {
				p := e.NewPack(5, 5)
				e.StorePack(e.A, p)
				var l preparation
				var err, dropErr error
				suite.Race(
					func() { l, err = e.TryUse(e.A, []pack{p}, suite.Move(ref, "", v1)) },
					func() { dropErr = suite.ErrorOf(e.RemovePacks(10)) },
				)
				e.Must(dropErr)
				if e.NoPack(err) {
					e.WantNone()
				} else {
					e.WantIntended(l)
					e.Drop(e.A, l)
				}
				if got := e.PackList(); len(got) != 0 {
					e.Errorf("left is %s", suite.KeysOf(got))
				}
				e.WantGone(p)
			})
		}},
		{"of two preparations that use one pack both succeed, and it has the position of the first", func(e *env) {
			repeat(e, func(a, b, _ string) {
				p, other := e.Stored(), e.Stored()
				var ab, ba preparation
				var abErr, baErr error
				suite.Race(
					func() { ab, abErr = e.TryUse(e.A, []pack{p, other}, suite.Move(a, "", v1)) },
					func() { ba, baErr = e.TryUse(e.B, []pack{other, p}, suite.Move(b, "", v1)) },
				)
				e.Must(abErr)
				e.Must(baErr)
				was, wasOther := e.Listed(p).Position, e.Listed(other).Position
				if was != wasOther {
					e.Errorf("one preparation used both, at %d and %d", was, wasOther)
				}
				e.Must(e.Finish(e.A, ab))
				e.Must(e.Finish(e.B, ba))
				if now := e.Listed(p).Position; now != was {
					e.Errorf("its position was %d and is %d", was, now)
				}
				for _, c := range slices.Concat(e.ReadLog(a), e.ReadLog(b)) {
					if c.Position <= was {
						e.Errorf("the pack has position %d, a change that it is for %d", was, c.Position)
					}
				}
			})
		}},
		{"a pack that is dropped while its last part is stored leaves nothing", func(e *env) {
			repeat(e, func(_, _, _ string) {
				p := e.NewPack(3, 4, 5)
				e.StorePack(e.A, p, 0, 1)
				var err, dropErr error
				suite.Race(
					func() { err = e.TryStorePack(e.A, p, 2) },
					func() { dropErr = e.DropPack(p) },
				)
				e.NoPack(err)
				e.Must(dropErr)
				e.WantGone(p)
				again := e.NewPack(6, 7, 8)
				again.ID = p.ID
				e.StorePack(e.B, again)
				e.WantStored(again)
				e.Must(e.DropPack(again))
			})
		}},
		{"the last part is refused, or all others are there", func(e *env) {
			repeat(e, func(_, _, _ string) {
				p := e.NewPack(3, 4, 5)
				e.StorePack(e.A, p, 0)
				var err, lastErr error
				suite.Race(
					func() { err = e.TryStorePack(e.A, p, 1) },
					func() { lastErr = e.TryStorePack(e.B, p, 2) },
				)
				e.Must(err)
				if e.NoPack(lastErr) {
					_, err := e.B.PackStore().PackPart(e.Context(), p.ID, 0)
					e.WantIs(err, driver.ErrNoPack)
					e.StorePack(e.B, p, 2)
				}
				e.WantStored(p)
			})
		}},
		{"a part that is stored twice at once is stored once", func(e *env) {
			repeat(e, func(_, _, _ string) {
				p := e.NewPack(3, 4, 5)
				want := e.Usage().UnusedSize
				for number, data := range p.Contents {
					var err, other error
					suite.Race(
						func() { err = e.TryStorePack(e.A, p, number) },
						func() { other = e.TryStorePack(e.B, p, number) },
					)
					e.Must(err)
					e.Must(other)
					want += int64(len(data))
					if got := e.Usage().UnusedSize; got != want {
						e.Errorf("after part %d there are %d bytes, want %d", number, got, want)
					}
				}
				e.WantStored(p)
			})
		}},
		{"no pack appears at a position that was complete", func(e *env) {
			const writers = 4
			perWriter := max(e.Rounds()/4, 5)
			var writing sync.WaitGroup
			var done atomic.Bool
			for w := range writers {
				writing.Go(func() {
					by := []process{e.A, e.B}[w%2]
					for range perWriter {
						p := e.NewPack(1)
						if err := e.TryStorePack(by, p); err != nil {
							e.Error(err)
						}
						if _, err := e.TryUse(by, []pack{p}, suite.Move("refs/heads/"+p.ID, "", v1)); err != nil {
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
				upto driver.Position
				keys []driver.PackKey
			}
			var looks []look
			for finished := false; !finished; {
				finished = done.Load()
				page, err := e.B.PackStore().Packs(e.Context(), driver.PackQuery{Project: e.Project, Limit: 10_000})
				e.Must(err)
				l := look{upto: page.Upto}
				for _, p := range page.Packs {
					l.keys = append(l.keys, p.Key())
				}
				looks = append(looks, l)
			}
			all := e.PackList()
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

// useAgainst lets preparations use packs while drop may delete them. If a preparation succeeds its
// pack is there.
func useAgainst(e *env, drop func(pack) error) {
	e.Helper()
	repeat(e, func(a, b, _ string) {
		p := e.NewPack(5, 5)
		e.StorePack(e.A, p)
		var l preparation
		var err, dropErr error
		suite.Race(
			func() { l, err = e.TryUse(e.A, []pack{p}, suite.Move(a, "", v1), suite.Move(b, "", v1)) },
			func() { dropErr = drop(p) },
		)
		e.Must(dropErr)
		if e.NoPack(err) {
			e.WantNone()
			e.WantGone(p)
			return
		}
		e.WantIntended(l)
		e.Listed(p)
		e.WantStored(p)
		e.Drop(e.A, l)
	})
}
