package site

import (
	"context"
	"slices"
	"sync"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/site/refusal"
	"github.com/globalrefdb/globalrefdb/site/wire"
)

// An unresolvedSet holds the moves whose outcome is unknown: the database may record them as
// intents at any moment, while it is asked or, if its reply is lost, until they are revoked.
// Until then no other push may move those refs here. If others moved a ref and moved it back, a
// late intent would find the ref at its old value, and the repository would seem to say that
// the intent was carried out.
type unresolvedSet struct {
	mu   sync.Mutex
	list []*unresolved
}

// unresolved are the moves of one request.
type unresolved struct {
	project string
	updates []refdb.Update
	// unknown is what to revoke, if the reply was lost; nil while the request runs.
	unknown *refdb.Preparation
}

func (x *unresolved) concerns(project string, moves []refdb.Update) bool {
	return x.project == project && slices.ContainsFunc(moves, func(u refdb.Update) bool {
		return slices.ContainsFunc(x.updates, func(v refdb.Update) bool { return v.Ref == u.Ref })
	})
}

// claim adds moves, unless another request has one of their refs.
func (s *unresolvedSet) claim(project string, moves []refdb.Update) (*unresolved, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.conflict(project, moves); err != nil {
		return nil, err
	}
	x := &unresolved{project: project, updates: moves}
	s.list = append(s.list, x)
	return x, nil
}

// check returns an error if another request has one of the refs of moves.
func (s *unresolvedSet) check(project string, moves []refdb.Update) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.conflict(project, moves)
}

func (s *unresolvedSet) conflict(project string, moves []refdb.Update) error {
	for _, x := range s.list {
		if x.concerns(project, moves) {
			return refusal.Because(refusal.Undecided, refusal.Lines{wire.Unresolved(x.updates[0].Ref)})
		}
	}
	return nil
}

func (s *unresolvedSet) release(x *unresolved) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.list = slices.DeleteFunc(s.list, func(y *unresolved) bool { return y == x })
}

// markUnknown says that the reply to p, the request of x, was lost.
func (s *unresolvedSet) markUnknown(x *unresolved, p refdb.Preparation) {
	s.mu.Lock()
	defer s.mu.Unlock()
	x.unknown = &p
}

// revocable returns the requests whose reply was lost.
func (s *unresolvedSet) revocable() (all []*unresolved) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, x := range s.list {
		if x.unknown != nil {
			all = append(all, x)
		}
	}
	return all
}

// revoke makes sure that requests whose reply was lost never take effect.
func (d *Daemon) revoke(ctx context.Context) error {
	for _, x := range d.unresolved.revocable() {
		err := d.db.Revoke(ctx, *x.unknown)
		d.recordHealth(err)
		if err != nil {
			return err
		}
		d.unresolved.release(x)
	}
	return nil
}
