package site

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/site/refusal"
	"github.com/globalrefdb/globalrefdb/site/wire"
)

// claims keep those apart who are about to move refs here, each with all its refs at once.
//
// A push is claimed while the database is asked or, if the reply is lost, until the request is revoked: the database may record the
// moves as intents at any moment. If others moved a ref meanwhile and moved it back, a late intent would find the ref at its old
// value, and the repository would seem to say that the intent was carried out. Git's lock files keep pushes and followers apart
// otherwise. A guard takes these only after its answer. So what a follower moves is claimed until its git has ended, and a
// guard's transaction until it is settled.
type claims struct {
	mu      sync.Mutex
	held    map[refOf][]*claim
	waiting map[refOf][]*claim // in the order of their arrival
	decided map[refOf]bool     // what operators have decided and this site has not heeded
	freed   broadcast          // when a claim ends
}

// claimant is who has a claim.
type claimant int

const (
	byPush claimant = iota
	byTransaction
	byFollower
	byDecision
)

// A claim is on refs of one project.
type claim struct {
	by      claimant
	project string
	refs    []string
	since   time.Time
	// unknown is what to revoke, if the reply was lost; nil while the request runs. Guarded by the lock of claims.
	unknown *refdb.Preparation
}

func newClaim(by claimant, project string, moves []refdb.Update) *claim {
	c := &claim{by: by, project: project, refs: make([]string, len(moves)), since: time.Now()}
	for i, m := range moves {
		c.refs[i] = m.Ref
	}
	return c
}

// take claims the refs of moves, or says who has one of them. It does not wait: who has git's lock file must not, because that
// is what a guard needs that has the claim. Under is a claim that is not in the way; nil if there is none.
func (s *claims) take(by claimant, project string, moves []refdb.Update, under *claim) (*claim, error) {
	c := newClaim(by, project, moves)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.conflict(c, under); err != nil {
		return nil, err
	}
	add(&s.held, c, c.refs)
	return c, nil
}

// await claims refs for a guard's transaction as soon as nobody has one of them, or waits for one of them longer. It waits until
// the time until, or ctx ends.
func (s *claims) await(ctx context.Context, project string, moves []refdb.Update, until time.Time) (*claim, error) {
	c := newClaim(byTransaction, project, moves)
	patience := time.NewTimer(time.Until(until))
	defer patience.Stop()
	s.mu.Lock()
	add(&s.waiting, c, c.refs)
	for {
		err := s.conflict(c, nil)
		if err == nil {
			err = s.overtakes(c)
		}
		if err == nil {
			remove(s.waiting, c)
			add(&s.held, c, c.refs)
			s.mu.Unlock()
			return c, nil
		}
		freed := s.freed.wait()
		s.mu.Unlock()
		expired := false
		select {
		case <-freed:
		case <-patience.C:
			expired = true
		case <-ctx.Done():
			expired = true
		}
		s.mu.Lock()
		if expired {
			remove(s.waiting, c)
			s.freed.send()
			s.mu.Unlock()
			return nil, err
		}
	}
}

// conflict returns why c can't be held now. s.mu is held, as for what follows.
func (s *claims) conflict(c, under *claim) error {
	for _, ref := range c.refs {
		k := refOf{c.project, ref}
		for _, h := range s.held[k] {
			switch {
			case h == under, h.by == byFollower && c.by != byTransaction: // git's lock files keep these apart
			case h.by == byTransaction, c.by == byTransaction:
				return underWay(ref, h.since)
			default:
				return refusal.Because(refusal.Undecided, refusal.Lines{wire.Unresolved(h.refs[0])})
			}
		}
		if c.by == byTransaction && s.decided[k] {
			return refusal.Because(refusal.Locked, refusal.Lines{wire.DecisionUnheeded(ref)})
		}
	}
	return nil
}

// underWay is the refusal of who meets another push to a ref, of this site.
func underWay(ref string, since time.Time) error {
	return refusal.Because(refusal.Locked, refusal.Lines{wire.Locked(ref, wire.PushUnderWay(""), since, time.Since(since))})
}

// overtakes returns an error if c would overtake another one that waits.
func (s *claims) overtakes(c *claim) error {
	for _, ref := range c.refs {
		if first := s.waiting[refOf{c.project, ref}][0]; first != c {
			return underWay(ref, first.since)
		}
	}
	return nil
}

// add adds c to those that each of refs has.
func add(to *map[refOf][]*claim, c *claim, refs []string) {
	if *to == nil {
		*to = map[refOf][]*claim{}
	}
	for _, ref := range refs {
		k := refOf{c.project, ref}
		(*to)[k] = append((*to)[k], c)
	}
}

// remove removes c from those that each of its refs has.
func remove(from map[refOf][]*claim, c *claim) {
	for _, ref := range c.refs {
		k := refOf{c.project, ref}
		if from[k] = slices.DeleteFunc(from[k], func(other *claim) bool { return other == c }); len(from[k]) == 0 {
			delete(from, k)
		}
	}
}

// extend lets a transaction, whose claim may be nil, hold more refs, whoever else has them: an earlier daemon has let it through.
func (s *claims) extend(c *claim, project string, refs []string, since time.Time) *claim {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c == nil {
		c = &claim{by: byTransaction, project: project, since: since}
	}
	add(&s.held, c, refs)
	c.refs = append(slices.Clone(c.refs), refs...)
	return c
}

// release ends a claim; of nil it ends nothing.
func (s *claims) release(c *claim) {
	if c == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	remove(s.held, c)
	s.freed.send()
}

// setDecided records which decisions of operators are not heeded.
func (s *claims) setDecided(intents []refdb.Intent) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.decided = make(map[refOf]bool, len(intents))
	for _, i := range intents {
		if i.Decision != refdb.Revoked {
			s.decided[refOf{i.Project, i.Ref}] = true
		}
	}
	s.freed.send()
}

// markUnknown says that the reply to p, the request of c, was lost.
func (s *claims) markUnknown(c *claim, p refdb.Preparation) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c.unknown = &p
}

// revocable returns the claims of requests whose reply was lost.
func (s *claims) revocable() (all []*claim) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, held := range s.held {
		for _, c := range held {
			if c.unknown != nil && !slices.Contains(all, c) {
				all = append(all, c)
			}
		}
	}
	return all
}

// revoked records that the request of c was revoked.
func (s *claims) revoked(c *claim) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c.unknown = nil
}

// isUnknown reports whether the request of c is yet to be revoked.
func (s *claims) isUnknown(c *claim) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return c != nil && c.unknown != nil
}

// revoke makes sure that requests whose reply was lost never take effect.
func (d *Daemon) revoke(ctx context.Context) error {
	for _, c := range d.claims.revocable() {
		err := d.db.Revoke(ctx, *c.unknown)
		d.recordHealth(err)
		if err != nil {
			return err
		}
		d.claims.revoked(c)
		if c.by != byTransaction {
			// Of a transaction an operator may have decided meanwhile: see guards.reconcile.
			d.claims.release(c)
		}
	}
	return nil
}
