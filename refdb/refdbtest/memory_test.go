package refdbtest_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/refdbtest"
)

// memory is a database behind one mutex: the simplest that passes the suite.
// With a bug set it is one that must not.
type memory struct {
	bug string

	mu      sync.Mutex
	refs    map[key]refdb.Ref
	locks   map[key]lockRow
	intents map[intentKey]refdb.Intent
	lines   map[key][]*driver // who waits for a lock, first come first
	awake   map[key]*driver   // who was woken last
	mark    refdb.Token
}

type key struct{ project, ref string }

func (k key) compare(o key) int {
	return cmp.Or(strings.Compare(k.project, o.project), strings.Compare(k.ref, o.ref))
}

type lockRow struct {
	refdb.LockInfo // but for its Age
	nonce          string
}

var _ refdb.Notifier = (*driver)(nil)

var _ refdbtest.Database = (*memory)(nil)

func newMemory(bug string) *memory {
	return &memory{
		bug: bug, refs: make(map[key]refdb.Ref), locks: make(map[key]lockRow),
		intents: make(map[intentKey]refdb.Intent), lines: make(map[key][]*driver), awake: make(map[key]*driver),
	}
}

func (m *memory) URL() string       { return "memory:" }
func (m *memory) Rounds() int       { return 50 }
func (m *memory) FutureTimes() bool { return true }

func (m *memory) Open(tb testing.TB) refdb.Driver {
	d := &driver{memory: m, woken: make(chan refdb.Held, 100)}
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

func (m *memory) InsertLock(tb testing.TB, l refdb.LockInfo) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := now()
	l.Heartbeat, l.StaleAfter = now.Add(-l.Age), refdb.DefaultStaleAfter
	if l.Token == 0 {
		l.Token = refdb.TokenOf(now)
	}
	m.locks[key{l.Project, l.Ref}] = lockRow{LockInfo: l}
}

func (m *memory) TakeOver(tb testing.TB, project, ref, owner string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	k := key{project, ref}
	row, now := m.locks[k], now()
	row.Heartbeat, row.Token, row.Owner = now, max(refdb.TokenOf(now), row.Token+1), owner
	m.locks[k] = row
}

func (m *memory) InsertRef(tb testing.TB, project, ref string, v refdb.Value) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.refs[key{project, ref}] = refdb.Ref{Name: ref, Value: v, Time: now()}
}

