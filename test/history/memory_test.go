package history_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
)

// memory is a database behind one mutex. With a bug set it breaks a promise now
// and then, in a way that looks well from each caller's side.
type memory struct {
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
	return m.bug == "" || m.failed >= 20
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

func (m *memory) Update(_ context.Context, t refdb.Transaction) error {
	defer m.begin()()
	if m.loses(11) {
		return errLost // on its way
	}
	own := make(map[string]bool)
	if t.Fence != nil {
		lost := &refdb.LostError{Project: t.Project}
		for _, ref := range t.Fence.Refs {
			own[ref] = true
			if m.locks[t.Project+ref].Token != t.Fence.Token {
				lost.Refs = append(lost.Refs, ref)
			}
		}
		if len(lost.Refs) > 0 && !m.fails("a stale token passes the fence") {
			return lost
		}
		if m.fails("a lock that stands is said to be lost") {
			return &refdb.LostError{Project: t.Project, Refs: t.Fence.Refs}
		}
	}
	var others []string
	mismatch := &refdb.MismatchError{Project: t.Project}
	for _, u := range t.Updates {
		if !own[u.Ref] && !t.Advisory {
			others = append(others, u.Ref)
		}
		row, known := m.refs[t.Project+u.Ref]
		if row.Value != u.Old && !(row.Value.IsAbsent() && u.Old.IsAbsent()) && (known || !t.Adopt) {
			have := row.Value
			if m.fails("a mismatch names an old value") {
				have = m.old[t.Project+u.Ref].Value
			}
			mismatch.Mismatches = append(mismatch.Mismatches, refdb.Mismatch{Ref: u.Ref, Want: u.Old, Have: have})
		}
	}
	standing, fresh := m.standing(t.Project, others)
	if fresh && !m.fails("an update passes a fresh lock") {
		return &refdb.LockedError{Holders: standing}
	}
	if len(mismatch.Mismatches) > 0 {
		if m.fails("a refused update is visible") {
			m.write(t)
		}
		return mismatch
	}
	if m.fails("an acknowledged update is lost") {
		return nil
	}
	if m.fails("an update is half done") {
		t.Updates = t.Updates[:1]
	}
	for _, l := range standing {
		delete(m.locks, t.Project+l.Ref)
	}
	m.write(t)
	if t.Release && !m.fails("an update does not release") {
		for ref := range own {
			delete(m.locks, t.Project+ref)
		}
	}
	if m.fails("an update is carried out again after a while") && m.again == nil {
		m.again, m.due = func() { m.write(t) }, m.calls+10
	}
	switch {
	case m.fails("an update that was carried out is unavailable"):
		return fmt.Errorf("so it says: %w", refdb.ErrUnavailable)
	case m.loses(7):
		return errLost
	}
	return nil
}

func (m *memory) write(t refdb.Transaction) {
	for _, u := range t.Updates {
		m.old[t.Project+u.Ref] = m.refs[t.Project+u.Ref]
		m.refs[t.Project+u.Ref] = refdb.Ref{Name: u.Ref, Value: u.New, Op: t.ID}
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

func (m *memory) Acquire(_ context.Context, r refdb.AcquireRequest) (refdb.Acquired, error) {
	defer m.begin()()
	standing, fresh := m.standing(r.Project, r.Refs)
	if len(standing) == len(r.Refs) && m.locks[r.Project+r.Refs[0]].nonce == r.Nonce {
		return refdb.Acquired{Token: standing[0].Token, Refs: rows(m.refs, r.Project, r.Refs)}, nil
	}
	switch {
	case fresh && m.fails("two hold a lock"):
		standing = nil
	case fresh && m.fails("a fresh lock is reclaimed"):
		for i := range standing {
			standing[i].Age += standing[i].StaleAfter
		}
	case fresh && m.fails("a refusal keeps a holder to itself") && len(standing) > 1:
		return refdb.Acquired{}, &refdb.LockedError{Holders: standing[:1]}
	case fresh && m.fails("a refusal names an older token"):
		standing[0].Token--
		return refdb.Acquired{}, &refdb.LockedError{Holders: standing}
	case fresh:
		return refdb.Acquired{}, &refdb.LockedError{Holders: standing}
	}
	m.mark = max(m.mark+1, refdb.TokenOf(time.Now()))
	token := m.mark
	if m.fails("a token goes backwards") {
		token -= 1_000_000
	}
	a := refdb.Acquired{Token: token, Refs: rows(m.refs, r.Project, r.Refs), Reclaimed: standing}
	if m.fails("an acquisition returns old values") {
		a.Refs = rows(m.old, r.Project, r.Refs)
	}
	for _, ref := range r.Refs {
		m.locks[r.Project+ref] = lockRow{refdb.LockInfo{Project: r.Project, Ref: ref, Owner: r.Owner, Token: token,
			Heartbeat: time.Now(), StaleAfter: r.StaleAfter}, r.Nonce}
	}
	if m.loses(7) {
		return refdb.Acquired{}, errLost
	}
	return a, nil
}

func (m *memory) Beat(_ context.Context, _ string, held []refdb.Held) ([]refdb.BeatResult, error) {
	defer m.begin()()
	results := make([]refdb.BeatResult, len(held))
	for i, h := range held {
		row, ok := m.locks[h.Project+h.Ref]
		if !ok || row.Token != h.Token {
			results[i] = refdb.BeatLost
			continue
		}
		row.Heartbeat = time.Now()
		m.locks[h.Project+h.Ref], results[i] = row, refdb.Beaten
	}
	return results, nil
}

func (m *memory) Release(_ context.Context, held []refdb.Held) ([]bool, error) {
	defer m.begin()()
	deleted := make([]bool, len(held))
	for i, h := range held {
		row, ok := m.locks[h.Project+h.Ref]
		deleted[i] = ok && (row.Token == h.Token && h.Token != 0 || row.nonce == h.Nonce && h.Nonce != "")
		if m.fails("a release deletes nothing") {
			continue
		}
		if deleted[i] {
			delete(m.locks, h.Project+h.Ref)
		}
	}
	if m.loses(7) {
		return nil, errLost
	}
	return deleted, nil
}

func (m *memory) Now(context.Context) (time.Time, error) { return time.Now(), nil }
func (m *memory) Close() error                           { return nil }

func (m *memory) List(context.Context, refdb.RefQuery) ([]refdb.Ref, error) {
	return nil, errors.ErrUnsupported
}

func (m *memory) Remove(context.Context, refdb.RemoveRequest) (int, error) {
	return 0, errors.ErrUnsupported
}

func (m *memory) Locks(context.Context, refdb.LockQuery) ([]refdb.LockInfo, error) {
	return nil, errors.ErrUnsupported
}

func (m *memory) Intents(context.Context, refdb.IntentQuery) ([]refdb.Intent, error) {
	return nil, errors.ErrUnsupported
}

func (m *memory) Resolve(context.Context, refdb.ResolveRequest) ([]bool, error) {
	return nil, errors.ErrUnsupported
}

func (m *memory) Revoke(context.Context, refdb.AcquireRequest) error { return errors.ErrUnsupported }

func (m *memory) Forget(context.Context, []refdb.Intent) error { return errors.ErrUnsupported }

func (m *memory) States(context.Context, string, []string) ([]refdb.State, error) {
	return nil, errors.ErrUnsupported
}
