package linearizability

import (
	"slices"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
)

// add turns a call into events. A call that says nothing about the database has none.
func (p *partition) add(op Op) {
	at := span{op.Call, op.Return}
	e := event{at, p.line(op.Owner), describe(op), nil}
	in, out := op.Input, op.Output
	switch {
	case out.Result == Nothing:
		return
	case in.Kind == Get && out.Result == Done:
		e.ways = []rule{p.get(op)}
	case in.Kind == Update && out.Result == Unknown:
		e.ways = []rule{func(state) bool { return true }, p.late(op)}
	case in.Kind == Update:
		e.ways = []rule{p.update(op, at)}
	case in.Kind == Acquire && out.Result == Done:
		e.ways = []rule{p.acquire(op, at)}
		if out.Unresolved {
			p.events = append(p.events, event{at, e.line, e.text + " (its values)", []rule{p.values(op)}})
		}
	case in.Kind == Acquire && out.Result == Locked:
		e.ways = []rule{func(s state) bool { return p.refused(s, in.Refs, out.Holders, at) }}
	case in.Kind == Release && out.Result == Unknown:
		e.ret = e.call // from then on it may happen
		e.ways = []rule{p.leave(op)}
	case in.Kind == Release:
		e.ways = []rule{p.release(op, at)}
	default:
		return
	}
	p.events = append(p.events, e)
}

func (p *partition) get(op Op) rule {
	return func(s state) bool { return p.shows(s, op) }
}

// shows reports whether the refs hold the values of the answer.
func (p *partition) shows(s state, op Op) bool {
	return !slices.ContainsFunc(op.Input.Refs, func(ref string) bool {
		return p.at(s, ref).value != op.Output.Values[ref]
	})
}

// stands reports whether the lock on a ref has that owner and token.
func (p *partition) stands(s state, ref, owner string, token refdb.Token) bool {
	lock := p.at(s, ref).lock
	return lock != 0 && lock == token && p.leases[lockID{ref, lock}].owner == owner
}

// holds reports whether a lock stands on all of its refs.
func (p *partition) holds(s state, refs []string, owner string, token refdb.Token) bool {
	return !slices.ContainsFunc(refs, func(ref string) bool { return !p.stands(s, ref, owner, token) })
}

// beat is the beat of one row.
func (p *partition) beat(b beaten) rule {
	return func(s state) bool {
		if b.Result == driver.BeatRenewed {
			return p.stands(s, b.Ref, b.owner, b.Token)
		}
		return p.lost(s, b.Ref, b.owner, b.Token, b.span)
	}
}

// lost reports whether a ref can be without the lock of that owner and token.
func (p *partition) lost(s state, ref, owner string, token refdb.Token, at span) bool {
	return !p.stands(s, ref, owner, token) || p.gone(s, ref, at)
}

// acquire is a successful request for locks.
func (p *partition) acquire(op Op, at span) rule {
	in, out := op.Input, op.Output
	return func(s state) bool {
		for _, h := range out.Reclaimed {
			if !slices.Contains(in.Refs, h.Ref) || !p.names(s, h, at) || !h.stale() || !p.mayBeStale(lockID{h.Ref, h.Token}, at) {
				return false
			}
			p.at(s, h.Ref).free()
		}
		return (out.Unresolved || p.shows(s, op)) && p.take(s, in.Refs, out.Token, at, out.Unresolved)
	}
}

// values are the values that came with the locks. After a lost reply they come
// with a later answer than the one that granted the locks, and an advisory update may
// have happened in between.
func (p *partition) values(op Op) rule {
	return func(s state) bool { return p.holds(s, op.Input.Refs, op.Owner, op.Output.Token) && p.shows(s, op) }
}

// take gives the locks on refs to token. unsaid says that the answer may not name all reclaimed locks.
func (p *partition) take(s state, refs []string, token refdb.Token, at span, unsaid bool) bool {
	for _, ref := range refs {
		r := p.at(s, ref)
		if r.lock != 0 && !(unsaid && p.mayBeStale(lockID{ref, r.lock}, at)) && !p.gone(s, ref, at) {
			return false
		}
		if token <= r.last {
			return false
		}
		r.lock, r.leaving, r.last = token, false, token
	}
	return true
}

// refused reports whether holders names all locks on refs, and one of those is fresh.
func (p *partition) refused(s state, refs []string, holders []Holder, at span) bool {
	fresh, named := false, 0
	for _, ref := range refs {
		i := slices.IndexFunc(holders, func(h Holder) bool { return h.Ref == ref })
		if i < 0 {
			if !p.gone(s, ref, at) {
				return false
			}
			continue
		}
		named++
		fresh = fresh || !holders[i].stale()
		if holders[i].reserved() {
			// The row is no lock: its lock has ended, and it still has the token.
			if !p.gone(s, ref, at) || holders[i].Token > p.at(s, ref).last {
				return false
			}
			continue
		}
		if !p.names(s, holders[i], at) {
			return false
		}
	}
	return fresh && named == len(holders)
}

// names reports whether an answer is right about the lock on a ref.
func (p *partition) names(s state, h Holder, at span) bool {
	if h.Token == 0 || p.at(s, h.Ref).lock != h.Token {
		return false
	}
	id := lockID{h.Ref, h.Token}
	l := p.leases[id]
	return l.owner == h.Owner && l.staleAfter == h.StaleAfter && h.Age <= p.oldest(id, at)
}

// leave is a release of unknown outcome.
func (p *partition) leave(op Op) rule {
	return func(s state) bool {
		for _, ref := range op.Input.Refs {
			if r := p.at(s, ref); r.lock == op.Input.Token {
				r.leaving = true
			}
		}
		return true
	}
}

// release is a release whose answer came, at least to a second request.
func (p *partition) release(op Op, at span) rule {
	token, out := op.Input.Token, op.Output
	return func(s state) bool {
		whole := true
		for _, ref := range op.Input.Refs {
			r := p.at(s, ref)
			deleted := slices.Contains(out.Deleted, ref)
			whole = whole && (r.lock == token || p.open(ref, token))
			switch {
			case deleted && r.lock != token:
				return false
			case !deleted && !out.Unresolved && !p.lost(s, ref, op.Owner, token, at):
				return false
			}
			if r.lock == token {
				r.free()
			}
		}
		return out.Result != Done || whole
	}
}

func (p *partition) open(ref string, token refdb.Token) bool {
	l := p.leases[lockID{ref, token}]
	return l != nil && l.open
}
