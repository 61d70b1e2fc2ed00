package refdbtest

import (
	"github.com/globalrefdb/globalrefdb/refdb"
)

// Hints may be lost, but not where nothing goes wrong.
func notifierRows() []row {
	return []row{
		{"whoever a lock is kept for is woken, whatever ended it", func(e *env) {
			b := e.listen()
			if b == nil {
				return // hints can't arrive here
			}
			for what, end := range e.handsOn() {
				ref := "refs/heads/" + what
				over := end(ref)
				w := b.waiter()
				w.waits(ref)
				over()
				b.wantWoken(ref, w, 0)
			}
		}},
		{"who comes after that one is told when its turn is over", func(e *env) {
			b := e.listen()
			if b == nil {
				return // hints can't arrive here
			}
			c := e.listen()
			for what, end := range e.handsOn() {
				ref := "refs/heads/" + what
				over := end(ref)
				first, second, third := b.waiter(), c.waiter(), b.waiter()
				for _, w := range []*queued{first, second, third} {
					w.waits(ref)
				}
				over()
				b.wantWoken(ref, first, 0)
				c.wantWoken(ref, second, first.Turn)
				e.release(e.b, first.granted(ref))
				c.wantWoken(ref, second, 0)
				b.wantWoken(ref, third, second.Turn)
			}
		}},
		{"one that can be woken is, if the lock is kept for nobody", func(e *env) {
			b := e.listen()
			if b == nil {
				return // hints can't arrive here
			}
			l := e.acquire(e.a, refA)
			dead, w := e.polling(e.b), b.waiter()
			dead.waits(refA)
			w.waits(refA)
			e.release(e.a, l)
			b.wantWoken(refA, w, 0)
			w.granted(refA)
		}},
		{"one that is next of the same owner is not woken, nor is anybody else", func(e *env) {
			b := e.listen()
			if b == nil {
				return // hints can't arrive here
			}
			l := e.acquire(e.a, refA)
			first, next := b.waiter(), b.waiter()
			next.process = e.a
			first.waits(refA)
			e.releaseTo(next, l)
			e.release(e.a, next.granted(refA))
			b.wantWoken(refA, first, 0)
			l = first.granted(refA)
			second := b.waiter()
			second.waits(refA)
			e.release(e.b, l)
			b.wantWoken(refA, second, 0)
		}},
		{"one that a lock is yielded to is woken", func(e *env) {
			b := e.listen()
			if b == nil {
				return // hints can't arrive here
			}
			l, _ := e.acquire(e.a, refA), e.acquire(e.a, refB)
			first, second := e.told(e.b), b.waiter()
			first.waits(refA, refB)
			second.waits(refA)
			e.release(e.a, l)
			b.wantWoken(refA, second, first.Turn)
			first.refused([]string{refA, refB}, refB)
			b.wantWoken(refA, second, 0)
		}},
		{"one behind whom gives up is woken", func(e *env) {
			b := e.listen()
			if b == nil {
				return // hints can't arrive here
			}
			l := e.acquire(e.a, refA)
			first, second := e.told(e.b), b.waiter()
			first.waits(refA)
			second.waits(refA)
			e.release(e.a, l)
			b.wantWoken(refA, second, first.Turn)
			first.givesUp(refA)
			b.wantWoken(refA, second, 0)
		}},
		{"a waiter of a stale lock is woken by the end of whatever took it over", func(e *env) {
			b := e.listen()
			if b == nil {
				return // hints can't arrive here
			}
			for what, take := range map[string]func(ref string) (over func()){
				"lock": func(ref string) func() {
					l := e.acquire(e.a, ref)
					return func() { e.release(e.a, l) }
				},
				"intent": func(ref string) func() {
					l := e.prepare(e.a, move(ref, "", v1))
					return func() { e.must(e.finish(e.a, l)) }
				},
			} {
				ref := "refs/heads/" + what
				l := e.acquire(e.a, ref)
				w := b.waiter()
				w.waits(ref)
				e.age(l, stale)
				take(ref)()
				b.wantWoken(ref, w, 0)
			}
		}},
		{"the end of an intent wakes a waiter, whoever ends it and how", func(e *env) {
			b := e.listen()
			if b == nil {
				return // hints can't arrive here
			}
			for what, end := range map[string]func(preparation) error{
				"dropped":  func(l preparation) error { return e.tryDrop(e.a, l) },
				"kept-old": func(l preparation) error { e.resolve(e.a, refdb.KeepOld, l.ids()...); return nil },
				"took-new": func(l preparation) error { e.resolve(e.a, refdb.TakeNew, l.ids()...); return nil },
				"revoked":  func(l preparation) error { e.revoke(e.a, l.PrepareRequest); return nil },
			} {
				ref := "refs/heads/" + what
				l := e.prepare(e.a, move(ref, "", v1))
				w := b.waiter()
				w.waits(ref)
				e.must(end(l))
				b.wantWoken(ref, w, 0)
			}
		}},
		{"whatever deletes a lock wakes the first who waits", func(e *env) {
			b := e.listen()
			if b == nil {
				return // hints can't arrive here
			}
			for _, end := range []struct {
				what string
				by   func(lock) error
			}{
				{"passing-update", func(l lock) error {
					e.age(l, stale)
					return e.update(e.b, move(l.refs()[0], "", v1))
				}},
				{"removal", func(l lock) error {
					e.age(l, stale)
					return second(e.b.Remove(e.Context(), refdb.RemoveRequest{Project: e.project, Limit: 10}))
				}},
				{"forced-removal", func(l lock) error {
					return second(e.b.Remove(e.Context(), refdb.RemoveRequest{Project: e.project, Limit: 10, Locks: refdb.AdvisoryLocks}))
				}},
			} {
				ref := "refs/heads/" + end.what
				l := e.acquire(e.a, ref)
				w := b.waiter()
				w.waits(ref)
				e.must(end.by(l))
				b.wantWoken(ref, w, 0)
			}
		}},
		{"several channels are listened to through one driver, and one of them may end and come back", func(e *env) {
			b := e.listen()
			if b == nil {
				return // hints can't arrive here
			}
			c := e.listenTo(b.process, someChannel())
			wakes := func(p *listener) {
				e.Helper()
				l := e.acquire(e.a, refA)
				w := p.waiter()
				w.waits(refA)
				e.release(e.a, l)
				p.wantWoken(refA, w, 0)
				w.givesUp(refA)
			}
			for _, p := range []*listener{b, c, b, c} {
				wakes(p)
			}
			b.stop()
			wakes(c)
			wakes(e.listenTo(b.process, b.channel))
		}},
	}
}
