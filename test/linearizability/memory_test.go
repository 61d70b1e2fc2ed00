package linearizability_test

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
)

// memory is a database behind one mutex. With a bug set it breaks a promise now
// and then, in a way that looks well from each caller's side.
type memory struct {
	refdb.Driver // nil: what is no part of a history panics

	bug    string
	losing bool // replies, and requests on their way

	mu     sync.Mutex
	calls  int
	failed int
	refs   map[string]refdb.Ref // by project and ref
	old    map[string]refdb.Ref // what each was before that
	locks  map[string]lockRow
	mark   refdb.Token
	again  func() // what is done once more,
	due    int    // at that call
}

type lockRow struct {
	refdb.LockInfo
	nonce string
}

var errLost = fmt.Errorf("the reply was lost: %w", refdb.ErrOutcomeUnknown)

func newMemory(bug string, losing bool) *memory {
	return &memory{bug: bug, losing: losing, refs: make(map[string]refdb.Ref), old: make(map[string]refdb.Ref), locks: make(map[string]lockRow)}
}

// fails says whether now is the time for the bug.
func (m *memory) fails(bug string) bool {
	now := m.bug == bug && m.calls%3 == 0
	if now {
		m.failed++
	}
	return now
}

// often says whether the bug had enough chances to be noticed: a wrong answer
// may be right by accident, of a moment before or after.
func (m *memory) often() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.bug == "" || m.failed >= 8
}

// loses says whether to lose one of so many.
func (m *memory) loses(of int) bool { return m.losing && m.calls%of == 0 }

// latency is that of a request: while it lasts others may come first.
const latency = 50 * time.Microsecond

// begin starts a transaction.
func (m *memory) begin() (end func()) {
	time.Sleep(latency)
	m.mu.Lock()
	m.calls++
	if m.again != nil && m.calls >= m.due {
		m.again()
		m.again = nil
	}
	return m.mu.Unlock
}

func (m *memory) Get(_ context.Context, project string, refs []string) ([]refdb.Ref, error) {
	defer m.begin()()
	if m.fails("a read is stale") {
		return rows(m.old, project, refs), nil
	}
	if m.fails("a read is torn") && len(refs) > 1 {
		return append(rows(m.refs, project, refs[:1]), rows(m.old, project, refs[1:])...), nil
	}
	return rows(m.refs, project, refs), nil
}

func rows(of map[string]refdb.Ref, project string, refs []string) (all []refdb.Ref) {
	for _, ref := range refs {
		if r := of[project+ref]; r.Name != "" {
			all = append(all, r)
		}
	}
	return all
}

func (m *memory) Update(_ context.Context, r driver.UpdateRequest) error {
	defer m.begin()()
	return m.update(r)
}

func (m *memory) update(r driver.UpdateRequest) error {
	if m.loses(11) {
		return errLost // on its way
	}
	own := make(map[string]bool)
	if r.Fence != nil {
		lost := &refdb.LostError{Project: r.Project}
		for _, ref := range r.Fence.Refs {
			own[ref] = true
			row := m.locks[r.Project+ref]
			if row.Token != r.Fence.Token || row.Owner != r.Fence.Owner && !m.fails("a fence of another owner passes") {
				lost.Refs = append(lost.Refs, ref)
			}
		}
		if len(lost.Refs) > 0 && !m.fails("a stale token passes the fence") {
			return lost
		}
		if m.fails("a lock that stands is said to be lost") {
			return &refdb.LostError{Project: r.Project, Refs: r.Fence.Refs}
		}
	}
	var others []string
	mismatch := &refdb.MismatchError{Project: r.Project}
	for _, u := range r.Updates {
		if !own[u.Ref] && r.Locks == driver.MandatoryLocks {
			others = append(others, u.Ref)
		}
		row, known := m.refs[r.Project+u.Ref]
		if row.Value != u.Old && !(row.Value.IsAbsent() && u.Old.IsAbsent()) && (known || !r.Adopt) {
			have := row.Value
			if m.fails("a mismatch names an old value") {
				have = m.old[r.Project+u.Ref].Value
			}
			mismatch.Mismatches = append(mismatch.Mismatches, refdb.Mismatch{Ref: u.Ref, Want: u.Old, Have: have})
		}
	}
	standing, fresh := m.standing(r.Project, others)
	if fresh && !m.fails("an update passes a fresh lock") {
		return &refdb.LockedError{Holders: standing}
	}
	if len(mismatch.Mismatches) > 0 {
		if m.fails("a refused update is visible") {
			m.write(r)
		}
		return mismatch
	}
	if m.fails("an acknowledged update is lost") {
		return nil
	}
	if m.fails("an update is half done") {
		r.Updates = r.Updates[:1]
	}
	for _, l := range standing {
		delete(m.locks, r.Project+l.Ref)
	}
	m.write(r)
	if r.Fence != nil && r.Fence.Release && !m.fails("an update does not release") {
		for ref := range own {
			delete(m.locks, r.Project+ref)
		}
	}
	if m.fails("an update is carried out again after a while") && m.again == nil {
		m.again, m.due = func() { m.write(r) }, m.calls+10
	}
	switch {
	case m.fails("an update that was carried out is unavailable"):
		return fmt.Errorf("so it says: %w", refdb.ErrUnavailable)
	case m.loses(7):
		return errLost
	}
	return nil
}

