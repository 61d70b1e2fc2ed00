package refdbtest

import (
	"github.com/globalrefdb/globalrefdb/refdb"
)

// Hints may be lost, but not where nothing goes wrong.
func notifierRows() []row {
	return []row{
		{"a release wakes the process that waits", func(e *env) {
			b := e.listen()
			if b == nil {
				return // hints can't arrive here
			}
			l := e.acquire(e.a, refA)
			b.wait(b.waiter, refA)
			e.release(e.a, l)
			b.wantWoken(refA, b.waiter)
		}},
		{"an update that releases wakes it", func(e *env) {
			b := e.listen()
			if b == nil {
				return // hints can't arrive here
			}
			l := e.acquire(e.a, refA)
			b.wait(b.waiter, refA)
			e.must(e.transact(e.a, refdb.UpdateRequest{Fence: l.releasing(), Updates: []refdb.Update{move(refA, "", v1)}}))
			b.wantWoken(refA, b.waiter)
		}},
		{"processes that wait are woken one after the other", func(e *env) {
			b := e.listen()
			if b == nil {
				return // hints can't arrive here
			}
			c := e.listen()
			l := e.acquire(e.a, refA)
			b.wait(b.waiter, refA)
			c.wait(c.waiter, refA)
			e.release(e.a, l)
			w := b.wantWoken(refA, b.waiter, c.waiter)
			l = b.take(w)
			e.release(b.process, l)
			c.wantWoken(refA, c.waiter)
		}},
		{"a process that is woken, and does not want the lock any more, passes it on", func(e *env) {
			b := e.listen()
			if b == nil {
				return // hints can't arrive here
			}
			c, d := e.listen(), e.listen()
			l := e.acquire(e.a, refA)
			for _, p := range []*listener{b, c, d} {
				p.wait(p.waiter, refA)
			}
			e.release(e.a, l)
			b.passOn(b.wantWoken(refA, b.waiter, c.waiter, d.waiter))
			c.passOn(c.wantWoken(refA, c.waiter, d.waiter))
			d.passOn(d.wantWoken(refA, d.waiter)) // there is nobody left

			l = e.acquire(e.a, refA)
			b.wait(b.waiter, refA)
			e.release(e.a, l)
			b.wantWoken(refA, b.waiter)
		}},
		{"a process that waits for several locks is woken by the release of the one that is held", func(e *env) {
			b := e.listen()
			if b == nil {
				return // hints can't arrive here
			}
			l := e.acquire(e.a, refB)
			b.wait(b.waiter, refA, refB, refC)
			e.release(e.a, l)
			b.wantWoken(refB, b.waiter)
		}},
		{"a waiter of a stale lock is woken by the release of the lock that took it over", func(e *env) {
			b := e.listen()
			if b == nil {
				return // hints can't arrive here
			}
			l := e.acquire(e.a, refA)
			b.wait(b.waiter, refA)
			e.age(l, stale)
			l = e.acquire(e.a, refA)
			e.release(e.a, l)
			b.wantWoken(refA, b.waiter)
		}},
		{"a waiter of a stale lock is woken by the end of the preparation that took it over", func(e *env) {
			b := e.listen()
			if b == nil {
				return // hints can't arrive here
			}
			l := e.acquire(e.a, refA)
			b.wait(b.waiter, refA)
			e.age(l, stale)
			e.must(e.finish(e.a, e.prepare(e.a, move(refA, "", v1))))
			b.wantWoken(refA, b.waiter)
		}},
		{"beats, and updates that keep the lock, leave its queue", func(e *env) {
			b := e.listen()
			if b == nil {
				return // hints can't arrive here
			}
			l := e.acquire(e.a, refA)
			b.wait(b.waiter, refA)
			e.beat(e.a, l.ids()...)
			e.must(e.transact(e.a, refdb.UpdateRequest{Fence: l.fence(), Updates: []refdb.Update{move(refA, "", v1)}}))
			e.beat(e.a, l.ids()...)
			e.release(e.a, l)
			b.wantWoken(refA, b.waiter)
		}},
		{"the end of an intent wakes a waiter, whoever ends it and how", func(e *env) {
			b := e.listen()
			if b == nil {
				return // hints can't arrive here
			}
			for what, end := range map[string]func(preparation) error{
				"done":     func(l preparation) error { return e.finish(e.a, l) },
				"dropped":  func(l preparation) error { return e.tryDrop(e.a, l) },
				"kept-old": func(l preparation) error { e.resolve(e.a, refdb.KeepOld, l.ids()...); return nil },
				"took-new": func(l preparation) error { e.resolve(e.a, refdb.TakeNew, l.ids()...); return nil },
				"revoked":  func(l preparation) error { e.revoke(e.a, l.PrepareRequest); return nil },
			} {
				ref := "refs/heads/" + what
				l := e.prepare(e.a, move(ref, "", v1))
				b.wait(b.waiter, ref)
				e.must(end(l))
				b.wantWoken(ref, b.waiter)
			}
		}},
		{"whatever else ends a lock wakes a waiter", func(e *env) {
			b := e.listen()
			if b == nil {
				return // hints can't arrive here
			}
			for _, end := range []struct {
				what string
				by   func(lock) error
			}{
				{"purge", func(l lock) error { return second(e.tryPurge(e.b, standing(l.ids()...)...)) }},
				{"abandonment", func(l lock) error { return e.tryAbandon(e.b, l.AcquireRequest) }},
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
				l := e.acquire(e.a, "refs/heads/"+end.what)
				b.wait(b.waiter, l.refs()...)
				e.must(end.by(l))
				b.wantWoken(l.refs()[0], b.waiter)
			}
		}},
		{"several channels are listened to through one driver, and one of them may end and come back", func(e *env) {
			b := e.listen()
			if b == nil {
				return // hints can't arrive here
			}
			c := e.listenTo(b.process, someWaiter())
			for _, p := range []*listener{b, c, b, c} {
				l := e.acquire(e.a, refA)
				p.wait(p.waiter, refA)
				e.release(e.a, l)
				p.wantWoken(refA, p.waiter)
			}
			b.stop()
			l := e.acquire(e.a, refA)
			c.wait(c.waiter, refA)
			e.release(e.a, l)
			c.wantWoken(refA, c.waiter)

			b = e.listenTo(b.process, b.waiter)
			l = e.acquire(e.a, refA)
			b.wait(b.waiter, refA)
			e.release(e.a, l)
			b.wantWoken(refA, b.waiter)
		}},
	}
}
