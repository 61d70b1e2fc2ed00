package sqlite

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
)

// groupRows is how many rows a group of requests writes at most, unless it is
// one request: so many take a few milliseconds, for which others wait.
const groupRows = 256

// A request is a piece of work in a write transaction. Fields that change belong
// to the leader; once turn is closed the request is answered, or leads itself.
type request struct {
	ctx  context.Context
	rows int             // about how many it writes
	do   func(*tx) error // again, if what it did was undone

	arrived time.Time

	alone    bool // in its transaction, because a group that it was in failed
	turn     chan struct{}
	answered bool
	err      error
	unsure   bool // err is that of its COMMIT
}

func (r *request) answer(err error) { r.err, r.answered = err, true }

// turns is the order in which a process's requests write: first come, first
// served. One of them leads at a time: it has the connection that writes, and
// carries out waiting requests together with itself, in one group commit. A request
// that finds no leader leads at once, alone.
type turns struct {
	mu      sync.Mutex
	taken   bool // somebody leads
	waiting []*request
	shared  bool // the last group had more than one
}

// take returns when r leads or is answered: with an error, if ctx or the driver
// ended before its work began.
func (q *turns) take(r *request, closed <-chan struct{}) {
	if q.enter(r) {
		return
	}
	var err error
	select {
	case <-r.turn:
		return
	case <-r.ctx.Done():
		err = r.ctx.Err()
	case <-closed:
		err = refdb.ErrClosed
	}
	if q.leave(r) {
		r.answer(err)
		return
	}
	<-r.turn // its work is under way
}

// enter reports whether r leads. If not, r waits.
func (q *turns) enter(r *request) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.taken {
		q.taken = true
		return true
	}
	r.turn = make(chan struct{})
	q.waiting = append(q.waiting, r)
	return false
}

// leave ends the wait of r, and reports whether r still waited.
func (q *turns) leave(r *request) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	i := slices.Index(q.waiting, r)
	if i < 0 {
		return false
	}
	q.waiting = slices.Delete(q.waiting, i, i+1)
	return true
}

// gather returns the group that writes now: the leader, and those next in turn
// that fit in. Those whose contexts have ended are answered.
func (q *turns) gather(leader *request) []*request {
	q.mu.Lock()
	defer q.mu.Unlock()
	group := []*request{leader}
	n := 0
	for rows := leader.rows; n < len(q.waiting) && !leader.alone; n++ {
		r := q.waiting[n]
		if err := r.ctx.Err(); err != nil {
			r.answer(err)
			close(r.turn)
			continue
		}
		if rows += r.rows; rows > groupRows || r.alone {
			break
		}
		group = append(group, r)
	}
	q.waiting = slices.Delete(q.waiting, 0, n)
	q.shared = len(group) > 1
	return group
}

// separate has each request of a group, none of which was carried out, try again
// alone, before all that came later. The first of them continues to lead.
func (q *turns) separate(group []*request) {
	q.mu.Lock()
	defer q.mu.Unlock()
	var again []*request
	for i, r := range group {
		r.alone = true
		if err := r.ctx.Err(); err != nil && i > 0 {
			// Its own wait may not look at the context any more.
			r.answer(err)
			close(r.turn)
		} else if i > 0 {
			again = append(again, r)
		}
	}
	q.waiting = slices.Insert(q.waiting, 0, again...)
}

// refuse answers all that wait: what the leader could not have, they can't either.
func (q *turns) refuse(err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, r := range q.waiting {
		r.answer(err)
		close(r.turn)
	}
	q.waiting = nil
}

// pass lets the next lead.
func (q *turns) pass() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.waiting) == 0 {
		q.taken = false
		return
	}
	close(q.waiting[0].turn)
	q.waiting = slices.Delete(q.waiting, 0, 1)
}
