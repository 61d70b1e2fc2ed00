package refdbtest

import (
	"slices"

	"github.com/globalrefdb/globalrefdb/refdb"
)

// What becomes of the queue of a lock. All waiters are behind one channel, unless
// a row says otherwise, so that a wrong wake-up is seen before the right one.
func queueRows() []row {
	// ends are the requests that hand a lock off.
	ends := map[string]func(e *env, l lock, h refdb.Handoff) []refdb.Queue{
		"release": func(e *env, l lock, h refdb.Handoff) []refdb.Queue {
			e.Helper()
			got, err := e.sendRelease(e.a, refdb.ReleaseRequest{Project: l.Project, Refs: l.refs(), Owner: l.Owner, Token: l.Token, Handoff: h})
			e.must(err)
			if len(got.Missing) != 0 {
				e.Errorf("%q were missing", got.Missing)
			}
			return got.Queues
		},
		"update": func(e *env, l lock, h refdb.Handoff) []refdb.Queue {
			e.Helper()
			f := l.fence()
			f.Release = &h
			got, err := e.tryUpdate(e.a, refdb.UpdateRequest{Fence: f, Updates: []refdb.Update{move("refs/updated/"+l.refs()[0], "", refdb.Deleted)}})
			e.must(err)
			return got.Queues
		},
	}
	return []row{
		{"a wake-up has the queue: first the one that is woken, then the others as they came", func(e *env) {
			p := e.listenTo(e.b, someWaiter())
			if p == nil {
				return // hints can't arrive here
			}
			b, c, d := p.waiter, p.another(), p.another()
			l := e.acquire(e.a, refA)
			for _, w := range []refdb.Waiter{b, c, d} {
				p.wait(w, refA)
			}
			e.release(e.a, l)
			p.wantWoken(refA, b, c, d)
		}},
		{"a waiter is queued once, however often it asks", func(e *env) {
			p := e.listenTo(e.b, someWaiter())
			if p == nil {
				return // hints can't arrive here
			}
			b, c := p.waiter, p.another()
			l := e.acquire(e.a, refA)
			for _, w := range []refdb.Waiter{b, b, c, b, c} {
				p.wait(w, refA)
			}
			e.release(e.a, l)
			p.wantWoken(refA, b, c)
		}},
		{"a request that names no waiter queues nobody", func(e *env) {
			p := e.listenTo(e.b, someWaiter())
			if p == nil {
				return // hints can't arrive here
			}
			l := e.acquire(e.a, refA)
			e.refused(p.process, refA)
			p.wait(p.waiter, refA)
			e.refused(p.process, refA)
			e.release(e.a, l)
			p.wantWoken(refA, p.waiter)
		}},
		{"clients are told apart by their channel and their name", func(e *env) {
			p := e.listenTo(e.b, someWaiter())
			if p == nil {
				return // hints can't arrive here
			}
			q := e.listenTo(e.b, someWaiter())
			b, c := p.waiter, p.another()
			d := refdb.Waiter{Channel: q.waiter.Channel, Client: b.Client}
			l := e.acquire(e.a, refA)
			for _, w := range []refdb.Waiter{b, c, d, c, b} {
				p.wait(w, refA)
			}
			e.release(e.a, l)
			p.passOn(p.wantWoken(refA, b, c, d))
			p.passOn(p.wantWoken(refA, c, d))
			q.wantWoken(refA, d)
		}},
		{"a lock keeps the queue that its holder brought, and the next release wakes it in order", func(e *env) {
			p := e.listenTo(e.b, someWaiter())
			if p == nil {
				return // hints can't arrive here
			}
			b, c, d := p.waiter, p.another(), p.another()
			l := e.acquire(e.a, refA)
			for _, w := range []refdb.Waiter{b, c, d} {
				p.wait(w, refA)
			}
			e.release(e.a, l)
			e.release(p.process, p.take(p.wantWoken(refA, b, c, d)))
			e.release(p.process, p.take(p.wantWoken(refA, c, d)))
			e.release(p.process, p.take(p.wantWoken(refA, d)))
			l = e.acquire(e.a, refA)
			p.wait(b, refA)
			e.release(e.a, l)
			p.wantWoken(refA, b)
		}},
		{"a waiter that is refused in its turn stays first, and its queue comes before the waiters that came meanwhile", func(e *env) {
			p := e.listenTo(e.b, someWaiter())
			if p == nil {
				return // hints can't arrive here
			}
			b, c, d := p.waiter, p.another(), p.another()
			l := e.acquire(e.a, refA)
			p.wait(b, refA)
			p.wait(c, refA)
			e.release(e.a, l)
			w := p.wantWoken(refA, b, c)
			l = e.acquire(e.a, refA) // out of turn
			p.wait(d, refA)
			for range 2 {
				p.waitWith(b, []refdb.Queue{w.Queue}, refA)
			}
			e.release(e.a, l)
			p.wantWoken(refA, b, c, d)
		}},
		{"a waiter that is queued already and brings a queue moves to the front with it", func(e *env) {
			p := e.listenTo(e.b, someWaiter())
			if p == nil {
				return // hints can't arrive here
			}
			b, c, d := p.waiter, p.another(), p.another()
			l := e.acquire(e.a, refA)
			for _, w := range []refdb.Waiter{d, c, b} {
				p.wait(w, refA)
			}
			p.waitWith(b, []refdb.Queue{{b, c}}, refA)
			e.release(e.a, l)
			p.wantWoken(refA, b, c, d)
		}},
		{"a queue comes before that of the stale lock that is taken with it", func(e *env) {
			p := e.listenTo(e.b, someWaiter())
			if p == nil {
				return // hints can't arrive here
			}
			b, c, d := p.waiter, p.another(), p.another()
			l := e.acquire(e.a, refA)
			p.wait(d, refA)
			p.wait(b, refA)
			e.age(l, stale)
			e.release(p.process, p.takeWith(b, []refdb.Queue{{b, c}}, refA))
			p.wantWoken(refA, c, d)
		}},
		{"a queue that was brought twice, because a reply was lost, is there once", func(e *env) {
			p := e.listenTo(e.b, someWaiter())
			if p == nil {
				return // hints can't arrive here
			}
			b, c, d := p.waiter, p.another(), p.another()
			r := e.request(p.process, refA)
			r.Waiter, r.Queues = b, []refdb.Queue{{b, c, d}}
			first, err := e.send(p.process, r)
			e.must(err)
			again, err := e.send(p.process, r)
			e.must(err)
			if first.Token != again.Token {
				e.Errorf("tokens %d and %d", first.Token, again.Token)
			}
			e.release(p.process, first)
			p.wantWoken(refA, c, d)
		}},
		{"each of several locks has its own queue", func(e *env) {
			p := e.listenTo(e.b, someWaiter())
			if p == nil {
				return // hints can't arrive here
			}
			b, c, d := p.waiter, p.another(), p.another()
			l := p.takeWith(b, []refdb.Queue{{b, c, d}, nil, {b, d}}, refA, refB, refC)
			e.release(p.process, l)
			p.wantWoken(refA, c, d)
			p.wantWoken(refC, d)
			l = e.acquire(e.a, refB)
			p.wait(c, refB)
			e.release(e.a, l)
			p.wantWoken(refB, c)
		}},
		{"if several locks are refused, those that stand get their queues back, and no others", func(e *env) {
			p := e.listenTo(e.b, someWaiter())
			if p == nil {
				return // hints can't arrive here
			}
			b, c, d := p.waiter, p.another(), p.another()
			l := e.acquire(e.a, refB)
			p.waitWith(b, []refdb.Queue{{b, c}, {b, d}, nil}, refA, refB, refC)
			e.release(e.a, l)
			p.wantWoken(refB, b, d)
			for _, ref := range []string{refA, refC} {
				l := e.acquire(e.a, ref)
				p.wait(d, ref)
				e.release(e.a, l)
				p.wantWoken(ref, d)
			}
		}},
		{"a handoff to the next wakes nobody, and returns the queue without the next", func(e *env) {
			p := e.listenTo(e.b, someWaiter())
			if p == nil {
				return // hints can't arrive here
			}
			b, c, d := p.waiter, p.another(), p.another()
			for end, handOff := range ends {
				ref := "refs/heads/" + end
				l := e.acquire(e.a, ref)
				for _, w := range []refdb.Waiter{b, c, d} {
					p.wait(w, ref)
				}
				queues := handOff(e, l, refdb.Handoff{Next: c})
				if len(queues) != 1 || !slices.Equal(queues[0], refdb.Queue{b, d}) {
					e.Errorf("%s: the queues are %+v", end, queues)
				}
				l = p.takeWith(c, []refdb.Queue{{c, b, d}}, ref)
				p.wait(c, ref)
				e.release(p.process, l)
				p.wantWoken(ref, b, d, c)
			}
		}},
		{"a handoff of several locks to the next returns a queue for each", func(e *env) {
			p := e.listenTo(e.b, someWaiter())
			if p == nil {
				return // hints can't arrive here
			}
			b, c, d := p.waiter, p.another(), p.another()
			for end, handOff := range ends {
				dir := "refs/heads/" + end
				l := e.acquire(e.a, dir+"/a", dir+"/b", dir+"/c")
				p.wait(b, dir+"/a", dir+"/c")
				p.wait(d, dir+"/c")
				queues := handOff(e, l, refdb.Handoff{Next: c})
				if !slices.EqualFunc(queues, []refdb.Queue{{b}, nil, {b, d}}, slices.Equal[refdb.Queue]) {
					e.Errorf("%s: the queues are %+v", end, queues)
				}
			}
		}},
		{"a handoff to the next returns an empty queue for a ref whose row did not match", func(e *env) {
			p := e.listenTo(e.b, someWaiter())
			if p == nil {
				return // hints can't arrive here
			}
			b, c := p.waiter, p.another()
			l := e.acquire(e.a, refA, refB, refC)
			p.wait(b, refA, refC)
			e.release(e.a, l, refB)
			got, err := e.sendRelease(e.a, refdb.ReleaseRequest{Project: l.Project, Refs: l.refs(), Owner: l.Owner, Token: l.Token, Handoff: refdb.Handoff{Next: c}})
			e.must(err)
			if !slices.Equal(got.Missing, []string{refB}) || !slices.EqualFunc(got.Queues, []refdb.Queue{{b}, nil, {b}}, slices.Equal[refdb.Queue]) {
				e.Errorf("got %+v", got)
			}
		}},
		{"a handoff to the last wakes the first, and puts the last behind all others", func(e *env) {
			p := e.listenTo(e.b, someWaiter())
			if p == nil {
				return // hints can't arrive here
			}
			b, c, d := p.waiter, p.another(), p.another()
			for end, handOff := range ends {
				ref := "refs/heads/" + end
				l := e.acquire(e.a, ref)
				p.wait(b, ref)
				p.wait(c, ref)
				if queues := handOff(e, l, refdb.Handoff{Last: d}); len(queues) != 0 {
					e.Errorf("%s: the queues are %+v", end, queues)
				}
				l = p.take(p.wantWoken(ref, b, c, d))
				e.release(p.process, l)
				l = p.take(p.wantWoken(ref, c, d))
				e.release(p.process, l)
				p.wantWoken(ref, d)
			}
		}},
		{"a handoff to the last moves one that is queued already, and wakes one that is alone", func(e *env) {
			p := e.listenTo(e.b, someWaiter())
			if p == nil {
				return // hints can't arrive here
			}
			b, c := p.waiter, p.another()
			for end, handOff := range ends {
				ref := "refs/heads/" + end
				l := e.acquire(e.a, ref)
				p.wait(b, ref)
				p.wait(c, ref)
				handOff(e, l, refdb.Handoff{Last: b})
				p.wantWoken(ref, c, b)
				alone := "refs/alone/" + end
				handOff(e, e.acquire(e.a, alone), refdb.Handoff{Last: b})
				p.wantWoken(alone, b)
			}
		}},
	}
}
