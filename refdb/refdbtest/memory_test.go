package refdbtest_test

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/internal/queue"
	"github.com/globalrefdb/globalrefdb/refdb/refdbtest"
)

// memory is a database behind one mutex: the simplest that passes the suite.
// With a bug it must fail.
type memory struct {
	bug string

	mu       sync.Mutex
	refs     map[key]driver.Ref
	locks    map[key]lockRow
	intents  map[intentKey]driver.Intent
	channels map[string]chan driver.Wakeup
	mark     driver.Token
	reserved int64 // revision, if it has the bug to give them out of turn
	projects map[string]driver.Project
	audit    []driver.AuditEntry
	packs    map[string]*packRow
	orphans  map[string]map[int][]byte // parts of packs that were deleted
	history
	admission
}

type key struct{ project, ref string }

func (k key) compare(o key) int {
	return cmp.Or(strings.Compare(k.project, o.project), strings.Compare(k.ref, o.ref))
}

type lockRow struct {
	driver.LockInfo // except its Age
	nonce           string
	queue           queue.Queue
}

var _ driver.Notifier = (*connection)(nil)

var _ refdbtest.Database = (*memory)(nil)

func newMemory(bug string) *memory {
	return &memory{
		bug: bug, refs: make(map[key]driver.Ref), locks: make(map[key]lockRow),
		intents: make(map[intentKey]driver.Intent), channels: make(map[string]chan driver.Wakeup), projects: make(map[string]driver.Project),
		packs: make(map[string]*packRow), orphans: make(map[string]map[int][]byte), history: newHistory(), admission: newAdmission(),
	}
}

// Patience is short for a driver with a bug: what most of them do not do is waited for.
func (m *memory) Patience() time.Duration {
	if m.bug != "" {
		return 5 * time.Second
	}
	return 5 * time.Minute
}

func (m *memory) URL() string       { return "memory:" }
func (m *memory) Rounds() int       { return 50 }
func (m *memory) FutureTimes() bool { return true }

func (m *memory) Open(tb testing.TB) driver.Driver {
	d := &connection{memory: m, taken: make(map[driver.LockID]bool)}
	tb.Cleanup(func() { d.Close() })
	return d
}

func (m *memory) Age(tb testing.TB, project, ref string, d time.Duration) {
	tb.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	k := key{project, ref}
	row, ok := m.locks[k]
	if !ok {
		tb.Fatalf("no lock on %q %q", project, ref)
	}
	row.Heartbeat = row.Heartbeat.Add(-d)
	m.locks[k] = row
}

func (m *memory) InsertLock(tb testing.TB, l driver.LockInfo) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := now()
	l.Heartbeat, l.StaleAfter = now.Add(-l.Age), driver.DefaultStaleAfter
	if l.Token == 0 {
		l.Token = driver.TokenOf(now)
	}
	m.locks[key{l.Project, l.Ref}] = lockRow{LockInfo: l}
}

func (m *memory) TakeOver(tb testing.TB, project, ref, owner string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	k := key{project, ref}
	row, now := m.locks[k], now()
	row.Heartbeat, row.Token, row.Owner = now, max(driver.TokenOf(now), row.Token+1), owner
	m.locks[k] = row
}

func (m *memory) InsertRef(tb testing.TB, project, ref string, v driver.Value) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.refs[key{project, ref}] = driver.Ref{Name: ref, Value: v, Time: now()}
}

// Exec understands the few statements that the suite uses.
func (m *memory) Exec(tb testing.TB, sql string, _ ...any) {
	tb.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	quoted := strings.Split(sql, "'")
	if strings.HasPrefix(sql, "UPDATE locks SET owner") {
		k := key{quoted[3], quoted[5]}
		row := m.locks[k]
		row.Owner = quoted[1]
		m.locks[k] = row
		return
	}
	for k, row := range m.locks {
		switch {
		case k.project != quoted[1]:
		case strings.HasPrefix(sql, "UPDATE locks SET heartbeat = NULL, token = NULL"):
			row.Heartbeat, row.Token = time.UnixMicro(0), 0
			m.locks[k] = row
		case strings.HasPrefix(sql, "UPDATE locks SET stale_after = 0"):
			row.StaleAfter = 0
			m.locks[k] = row
		case strings.HasPrefix(sql, "DELETE FROM locks"):
			delete(m.locks, k)
		case strings.HasPrefix(sql, "UPDATE refs SET time = (SELECT"):
			for _, ref := range []string{quoted[7], quoted[9]} {
				r := m.refs[key{k.project, ref}]
				r.Time = m.locks[key{k.project, quoted[3]}].Heartbeat
				m.refs[key{k.project, ref}] = r
			}
		default:
			tb.Fatalf("can't execute %s", sql)
		}
	}
}

func (m *memory) RowLock(tb testing.TB, project, ref string) (driver.LockInfo, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	row, ok := m.locks[key{project, ref}]
	return row.LockInfo, ok
}

func now() time.Time { return time.Now().Round(0).Truncate(time.Microsecond) }

// A connection is the driver of one process.
type connection struct {
	*memory
	closed bool

	taken     map[driver.LockID]bool // what it acquired, if it has the bug to remember that
	listening string                 // the one channel, if it has the bug to have one only
}

// begin starts a transaction, which ends with the function it returns.
func (d *connection) begin(ctx context.Context) (end func(), err error) {
	if err := ctx.Err(); err != nil && d.bug != "context ignored" {
		return nil, err
	}
	d.mu.Lock()
	if d.closed {
		d.mu.Unlock()
		return nil, errors.New("closed")
	}
	return d.mu.Unlock, nil
}

// pause unlocks the database for a moment, if it has the bug to interrupt transactions there.
func (d *connection) pause(bug string) {
	if d.bug == bug {
		d.mu.Unlock()
		time.Sleep(200 * time.Microsecond)
		d.mu.Lock()
	}
}

func (d *connection) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed && d.bug == "closes once" {
		return errors.New("closed twice")
	}
	d.closed = true
	return nil
}