func (m *memory) write(r driver.UpdateRequest) {
	for _, u := range r.Updates {
		m.old[r.Project+u.Ref] = m.refs[r.Project+u.Ref]
		m.refs[r.Project+u.Ref] = refdb.Ref{Name: u.Ref, Value: u.New, Op: r.ID}
	}
}

// standing returns the locks on refs, and whether one is fresh.
func (m *memory) standing(project string, refs []string) (all []refdb.LockInfo, fresh bool) {
	for _, ref := range refs {
		if row, ok := m.locks[project+ref]; ok {
			row.Age = time.Since(row.Heartbeat)
			all = append(all, row.LockInfo)
			fresh = fresh || !row.Stale()
		}
	}
	return all, fresh
}

func (m *memory) Acquire(_ context.Context, r driver.AcquireRequest) (driver.Acquired, error) {
	defer m.begin()()
	standing, fresh := m.standing(r.Project, r.Refs)
	if len(standing) == len(r.Refs) && m.locks[r.Project+r.Refs[0]].nonce == r.Nonce {
		return driver.Acquired{Token: standing[0].Token, Refs: rows(m.refs, r.Project, r.Refs)}, nil
	}
	switch {
	case fresh && m.fails("two hold a lock"):
		standing = nil
	case fresh && m.fails("a fresh lock is reclaimed"):
		for i := range standing {
			standing[i].Age += standing[i].StaleAfter
		}
	case fresh && m.fails("a refusal keeps a holder to itself") && len(standing) > 1:
		return driver.Acquired{}, &refdb.LockedError{Holders: standing[:1]}
	case fresh && m.fails("a refusal names an older token"):
		standing[0].Token--
		return driver.Acquired{}, &refdb.LockedError{Holders: standing}
	case fresh:
		return driver.Acquired{}, &refdb.LockedError{Holders: standing}
	}
	m.mark = max(m.mark+1, driver.TokenOf(time.Now()))
	token := m.mark
	if m.fails("a token goes backwards") {
		token -= 1_000_000
	}
	a := driver.Acquired{Token: token, Refs: rows(m.refs, r.Project, r.Refs), Reclaimed: standing}
	if m.fails("an acquisition returns old values") {
		a.Refs = rows(m.old, r.Project, r.Refs)
	}
	for _, ref := range r.Refs {
		m.locks[r.Project+ref] = lockRow{refdb.LockInfo{Project: r.Project, Ref: ref, Owner: r.Owner, Token: token,
			Heartbeat: time.Now(), StaleAfter: r.StaleAfter}, r.Nonce}
	}
	if m.loses(7) {
		return driver.Acquired{}, errLost
	}
	return a, nil
}

func (m *memory) Beat(_ context.Context, locks []driver.LockID) ([]driver.BeatResult, error) {
	defer m.begin()()
	results := make([]driver.BeatResult, len(locks))
	for i, l := range locks {
		row, ok := m.locks[l.Project+l.Ref]
		if !ok || row.Token != l.Token || row.Owner != l.Owner {
			results[i] = driver.BeatLost
			continue
		}
		row.Heartbeat = time.Now()
		m.locks[l.Project+l.Ref], results[i] = row, driver.BeatRenewed
	}
	return results, nil
}

func (m *memory) Release(_ context.Context, r driver.ReleaseRequest) (released driver.Released, err error) {
	defer m.begin()()
	for _, ref := range r.Refs {
		row, ok := m.locks[r.Project+ref]
		stands := ok && row.Token == r.Token && row.Owner == r.Owner
		if !stands {
			released.Missing = append(released.Missing, ref)
		}
		if stands && !m.fails("a release deletes nothing") {
			delete(m.locks, r.Project+ref)
		}
	}
	if m.loses(7) {
		return driver.Released{}, errLost
	}
	return released, nil
}

func (m *memory) Abandon(_ context.Context, r driver.AbandonRequest) error {
	defer m.begin()()
	for _, ref := range r.Refs {
		if row := m.locks[r.Project+ref]; row.Owner == r.Owner && row.nonce == r.Nonce {
			delete(m.locks, r.Project+ref)
		}
	}
	if m.loses(7) {
		return errLost
	}
	return nil
}

func (m *memory) Close() error { return nil }
