package api

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/service/access"
)

// turnLimit is how long a call waits until it may send requests to the database.
const turnLimit = 10 * time.Second

// turns bound how many calls have requests at the database at a time: all of them, those of a subject,
// and among both those with an acquisition, which nothing interrupts. A call that has no turn waits,
// and is not overtaken by calls that arrive later, unless its own subject has no turn left. Among those of a
// subject, acquisitions come last: a client that waits for a lock must not delay the one that extends it.
type turns struct {
	all, acquisitions turnLimits

	mu        sync.Mutex
	used      turnCount
	bySubject map[string]turnCount
	waiting   []*turn // in the order of their arrival
}

// turnLimits are how many turns there are in all, and for one subject.
type turnLimits struct{ total, subject int }

// turnCount is how many turns are taken.
type turnCount struct{ all, acquisitions int }

// A turn lasts until end.
type turn struct {
	subject     string
	acquisition bool
	begun       chan struct{} // closed when it begins
}

// newTurns returns turns for so many calls.
func newTurns(n int) *turns {
	q := &turns{bySubject: map[string]turnCount{}}
	q.resize(n)
	return q
}

// resize sets how many turns there are. A subject has a quarter of them, but at least two, and all acquisitions
// half of them. Acquisitions may hang: they never have all turns of a subject, nor all turns unless there is
// only one.
func (q *turns) resize(n int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	share := max(2, n/4)
	q.all = turnLimits{n, share}
	q.acquisitions = turnLimits{max(1, n/2), share * 3 / 4}
	q.next()
}

func (c turnCount) add(acquisition bool, n int) turnCount {
	c.all += n
	if acquisition {
		c.acquisitions += n
	}
	return c
}

// begin waits for a turn, and returns what ends it. The error says why there is none.
func (q *turns) begin(ctx context.Context, subject string, acquisition bool) (end func(), err error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("%w: %w", errNotBegun, err)
	}
	t := &turn{subject, acquisition, make(chan struct{})}
	q.mu.Lock()
	q.add(t)
	q.next()
	q.mu.Unlock()
	limit := time.NewTimer(turnLimit)
	defer limit.Stop()
	select {
	case <-t.begun:
		return sync.OnceFunc(func() { q.end(t) }), nil
	case <-ctx.Done():
		err = fmt.Errorf("%w: %w", errNotBegun, ctx.Err())
	case <-limit.C:
		err = fmt.Errorf("%w: too many earlier requests have no answer yet", refdb.ErrUnavailable)
	}
	q.cancel(t)
	return nil, err
}

// add appends a turn, behind the acquisitions of its subject only if it is one: other turns of a subject take the
// places of its acquisitions, which move to its later places; q.mu is held.
func (q *turns) add(t *turn) {
	if !t.acquisition {
		for i, other := range q.waiting {
			if other.subject == t.subject && other.acquisition {
				q.waiting[i], t = t, other
			}
		}
	}
	q.waiting = append(q.waiting, t)
}

// next begins the turns for which there is room; q.mu is held.
func (q *turns) next() {
	q.waiting = slices.DeleteFunc(q.waiting, func(t *turn) bool {
		used, own := q.used, q.bySubject[t.subject]
		if used.all >= q.all.total || own.all >= q.all.subject ||
			t.acquisition && (used.acquisitions >= q.acquisitions.total || own.acquisitions >= q.acquisitions.subject) {
			return false
		}
		q.count(t, 1)
		close(t.begun)
		return true
	})
}

func (q *turns) count(t *turn, n int) {
	q.used = q.used.add(t.acquisition, n)
	own := q.bySubject[t.subject].add(t.acquisition, n)
	q.bySubject[t.subject] = own
	if own.all == 0 {
		delete(q.bySubject, t.subject)
	}
}

func (q *turns) end(t *turn) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.count(t, -1)
	q.next()
}

// cancel ends a turn that nobody waits for any more, even if it has just begun.
func (q *turns) cancel(t *turn) {
	q.mu.Lock()
	defer q.mu.Unlock()
	i := slices.Index(q.waiting, t)
	if i < 0 {
		q.count(t, -1)
		q.next()
		return
	}
	q.waiting = slices.Delete(q.waiting, i, i+1)
}

const (
	// defaultTurns is how many turns there are for a database whose driver has no pool of connections.
	defaultTurns = 16
	// With fewer than fewTurns, an acquisition that hangs leaves no turn for the acquisitions of other subjects.
	fewTurns = 4
)

// fitTurns makes as many turns as the database's pool has connections, once it is open.
func (s *Service) fitTurns() {
	if s.fitted.Load() {
		return
	}
	d := s.db.Stats().Driver
	if len(d.Pools) == 0 && d.Batches.Requests == 0 || s.fitted.Swap(true) {
		return // not open yet, as far as can be seen; or another call does it
	}
	for _, p := range d.Pools {
		if p.Name != "requests" {
			continue
		}
		s.turns.resize(p.Max)
		if p.Max < fewTurns {
			s.log.Warn("the pool of connections is small: acquisitions that the database does not answer hold up other calls",
				"connections", p.Max, "expected", fewTurns)
		}
	}
}

// turn waits for a turn of the caller, and returns what ends it. The caller's rights may have been
// withdrawn meanwhile: may looks at them again.
func (s *Service) turn(ctx context.Context, caller access.Identity, acquisition bool, may func() error) (end func(), err error) {
	s.fitTurns()
	end, err = s.turns.begin(ctx, caller.Subject, acquisition)
	if err != nil {
		return nil, err
	}
	if err := may(); err != nil {
		end()
		return nil, err
	}
	return end, nil
}
