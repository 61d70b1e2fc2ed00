// Package claims keeps those apart who are about to move refs of a site: pushes, guards, followers, and what operators have decided.
// It is in memory, and asks nobody.
package claims

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/intents"
	"github.com/globalrefdb/globalrefdb/site/internal/broadcast"
	"github.com/globalrefdb/globalrefdb/site/refusal"
	"github.com/globalrefdb/globalrefdb/site/wire"
)

// A refOf names a ref of a project.
type refOf struct{ project, ref string }

// Claims keep those apart who are about to move refs here, each with all its refs at once.
//
// A push is claimed while the database is asked or, if the reply is lost, until the request is revoked: the database may record the
// moves as intents at any moment. If others moved a ref meanwhile and moved it back, a late intent would find the ref at its old
// value, and the repository would seem to say that the intent was carried out. A guard takes git's
// lock files only after its answer, so its transaction is claimed until it is settled. A follower
// claims a ref before it reads it, and until its git has ended.
type Claims struct {
	mu      sync.Mutex
	held    map[refOf][]*Claim
	waiting map[refOf][]*Claim  // in the order of their arrival
	decided map[refOf]bool      // what operators have decided and this site has not heeded
	freed   broadcast.Broadcast // when a claim ends
}

// Claimant is who has a claim.
type Claimant int

const (
	ByPush Claimant = iota
	ByTransaction
	ByFollower
	ByDecision
)

// A Claim is on refs of one project.
type Claim struct {
	By      Claimant
	project string
	Refs    []string
	since   time.Time
	// Unknown is what to revoke, if the reply was lost; nil while the request runs. Guarded by the lock of claims.
	Unknown *intents.Preparation
}

func newClaim(by Claimant, project string, moves []refdb.Update) *Claim {
	c := &Claim{By: by, project: project, Refs: make([]string, len(moves)), since: time.Now()}
	for i, m := range moves {
		c.Refs[i] = m.Ref
	}
	return c
}

// Take claims the refs of moves, or says who has one of them. While only followers have claims on
// them, Take waits, at most until ctx ends: a follower's git waits for no lock file. Take does not
// wait for other claims: its caller may have git's lock file, which a guard that has the claim needs.
// Under is a claim that does not prevent this one; nil if there is none.
func (s *Claims) Take(ctx context.Context, by Claimant, project string, moves []refdb.Update, under *Claim) (*Claim, error) {
	c := newClaim(by, project, moves)
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		err := s.conflict(c, under)
		if err == nil {
			add(&s.held, c, c.Refs)
			return c, nil
		}
		if !s.onlyFollowed(c, under) || !s.await(ctx) {
			return nil, err
		}
	}
}

// Follow claims, for a follower, the refs that nobody has claimed, and says why it could not claim
// the others. It waits for other followers, at most until ctx ends.
func (s *Claims) Follow(ctx context.Context, project string, refs []string) (c *Claim, others map[string]error) {
	c = &Claim{By: ByFollower, project: project, since: time.Now()}
	s.mu.Lock()
	defer s.mu.Unlock()
	for ended := false; ; ended = !s.await(ctx) {
		c.Refs, others = nil, map[string]error{}
		followed := false
		for _, ref := range refs {
			one := &Claim{By: ByFollower, project: project, Refs: []string{ref}}
			if err := s.conflict(one, nil); err != nil {
				others[ref] = err
				followed = followed || s.onlyFollowed(one, nil)
				continue
			}
			c.Refs = append(c.Refs, ref)
		}
		if !followed || ended {
			add(&s.held, c, c.Refs)
			return c, others
		}
	}
}

// Followed reports whether a follower has claimed refs of a project.
func (s *Claims) Followed(project string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for ref, all := range s.held {
		if ref.project == project && slices.ContainsFunc(all, func(c *Claim) bool { return c.By == ByFollower }) {
			return true
		}
	}
	return false
}

// await waits until a claim ends. It returns false if ctx ends first. s.mu is held, except while
// await waits.
func (s *Claims) await(ctx context.Context) bool {
	freed := s.freed.Wait()
	s.mu.Unlock()
	defer s.mu.Lock()
	select {
	case <-freed:
		return true
	case <-ctx.Done():
		return false
	}
}

// onlyFollowed reports whether only followers keep c from being held. s.mu is held.
func (s *Claims) onlyFollowed(c, under *Claim) bool {
	for _, ref := range c.Refs {
		if slices.ContainsFunc(s.held[refOf{c.project, ref}], func(h *Claim) bool { return h != under && h.By != ByFollower }) {
			return false
		}
	}
	return true
}