// Exec understands the few statements that the suite uses.
func (m *memory) Exec(tb testing.TB, sql string, _ ...any) {
	tb.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	quoted := strings.Split(sql, "'")
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

func (m *memory) RowLock(tb testing.TB, project, ref string) (refdb.LockInfo, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	row, ok := m.locks[key{project, ref}]
	return row.LockInfo, ok
}

func now() time.Time { return time.Now().Round(0).Truncate(time.Microsecond) }

// A driver is one process's.
type driver struct {
	*memory
	woken  chan refdb.Held
	closed bool
}

// begin starts a transaction, which ends with the function it returns.
func (d *driver) begin(ctx context.Context) (end func(), err error) {
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

// pause lets others in where a transaction is to be torn.
func (d *driver) pause(bug string) {
	if d.bug == bug {
		d.mu.Unlock()
		time.Sleep(50 * time.Microsecond)
		d.mu.Lock()
	}
}

func (d *driver) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed && d.bug == "closes once" {
		return errors.New("closed twice")
	}
	d.closed = true
	return nil
}

func (d *driver) Now(ctx context.Context) (time.Time, error) {
	end, err := d.begin(ctx)
	if err != nil {
		return time.Time{}, err
	}
	defer end()
	return now(), nil
}

func (d *driver) Get(ctx context.Context, project string, refs []string) ([]refdb.Ref, error) {
	end, err := d.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	return d.rows(project, refs), nil
}

func (d *driver) rows(project string, refs []string) []refdb.Ref {
	var rows []refdb.Ref
	for _, ref := range refs {
		if r, ok := d.refs[key{project, ref}]; ok && !(d.bug == "no tombstones" && r.Value.IsDeleted()) {
			rows = append(rows, r)
		}
		d.pause("reads row by row")
	}
	return rows
}

func (d *driver) List(ctx context.Context, q refdb.RefQuery) ([]refdb.Ref, error) {
	end, err := d.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	var page []refdb.Ref
	keys := slices.SortedFunc(maps.Keys(d.refs), key.compare)
	if d.bug == "order of a language" {
		slices.SortStableFunc(keys, func(a, b key) int { return strings.Compare(strings.ToLower(a.ref), strings.ToLower(b.ref)) })
	}
	for _, k := range keys {
		r := d.refs[k]
		in := k.project == q.Project || d.bug == "projects by prefix" && strings.HasPrefix(k.project, q.Project)
		in = in && d.hasPrefix(r.Name, q.Prefix)
		in = in && (r.Name > q.After || d.bug == "page starts with the last" && r.Name == q.After)
		if d.bug == "page before tombstones" && len(page) < q.Limit && in && r.Value.IsDeleted() && !q.Deleted {
			q.Limit--
		}
		if in && (q.Deleted || !r.Value.IsDeleted()) && len(page) < q.Limit {
			page = append(page, r)
		}
	}
	return page, nil
}

// hasPrefix compares bytes, unless it is LIKE.
func (d *driver) hasPrefix(s, prefix string) bool {
	if d.bug == "prefix by like" {
		return like(s, prefix+"%")
	}
	return strings.HasPrefix(s, prefix)
}

func like(s, pattern string) bool {
	switch {
	case pattern == "":
		return s == ""
	case pattern[0] == '%':
		return like(s, pattern[1:]) || s != "" && like(s[1:], pattern)
	default:
		return s != "" && (pattern[0] == '_' || strings.EqualFold(s[:1], pattern[:1])) && like(s[1:], pattern[1:])
	}
}

func (d *driver) standing(k key) (lockRow, bool) {
	row, ok := d.locks[k]
	row.Age = now().Sub(row.Heartbeat)
	if d.bug == "all stale after 30 s" || d.bug == "intents go stale" && row.Intended() {
		row.StaleAfter = refdb.DefaultStaleAfter
	}
	if d.bug == "future is stale" && row.Age < 0 {
		row.StaleAfter = -1 << 62
	}
	return row, ok
}

func anyFresh(holders []refdb.LockInfo) bool {
	return slices.ContainsFunc(holders, func(l refdb.LockInfo) bool { return !l.Stale() })
}

func (d *driver) Update(ctx context.Context, t refdb.Transaction) error {
	end, err := d.begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	if d.bug == "names ignore case" {
		for i := range t.Updates {
			t.Updates[i].Ref = strings.ToLower(t.Updates[i].Ref)
		}
	}
	own := make(map[key]bool)
	if t.Fence != nil {
		var lost []string
		for _, ref := range t.Fence.Refs {
			k := key{t.Project, ref}
			own[k] = true
			row, ok := d.locks[k]
			if !ok || row.Token != t.Fence.Token && d.bug != "fence by name" || row.Intended() && !t.Fence.Intents && d.bug != "fence passes intents" || row.Token == t.Fence.Token && d.bug == "fence by age" && now().Sub(row.Heartbeat) > row.StaleAfter {
				lost = append(lost, ref)
			}
			if d.bug == "fence looks at one row" {
				break
			}
		}
		if len(lost) > 0 {
			return fmt.Errorf("updating: %w", &refdb.LostError{Project: t.Project, Refs: lost})
		}
		d.pause("fence before transaction")
	}
	var holders []refdb.LockInfo
	for _, u := range t.Updates {
		row, ok := d.standing(key{t.Project, u.Ref})
		heeded := !t.Advisory || row.Intended() && d.bug != "advisory passes intents"
		if ok && heeded && !own[key{t.Project, u.Ref}] && !(d.bug == "fence passes all" && t.Fence != nil) {
			holders = append(holders, row.LockInfo)
		}
	}
	locked := anyFresh(holders) && d.bug != "no mandatory locks"
	if locked && d.bug != "mismatch before lock" {
		return fmt.Errorf("updating: %w", &refdb.LockedError{Holders: holders})
	}
	if d.bug == "stale ended though refused" {
		d.end(holders)
	}
	d.pause("locks before transaction")

	var mismatches []refdb.Mismatch
	for _, u := range t.Updates {
		row, known := d.refs[key{t.Project, u.Ref}]
		ok := row.Value == u.Old || row.Value.IsAbsent() && u.Old.IsAbsent() || !known && t.Adopt
		switch d.bug {
		case "zero is not unknown":
			ok = row.Value == u.Old || !known && t.Adopt
		case "unknown matches all":
			ok = ok || !known
		case "adopts tombstones":
			ok = ok || t.Adopt && row.Value.IsDeleted()
		case "values ignore case":
			ok = ok || strings.EqualFold(string(row.Value), string(u.Old))
		}
		if !ok {
			mismatches = append(mismatches, refdb.Mismatch{Ref: u.Ref, Want: u.Old, Have: row.Value})
			if d.bug == "first mismatch only" {
				break
			}
		} else if d.bug == "not all or nothing" {
			d.refs[key{t.Project, u.Ref}] = refdb.Ref{Name: u.Ref, Value: u.New, Time: now(), Op: t.ID}
		}
	}
	d.pause("compares before transaction")
	if t.Release && (len(mismatches) == 0 && !locked || d.bug == "released though refused") {
		for k := range own {
			if t.Fence.Intents {
				d.endIntent(k, t.Fence.Token)
			}
			delete(d.locks, k)
			d.released(k)
		}
	}
	if len(mismatches) > 0 {
		return fmt.Errorf("updating: %w", &refdb.MismatchError{Project: t.Project, Mismatches: mismatches})
	}
	if locked {
		return fmt.Errorf("updating: %w", &refdb.LockedError{Holders: holders})
	}
	if d.bug != "stale locks stay" {
		d.end(holders)
	}
	for _, u := range t.Updates {
		r := refdb.Ref{Name: u.Ref, Value: u.New, Time: now(), Op: t.ID}
		if d.bug == "op of the first" {
			if old, ok := d.refs[key{t.Project, u.Ref}]; ok {
				r.Op = old.Op
			}
		}
		if d.bug == "deletes rows" && u.New.IsDeleted() {
			delete(d.refs, key{t.Project, u.Ref})
			continue
		}
		d.refs[key{t.Project, u.Ref}] = r
		d.pause("writes row by row")
	}
	return nil
}

func (d *driver) end(locks []refdb.LockInfo) {
	for _, l := range locks {
		if l.Stale() {
			delete(d.locks, key{l.Project, l.Ref})
		}
	}
}

func (d *driver) Remove(ctx context.Context, r refdb.RemoveRequest) (int, error) {
	end, err := d.begin(ctx)
	if err != nil {
		return 0, err
	}
	defer end()
	in := func(project string) bool {
		return project == r.Project || d.bug == "removes by prefix" && strings.HasPrefix(project, r.Project)
	}
	var holders []refdb.LockInfo
	for k := range d.locks {
		if row, _ := d.standing(k); in(k.project) {
			holders = append(holders, row.LockInfo)
		}
	}
	intended := slices.ContainsFunc(holders, refdb.LockInfo.Intended) && d.bug != "force takes intents"
	if !r.Tombstones && (intended || !r.Force && anyFresh(holders)) && d.bug != "removes under locks" {
		return 0, fmt.Errorf("removing: %w", &refdb.LockedError{Holders: holders})
	}
	d.pause("removes after looking")
	n, left := 0, 0
	for _, k := range slices.SortedFunc(maps.Keys(d.refs), key.compare) {
		row := d.refs[k]
		switch {
		case !in(k.project):
		case n == r.Limit && d.bug != "no limit":
			left++
		case r.Tombstones && (!row.Value.IsDeleted() || now().Sub(row.Time) < r.OlderThan && d.bug != "purges young tombstones"):
		default:
			delete(d.refs, k)
			n++
		}
	}
	if (!r.Tombstones || d.bug == "tombstones take locks") && (left == 0 || d.bug == "locks go first") {
		for _, l := range holders {
			delete(d.locks, key{l.Project, l.Ref})
		}
	}
	return n, nil
}

func (d *driver) Acquire(ctx context.Context, r refdb.AcquireRequest) (refdb.Acquired, error) {
	end, err := d.begin(ctx)
	if err != nil {
		return refdb.Acquired{}, err
	}
	defer end()
	var own, holders []refdb.LockInfo
	for _, ref := range r.Refs {
		row, ok := d.standing(key{r.Project, ref})
		switch {
		case ok && row.of(r.Owner, r.Nonce, d.bug) && d.bug != "no adoption" || ok && row.Owner == r.Owner && d.bug == "adopts by owner":
			own = append(own, row.LockInfo)
		case ok:
			holders = append(holders, row.LockInfo)
		}
	}
	if len(own) == len(r.Refs) {
		return refdb.Acquired{Token: own[0].Token, Refs: d.rows(r.Project, r.Refs)}, nil
	}
	if r.Intents != nil && d.bug != "partial intents are given up" {
		holders = append(holders, own...)
		slices.SortFunc(holders, func(a, b refdb.LockInfo) int { return strings.Compare(a.Ref, b.Ref) })
	} else if d.bug != "partial rows stay" {
		for _, l := range own {
			delete(d.locks, key{l.Project, l.Ref})
			d.mark = max(d.mark, l.Token)
		}
	}
	d.pause("acquires after looking")
	if d.bug == "takes what it can" || d.bug == "reclaims what it can" {
		for _, ref := range r.Refs {
			row, ok := d.standing(key{r.Project, ref})
			if !ok && d.bug == "takes what it can" || ok && row.Stale() && d.bug == "reclaims what it can" {
				d.insert(r, ref, d.mark+1)
			}
		}
	}
	if anyFresh(holders) && d.bug != "reclaims fresh locks" || len(holders) > 0 && d.bug == "never reclaims" {
		if r.Wait {
			d.wait(holders)
		}
		if d.bug == "names the first holder" {
			holders = holders[:1]
		}
		return refdb.Acquired{}, fmt.Errorf("acquiring: %w", &refdb.LockedError{Holders: holders})
	}
	if r.Intents != nil && d.revoked(r) {
		return refdb.Acquired{}, refdb.ErrReleased
	}
	if err := d.compare(r); err != nil {
		return refdb.Acquired{}, err
	}
	token := max(refdb.TokenOf(now()), d.mark+1)
	for _, l := range holders {
		if d.bug != "token by the clock" {
			token = max(token, l.Token+1)
		}
	}
	if d.bug == "token of the holder" && len(holders) > 0 {
		token = holders[0].Token
	}
	if d.bug != "token by the clock" {
		d.mark = token
	}
	a := refdb.Acquired{Token: token, Reclaimed: holders}
	a.Refs = d.rows(r.Project, r.Refs)
	d.pause("values before transaction")
	for _, ref := range r.Refs {
		d.insert(r, ref, token)
		d.pause("acquires row by row")
	}
	d.intend(r, token)
	if d.bug == "marker stays" && len(holders) > 0 {
		m := holders[0]
		m.Project = refdb.ReclaimPrefix + r.Project + "_" + m.Token.Time().Format("2006-01-02T15:04:05.000000000Z")
		m.Owner = r.Owner
		d.locks[key{m.Project, m.Ref}] = lockRow{LockInfo: m}
	}
	return a, nil
}

func (d *driver) insert(r refdb.AcquireRequest, ref string, token refdb.Token) {
	k := key{r.Project, ref}
	d.locks[k] = lockRow{
		LockInfo: refdb.LockInfo{Project: r.Project, Ref: ref, Owner: r.Owner, Token: token, Heartbeat: now(), StaleAfter: r.StaleAfter},
		nonce:    r.Nonce,
	}
}

func (d *driver) wait(holders []refdb.LockInfo) {
	for _, l := range holders {
		k := key{l.Project, l.Ref}
		if !slices.Contains(d.lines[k], d) {
			d.lines[k] = append(d.lines[k], d)
		}
	}
}

// released wakes who waits first.
func (d *driver) released(k key) {
	if line := d.lines[k]; len(line) > 0 && d.bug != "wakes nobody" {
		line[0].woken <- refdb.Held{Project: k.project, Ref: k.ref}
		d.lines[k], d.awake[k] = line[1:], line[0]
		if d.bug == "forgets the line" {
			delete(d.lines, k)
		}
	}
}

func (d *driver) PassOn(project, ref string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	k := key{project, ref}
	if d.awake[k] == d && d.bug != "passes nothing on" {
		delete(d.awake, k)
		d.released(k)
	}
}

func (d *driver) Listen(ctx context.Context, started func(), wake func(project, ref string)) error {
	started()
	for {
		select {
		case h := <-d.woken:
			wake(h.Project, h.Ref)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// of reports whether the row is that acquisition's.
func (row lockRow) of(owner, nonce, bug string) bool {
	return row.nonce == nonce && (row.Owner == owner || bug == "nonce of any owner")
}

func (d *driver) matches(h refdb.Held) (lockRow, bool) {
	row, ok := d.locks[key{h.Project, h.Ref}]
	if d.bug == "by name" {
		return row, ok
	}
	if d.bug == "tokens not before" {
		return row, ok && row.Token >= h.Token
	}
	if h.Nonce != "" && d.bug != "nonce ignored" {
		ok = ok && row.of(h.Owner, h.Nonce, d.bug)
	} else {
		ok = ok && row.Token == h.Token
	}
	ok = ok && (h.Intent || !row.Intended() || d.bug == "intents are released as locks")
	return row, ok && (h.Heartbeat.IsZero() || h.Heartbeat.Equal(row.Heartbeat) || d.bug == "heartbeat ignored")
}

func (d *driver) Beat(ctx context.Context, owner string, held []refdb.Held) ([]refdb.BeatResult, error) {
	end, err := d.begin(ctx)
	if err != nil {
		if d.bug == "unknown is lost" {
			return slices.Repeat([]refdb.BeatResult{refdb.BeatLost}, len(held)), err
		}
		return nil, err
	}
	defer end()
	if d.bug == "beats all of the owner" {
		for k, row := range d.locks {
			if row.Owner == owner {
				row.Heartbeat = now()
				d.locks[k] = row
			}
		}
	}
	results := make([]refdb.BeatResult, len(held))
	for i, h := range held {
		row, ok := d.matches(h)
		d.pause("beats after looking")
		if !ok {
			results[i] = refdb.BeatLost
			if d.bug == "unknown for lost" {
				results[i] = refdb.BeatUnknown
			}
			continue
		}
		results[i] = refdb.Beaten
		row.Heartbeat = now()
		if d.bug == "beat renews the token" {
			row.Token++
		}
		if d.bug != "beats nothing" {
			d.locks[key{h.Project, h.Ref}] = row
		}
	}
	if d.bug == "results by name" {
		slices.SortFunc(results, func(a, b refdb.BeatResult) int { return cmp.Compare(a, b) })
	}
	return results, nil
}

func (d *driver) Release(ctx context.Context, held []refdb.Held) ([]bool, error) {
	end, err := d.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	results := make([]bool, len(held))
	for i, h := range held {
		row, ok := d.matches(h)
		d.pause("releases after looking")
		if ok {
			d.endIntent(key{h.Project, h.Ref}, row.Token)
			delete(d.locks, key{h.Project, h.Ref})
			d.released(key{h.Project, h.Ref})
			results[i] = true
		}
	}
	if d.bug == "all released" {
		for i := range results {
			results[i] = true
		}
	}
	return results, nil
}

func (d *driver) Locks(ctx context.Context, q refdb.LockQuery) ([]refdb.LockInfo, error) {
	end, err := d.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	var page []refdb.LockInfo
	for _, k := range slices.SortedFunc(maps.Keys(d.locks), key.compare) {
		row, _ := d.standing(k)
		if d.selects(q, k, row.LockInfo) && len(page) < q.Limit {
			page = append(page, row.LockInfo)
		}
	}
	return page, nil
}

func (d *driver) selects(q refdb.LockQuery, k key, l refdb.LockInfo) bool {
	after := k.compare(key{q.AfterProject, q.AfterRef}) > 0
	if d.bug == "page by ref" {
		after = l.Project > q.AfterProject && l.Ref > q.AfterRef
	}
	owner := l.Owner == q.Owner || strings.HasPrefix(l.Owner, q.Owner+"/")
	if d.bug == "sites by prefix" {
		owner = strings.HasPrefix(l.Owner, q.Owner)
	}
	return after && (q.Owner == "" || owner) &&
		(strings.HasPrefix(l.Project, refdb.ReclaimPrefix) == q.Markers || d.bug == "markers are locks") &&
		(q.Project == "" || l.Project == q.Project) &&
		(q.Ref == "" || l.Ref == q.Ref) &&
		d.hasPrefix(l.Ref, q.Prefix) &&
		(!q.Stale || l.Stale() || d.bug == "stale filter ignored") &&
		(q.OlderThan == 0 || l.Age > q.OlderThan)
}
