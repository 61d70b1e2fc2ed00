package sqlite

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
)

// maxGroupRows is the maximum number of rows that a group writes, unless it is a single request.
// They take a few milliseconds, during which other writers wait.
const maxGroupRows = 256

// A request is a piece of work in a write transaction. Its leader sets the fields that change. Once
// woken is closed, the request is answered or becomes the leader.
type request struct {
	ctx     context.Context
	rows    int             // estimated number of rows that it writes
	do      func(*tx) error // called again if its work was undone
	arrived time.Time

	alone    bool // in its own transaction, because a group that included it failed
	woken    chan struct{}
	answered bool
	err      error
	unsure   bool // err is the error of a COMMIT
}

func (r *request) answer(err error) { r.err, r.answered = err, true }

// A groupCommit orders the writing requests of a process: first come, first served. One request
// leads at a time. It has the writing connection, and carries out waiting requests together with
// its own work, in one transaction. A request that finds no leader leads at once, alone.
type groupCommit struct {
	mu      sync.Mutex
	led     bool // there is a leader
	waiting []*request
	shared  bool // the last group had more than one request
	sizes   driver.Batches
}

// wait returns when r leads or is answered. The answer is an error if ctx or the driver ended
// before r's work began.
func (g *groupCommit) wait(r *request, closed <-chan struct{}) {
	if g.enter(r) {
		return
	}
	var err error
	select {
	case <-r.woken:
		return
	case <-r.ctx.Done():
		err = r.ctx.Err()
	case <-closed:
		err = driver.ErrClosed
	}
	if g.leave(r) {
		r.answer(err)
		return
	}
	<-r.woken // its work is in progress
}

// enter reports whether r leads. If not, r waits.
func (g *groupCommit) enter(r *request) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.led {
		g.led = true
		return true
	}
	r.woken = make(chan struct{})
	g.waiting = append(g.waiting, r)
	return false
}

// leave ends the wait of r, and reports whether r still waited.
func (g *groupCommit) leave(r *request) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	i := slices.Index(g.waiting, r)
	if i < 0 {
		return false
	}
	g.waiting = slices.Delete(g.waiting, i, i+1)
	return true
}

// gather returns the group that writes now: the leader, and as many of the next requests as fit. It
// answers requests whose contexts have ended.
func (g *groupCommit) gather(leader *request) []*request {
	g.mu.Lock()
	defer g.mu.Unlock()
	group := []*request{leader}
	n := 0
	for rows := leader.rows; n < len(g.waiting) && !leader.alone; n++ {
		r := g.waiting[n]
		if err := r.ctx.Err(); err != nil {
			r.answer(err)
			close(r.woken)
			continue
		}
		if rows += r.rows; rows > maxGroupRows || r.alone {
			break
		}
		group = append(group, r)
	}
	g.waiting = slices.Delete(g.waiting, 0, n)
	g.shared = len(group) > 1
	g.sizes.Count(len(group))
	return group
}

// retryAlone makes each request of a failed group retry in a transaction of its own, before all
// later requests. The first request continues to lead.
func (g *groupCommit) retryAlone(group []*request) {
	g.mu.Lock()
	defer g.mu.Unlock()
	var again []*request
	for i, r := range group {
		r.alone = true
		if err := r.ctx.Err(); err != nil && i > 0 {
			// The request's own wait may no longer check the context.
			r.answer(err)
			close(r.woken)
		} else if i > 0 {
			again = append(again, r)
		}
	}
	g.waiting = slices.Insert(g.waiting, 0, again...)
}

// failAll answers all waiting requests with an error that would affect them, too.
func (g *groupCommit) failAll(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, r := range g.waiting {
		r.answer(err)
		close(r.woken)
	}
	g.waiting = nil
}

func (g *groupCommit) stats() driver.Batches {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.sizes
}

// passLead makes the next request the leader.
func (g *groupCommit) passLead() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.waiting) == 0 {
		g.led = false
		return
	}
	close(g.waiting[0].woken)
	g.waiting = slices.Delete(g.waiting, 0, 1)
}

// lead carries out r, together with the requests that are waiting when this process may write the
// file.
func (d *Driver) lead(r *request) {
	defer d.groups.passLead()
	for !r.answered {
		if d.groups.shared {
			// The callers that were just answered may have more to write. Without the yield, the
			// first of them would write alone while the others wait for it.
			runtime.Gosched()
		}
		if err := d.begin(r.ctx, r.arrived); err != nil {
			r.answer(err)
			if busy(err) {
				d.groups.failAll(err)
			}
			return
		}
		logSize := d.carryOut(d.groups.gather(r))
		d.released = time.Now()
		d.checkpoint(logSize)
	}
}

// carryOut does the work of a group in the transaction that has begun, and answers all of its
// requests, or none. It returns the size of the log.
func (d *Driver) carryOut(group []*request) (logSize int64) {
	committing, err := d.commit(group)
	if err != nil {
		d.writer.rollback()
		if len(group) > 1 && (!committing || certain(err)) {
			d.groups.retryAlone(group)
			return 0
		}
	} else if logSize, err = d.files.verify(); err != nil {
		// The commit went to a log that other processes may already have replaced.
		committing = true
	}
	for i, r := range group {
		r.unsure = committing
		r.answer(err)
		if i > 0 {
			close(r.woken)
		}
	}
	return logSize
}

// commit does the work of a group and commits it. It reports whether the error is that of the
// COMMIT.
func (d *Driver) commit(group []*request) (committing bool, err error) {
	// Another process may have replaced the files and locked the new ones. If the files are
	// unchanged after the COMMIT, that happened later, and no request was answered before, so
	// carryOut verifies them again. This first check avoids useless writes.
	if _, err := d.files.verify(); err != nil {
		return false, err
	}
	t := &tx{conn: d.writer}
	for _, r := range group {
		t.now = d.now()
		if err := r.do(t); err != nil {
			return false, err
		}
	}
	if len(group) == 1 {
		if err := group[0].ctx.Err(); err != nil {
			return false, err
		}
	}
	if t.mark != nil {
		if _, err := t.exec(setMark, *t.mark); err != nil {
			return false, err
		}
	}
	_, err = t.exec("COMMIT")
	return true, err
}