// Await claims refs for a guard's transaction as soon as nobody has one of them, or waits for one of them longer. It waits until
// the time until, or ctx ends.
func (s *Claims) Await(ctx context.Context, project string, moves []refdb.Update, until time.Time) (*Claim, error) {
	c := newClaim(ByTransaction, project, moves)
	patience := time.NewTimer(time.Until(until))
	defer patience.Stop()
	s.mu.Lock()
	add(&s.waiting, c, c.Refs)
	for {
		err := s.conflict(c, nil)
		if err == nil {
			err = s.overtakes(c)
		}
		if err == nil {
			remove(s.waiting, c)
			add(&s.held, c, c.Refs)
			s.mu.Unlock()
			return c, nil
		}
		freed := s.freed.Wait()
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
			s.freed.Send()
			s.mu.Unlock()
			return nil, err
		}
	}
}

// conflict returns why c can't be held now. s.mu is held, as for what follows.
func (s *Claims) conflict(c, under *Claim) error {
	for _, ref := range c.Refs {
		k := refOf{c.project, ref}
		for _, h := range s.held[k] {
			switch {
			case h == under:
			case h.By == ByFollower && c.By != ByFollower:
				return refusal.Because(refusal.Behind, refusal.Lines{wire.BeingFollowed(ref)})
			case h.By == ByTransaction, h.By == ByFollower, c.By == ByTransaction:
				return UnderWay(ref, h.since)
			default:
				return refusal.Because(refusal.Undecided, refusal.Lines{wire.Unresolved(h.Refs[0])})
			}
		}
		if c.By == ByTransaction && s.decided[k] {
			return refusal.Because(refusal.Locked, refusal.Lines{wire.DecisionUnheeded(ref)})
		}
	}
	return nil
}

// UnderWay is the refusal of who meets another push to a ref, of this site.
func UnderWay(ref string, since time.Time) error {
	return refusal.Because(refusal.Locked, refusal.Lines{wire.Locked(ref, wire.PushUnderWay(""), since, time.Since(since))})
}

// overtakes returns an error if c would overtake another one that waits.
func (s *Claims) overtakes(c *Claim) error {
	for _, ref := range c.Refs {
		if first := s.waiting[refOf{c.project, ref}][0]; first != c {
			return UnderWay(ref, first.since)
		}
	}
	return nil
}

// add adds c to those that each of refs has.
func add(to *map[refOf][]*Claim, c *Claim, refs []string) {
	if *to == nil {
		*to = map[refOf][]*Claim{}
	}
	for _, ref := range refs {
		k := refOf{c.project, ref}
		(*to)[k] = append((*to)[k], c)
	}
}

// remove removes c from those that each of its refs has.
func remove(from map[refOf][]*Claim, c *Claim) {
	for _, ref := range c.Refs {
		k := refOf{c.project, ref}
		if from[k] = slices.DeleteFunc(from[k], func(other *Claim) bool { return other == c }); len(from[k]) == 0 {
			delete(from, k)
		}
	}
}

// Extend lets a transaction, whose claim may be nil, hold more refs, whoever else has them: an earlier daemon has let it through.
func (s *Claims) Extend(c *Claim, project string, refs []string, since time.Time) *Claim {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c == nil {
		c = &Claim{By: ByTransaction, project: project, since: since}
	}
	add(&s.held, c, refs)
	c.Refs = append(slices.Clone(c.Refs), refs...)
	return c
}

// Release ends a claim; of nil it ends nothing.
func (s *Claims) Release(c *Claim) {
	if c == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	remove(s.held, c)
	s.freed.Send()
}

// SetDecided records which decisions of operators are not heeded.
func (s *Claims) SetDecided(intents []driver.Intent) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.decided = make(map[refOf]bool, len(intents))
	for _, i := range intents {
		if i.Decision != driver.Revoked {
			s.decided[refOf{i.Project, i.Ref}] = true
		}
	}
	s.freed.Send()
}

// MarkUnknown says that the reply to p, the request of c, was lost.
func (s *Claims) MarkUnknown(c *Claim, p intents.Preparation) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c.Unknown = &p
}

// Revocable returns the claims of requests whose reply was lost.
func (s *Claims) Revocable() (all []*Claim) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, held := range s.held {
		for _, c := range held {
			if c.Unknown != nil && !slices.Contains(all, c) {
				all = append(all, c)
			}
		}
	}
	return all
}

// Revoked records that the request of c was revoked.
func (s *Claims) Revoked(c *Claim) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c.Unknown = nil
}

// IsUnknown reports whether the request of c is yet to be revoked.
func (s *Claims) IsUnknown(c *Claim) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return c != nil && c.Unknown != nil
}

// Waiting counts the claims that wait for others.
func (s *Claims) Waiting() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := map[*Claim]bool{}
	for _, some := range s.waiting {
		for _, c := range some {
			all[c] = true
		}
	}
	return len(all)
}
