package linearizability

import (
	"fmt"
	"slices"

	"github.com/globalrefdb/globalrefdb/refdb"
)

// An unreported lock is one whose caller never got it, because the reply was lost or the
// caller died. It is known from the answers that name it, and may be any of
// the acquisitions of its owner that are unresolved.
type unreported struct {
	owner string
	token refdb.Token
}

// addUnreported adds the acquisition of each unreported lock that somebody saw. One that nobody
// saw matters only because it may have ended a stale lock.
func (p *partition) addUnreported(ops []Op, rows []beaten) {
	refs := make(map[unreported][]string)
	seen := make(map[unreported]int64) // when the first answer that names it returned
	see := func(owner, ref string, token refdb.Token, at int64) {
		g := unreported{owner, token}
		if p.leases[lockID{ref, token}] != nil {
			return
		}
		if first, ok := seen[g]; !ok || at < first {
			seen[g] = at
		}
		refs[g] = append(refs[g], ref)
	}
	for _, op := range ops {
		for _, h := range slices.Concat(op.Output.Holders, op.Output.Reclaimed) {
			if h.reserved() {
				continue
			}
			see(h.Owner, h.Ref, h.Token, op.Return)
		}
	}
	for _, b := range rows {
		see(b.owner, b.Ref, b.Token, b.ret)
	}
	for g, named := range refs {
		p.addUnreportedLock(g, named, seen[g], ops)
	}
}

func (p *partition) addUnreportedLock(g unreported, named []string, seen int64, ops []Op) {
	e := event{span{Never, seen}, p.line(g.owner), fmt.Sprintf("%s: acquires with token %d, unknown to itself", g.owner, g.token), nil}
	var origins []Op
	for _, op := range ops {
		could := op.Input.Kind == Acquire && unresolved(op.Output) && op.Owner == g.owner && op.Call <= seen &&
			!slices.ContainsFunc(named, func(ref string) bool { return !slices.Contains(op.Input.Refs, ref) })
		if could {
			origins = append(origins, op)
			e.call = min(e.call, op.Call)
		}
	}
	for _, op := range origins {
		for _, ref := range op.Input.Refs {
			p.leases[lockID{ref, g.token}] = &lease{owner: g.owner, staleAfter: op.Input.StaleAfter, since: e.call, unreported: true}
		}
		e.ways = append(e.ways, func(s state) bool { return p.take(s, op.Input.Refs, g.token, e.span, true) })
	}
	// If there is none, nobody asked for this lock, and the answers that name it are wrong.
	if len(origins) > 0 {
		p.events = append(p.events, e)
	}
}
