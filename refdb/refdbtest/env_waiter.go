package refdbtest

import (
	"crypto/rand"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
)

// turn is long enough that nobody's is over by itself.
const turn = 20 * time.Second

// A queued is a process's waiter for locks, as its requests tell of it.
type queued struct {
	process
	e *env
	refdb.Waiter
}

// told returns a waiter of p that can be told to ask, so that locks are kept for it.
func (e *env) told(p process) *queued {
	return &queued{p, e, refdb.Waiter{ID: rand.Text(), Channel: rand.Text(), Turn: turn}}
}

// polling returns a waiter of p that asks by itself.
func (e *env) polling(p process) *queued {
	return &queued{p, e, refdb.Waiter{ID: rand.Text(), Turn: turn}}
}

func (q *queued) ask(refs ...string) (lock, error) {
	r := q.e.request(q.process, refs...)
	r.Waiter = q.Waiter
	l, err := q.e.send(q.process, r)
	if err != nil {
		q.Place = l.Place
	}
	return l, err
}

// refused has q ask, and be refused for locks on exactly those refs that are in the way.
func (q *queued) refused(refs []string, by ...string) []refdb.LockInfo {
	q.e.Helper()
	_, err := q.ask(refs...)
	return q.e.wantHolders(err, by...)
}

// waits has q be refused the lock on each of refs.
func (q *queued) waits(refs ...string) {
	q.e.Helper()
	q.refused(refs, refs...)
}

// granted has q take locks.
func (q *queued) granted(refs ...string) lock {
	q.e.Helper()
	l, err := q.ask(refs...)
	q.e.must(err)
	return l
}

// givesUp takes q out of the queues of refs.
func (q *queued) givesUp(refs ...string) {
	q.e.Helper()
	q.e.must(retry(func() error {
		return q.Abandon(q.e.Context(), refdb.AbandonRequest{Project: q.e.project, Refs: refs, Owner: q.owner, Waiter: q.ID})
	}))
}

// wantKept checks that the lock on ref is kept for q, and that nobody else gets it.
func (q *queued) wantKept(ref string) {
	q.e.Helper()
	row := q.e.row(ref)
	if left := q.e.left(ref); row.Owner != refdb.ReservedFor(q.owner) || left <= 0 || left > q.Turn {
		q.e.Errorf("the row of %s is %+v, for %v", ref, row, left)
	}
	if h := q.e.refused(q.e.b, ref); len(h) != 1 || !h[0].Reserved() {
		q.e.Errorf("refused by %+v", h)
	}
}

// left is for how long the lock on ref is kept for somebody.
func (e *env) left(ref string) time.Duration {
	e.Helper()
	row := e.row(ref)
	if !row.Reserved() {
		e.Errorf("the lock on %s is not kept: %+v", ref, row)
	}
	return row.StaleAfter - e.now(e.b).Sub(row.Heartbeat)
}

// endTurn makes the turn of whoever a lock is kept for be over.
func (e *env) endTurn(ref string) {
	e.Helper()
	e.db.Age(e, e.project, ref, turn+time.Second)
}

// releaseTo has l released, with one who is to be next.
func (e *env) releaseTo(next *queued, l lock) {
	e.Helper()
	got, err := e.sendRelease(next.process, refdb.ReleaseRequest{Project: l.Project, Refs: l.refs(), Owner: l.Owner, Token: l.Token, Next: next.Waiter})
	e.must(err)
	if len(got.Missing) != 0 {
		e.Errorf("%q were missing", got.Missing)
	}
}
