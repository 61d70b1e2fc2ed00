package refdbtest

import (
	"crypto/rand"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
)

const (
	refA = "refs/heads/a"
	refB = "refs/heads/b"
	refC = "refs/heads/c"

	v1 refdb.Value = "1111111111111111111111111111111111111111"
	v2 refdb.Value = "2222222222222222222222222222222222222222"
	v3 refdb.Value = "3333333333333333333333333333333333333333"

	gerrit = "gerrit" // the owner of what its plugin wrote

	// The suite's locks have this StaleAfter, unless a row says otherwise: nothing becomes stale
	// by itself.
	staleAfter = time.Hour
	stale      = staleAfter + time.Minute // an age to give a lock
)

// env is what a row works with: two processes on the topic's database, and a project of its own,
// whose name needs no quoting in SQL.
type env struct {
	*testing.T
	create  func(testing.TB) Database
	db      Database
	a, b    process
	project string
}

// newEnv makes the environment of a topic, or of a test.
func newEnv(t *testing.T, create func(testing.TB) Database) *env {
	db := create(t)
	return &env{T: t, create: create, db: db, a: process{db.Open(t), "site-a/1"}, b: process{db.Open(t), "site-b/2"}}
}

// alone makes a row run on a database of its own. Spanner's emulator has one transaction per
// database at a time, and a long one loses its turn to every short one.
func alone(run func(*env)) func(*env) {
	return func(e *env) {
		own := newEnv(e.T, e.create)
		own.project = e.project
		run(own)
	}
}

// A process is a driver and the owner of the locks that are taken through it.
type process struct {
	refdb.Driver
	owner string
}

// spawn opens a driver for one more process.
func (e *env) spawn(owner string) process {
	e.Helper()
	return process{e.db.Open(e), owner}
}

// rounds returns how often to repeat a race.
func (e *env) rounds() int {
	n := roundsOf(e.db)
	if _, ok := e.db.(alternating); ok {
		n = (n + 3) / 4
	}
	return n
}

func roundsOf(db Database) int {
	if r, ok := db.(rounder); ok {
		return r.Rounds()
	}
	return defaultRounds
}

// scale returns limit, or a tenth of it for a slow database.
func (e *env) scale(limit int) int {
	if e.slow() {
		return limit / 10
	}
	return limit
}

// slow reports whether the database asks for fewer rounds than the default.
func (e *env) slow() bool { return roundsOf(e.db) < defaultRounds }

// futureTimes reports whether a row may hold a time in the future.
func (e *env) futureTimes() bool { return futureTimesOf(e.db) }

func futureTimesOf(db Database) bool {
	if k, ok := db.(futureTimer); ok {
		return k.FutureTimes()
	}
	return true
}

// must ends the row if err is not nil.
func (e *env) must(err error) {
	e.Helper()
	if err != nil {
		e.Fatal(err)
	}
}

// retry repeats a request that was certainly not carried out: any method may return
// ErrUnavailable after a deadlock or a serialization failure.
func retry(do func() error) error {
	var err error
	for range 50 {
		if err = do(); !errors.Is(err, refdb.ErrUnavailable) {
			break
		}
	}
	return err
}

// move returns an update of one ref.
func move(ref string, from, to refdb.Value) refdb.Update {
	return refdb.Update{Ref: ref, Old: from, New: to}
}

// creations returns updates that create refs with v1.
func creations(refs []string) (updates []refdb.Update) {
	for _, ref := range refs {
		updates = append(updates, move(ref, "", v1))
	}
	return updates
}

// sendUpdate sends r through p. It fills in the row's project and a unique ID where r has none.
func (e *env) sendUpdate(p process, r refdb.UpdateRequest) error {
	if r.Project == "" {
		r.Project = e.project
	}
	if r.ID == "" {
		r.ID = rand.Text()
	}
	return retry(func() error { return p.Update(e.Context(), r) })
}

// update sends a plain update through p.
func (e *env) update(p process, updates ...refdb.Update) error {
	return e.sendUpdate(p, refdb.UpdateRequest{Updates: updates})
}

// A lock is a request to acquire and the answer to it.
type lock struct {
	refdb.AcquireRequest
	refdb.Acquired
}

func (l lock) refs() []string { return l.AcquireRequest.Refs }

// ids returns the IDs of l's locks.
func (l lock) ids() []refdb.LockID { return idsOf(l.Project, l.Owner, l.Token, l.refs()) }

func idsOf(project, owner string, token refdb.Token, refs []string) []refdb.LockID {
	var ids []refdb.LockID
	for _, ref := range refs {
		ids = append(ids, refdb.LockID{Project: project, Ref: ref, Owner: owner, Token: token})
	}
	return ids
}

// fence returns the fence of an update through l.
func (l lock) fence() *refdb.Fence {
	return &refdb.Fence{Refs: l.refs(), Owner: l.Owner, Token: l.Token}
}

// releasing returns the fence of an update that also releases l.
func (l lock) releasing() *refdb.Fence {
	f := l.fence()
	f.Release = true
	return f
}

// values returns what the refs held as of the acquisition.
func (l lock) values() map[string]refdb.Value { return valuesOf(l.Acquired.Refs) }

func valuesOf(refs []refdb.Ref) map[string]refdb.Value {
	all := make(map[string]refdb.Value)
	for _, r := range refs {
		all[r.Name] = r.Value
	}
	return all
}

// acquireRequest returns p's request for refs of the row's project.
func (e *env) acquireRequest(p process, refs ...string) refdb.AcquireRequest {
	return refdb.AcquireRequest{
		Project: e.project, Refs: refs, Owner: p.owner, Nonce: rand.Text(), StaleAfter: staleAfter,
	}
}

// sendAcquire sends r through p.
func (e *env) sendAcquire(p process, r refdb.AcquireRequest) (lock, error) {
	var got refdb.Acquired
	err := retry(func() (err error) {
		got, err = p.Acquire(e.Context(), r)
		return err
	})
	return lock{r, got}, err
}

// tryAcquire tries to take locks through p.
func (e *env) tryAcquire(p process, refs ...string) (lock, error) {
	return e.sendAcquire(p, e.acquireRequest(p, refs...))
}

// acquire takes locks that are free, or stale.
func (e *env) acquire(p process, refs ...string) lock {
	e.Helper()
	l, err := e.tryAcquire(p, refs...)
	e.must(err)
	return l
}

// refused tries to take locks that are not free, and returns their holders.
func (e *env) refused(p process, refs ...string) []refdb.LockInfo {
	e.Helper()
	_, err := e.tryAcquire(p, refs...)
	return e.holders(err)
}

// tryBeat beats locks through p.
func (e *env) tryBeat(p process, ids ...refdb.LockID) (got []refdb.BeatResult, err error) {
	err = retry(func() error {
		got, err = p.Beat(e.Context(), ids)
		return err
	})
	if err == nil && len(got) != len(ids) {
		err = fmt.Errorf("a beat of %d rows gave %d results", len(ids), len(got))
	}
	return got, err
}

// beat is a tryBeat that succeeds.
func (e *env) beat(p process, ids ...refdb.LockID) []refdb.BeatResult {
	e.Helper()
	got, err := e.tryBeat(p, ids...)
	e.must(err)
	return got
}

// tryRelease releases l through p, on the given refs or on all of l's.
func (e *env) tryRelease(p process, l lock, refs ...string) (refdb.Released, error) {
	if refs == nil {
		refs = l.refs()
	}
	return e.sendRelease(p, refdb.ReleaseRequest{Project: l.Project, Refs: refs, Owner: l.Owner, Token: l.Token})
}

// sendRelease sends r through p.
func (e *env) sendRelease(p process, r refdb.ReleaseRequest) (got refdb.Released, err error) {
	err = retry(func() error {
		got, err = p.Release(e.Context(), r)
		return err
	})
	return got, err
}

// release is a tryRelease that succeeds. It returns the refs whose rows did not match.
func (e *env) release(p process, l lock, refs ...string) (missing []string) {
	e.Helper()
	got, err := e.tryRelease(p, l, refs...)
	e.must(err)
	return got.Missing
}

// tryPurge deletes the rows that still match, and reports which did.
func (e *env) tryPurge(p process, locks ...refdb.StandingLock) (got []bool, err error) {
	err = retry(func() error {
		got, err = p.Purge(e.Context(), locks)
		return err
	})
	if err == nil && len(got) != len(locks) {
		err = fmt.Errorf("a purge of %d locks gave %d results", len(locks), len(got))
	}
	return got, err
}

// purge is a tryPurge that succeeds.
func (e *env) purge(p process, locks ...refdb.StandingLock) []bool {
	e.Helper()
	got, err := e.tryPurge(p, locks...)
	e.must(err)
	return got
}

// standing returns locks as Purge takes them, without a condition on the heartbeat.
func standing(ids ...refdb.LockID) []refdb.StandingLock {
	var all []refdb.StandingLock
	for _, id := range ids {
		all = append(all, refdb.StandingLock{LockID: id})
	}
	return all
}

// asListed returns a lock as Purge takes it, on condition that it was not renewed.
func asListed(l refdb.LockInfo) refdb.StandingLock {
	return refdb.StandingLock{LockID: l.ID(), Heartbeat: l.Heartbeat}
}

// abandon deletes what r may have acquired.
func (e *env) abandon(p process, r refdb.AcquireRequest) {
	e.Helper()
	e.must(e.tryAbandon(p, r))
}

func (e *env) tryAbandon(p process, r refdb.AcquireRequest) error {
	return retry(func() error {
		return p.Abandon(e.Context(), refdb.AbandonRequest{Project: r.Project, Refs: r.Refs, Owner: r.Owner, Nonce: r.Nonce})
	})
}

// changeOwner gives locks on the row's project another owner, and leaves their tokens.
func (e *env) changeOwner(refs ...string) {
	e.Helper()
	for _, ref := range refs {
		e.db.Exec(e, fmt.Sprintf("UPDATE locks SET owner = '%s' WHERE project = '%s' AND ref = '%s'", gerrit, e.project, ref))
	}
}

// wantChangedOwner checks that those locks stand, with that owner and l's token.
func (e *env) wantChangedOwner(l locked, refs ...string) {
	e.Helper()
	for _, ref := range refs {
		if row := e.row(ref); row.Owner != gerrit || row.Token != l.ids()[0].Token {
			e.Errorf("the lock on %s is %+v", ref, row)
		}
	}
}

// wantGerrits checks that locks on the row's project are Gerrit's.
func (e *env) wantGerrits(refs ...string) {
	e.Helper()
	for _, ref := range refs {
		if row := e.row(ref); row.Owner != gerrit {
			e.Errorf("the lock on %s is %+v", ref, row)
		}
	}
}

// locked is a lock or a preparation, which has locks too.
type locked interface{ ids() []refdb.LockID }

// age moves the heartbeats of all of l's locks back.
func (e *env) age(l locked, d time.Duration) {
	e.Helper()
	for _, id := range l.ids() {
		e.db.Age(e, id.Project, id.Ref, d)
	}
}

// list returns all refs of a project, including tombstones.
func (e *env) list(project string) []refdb.Ref {
	e.Helper()
	page, err := e.a.List(e.Context(), refdb.RefQuery{Project: project, Deleted: true, Limit: 100_000})
	e.must(err)
	return page.Refs
}

// wantRefs checks everything that the row's project holds, including tombstones.
func (e *env) wantRefs(want map[string]refdb.Value) {
	e.Helper()
	if got := valuesOf(e.list(e.project)); !maps.Equal(got, want) {
		e.Errorf("the project holds %v, want %v", got, want)
	}
}

// wantLock checks that l's rows stand, on the given refs or on all of l's.
func (e *env) wantLock(l locked, refs ...string) {
	e.Helper()
	for _, id := range l.ids() {
		if refs != nil && !slices.Contains(refs, id.Ref) {
			continue
		}
		row, ok := e.db.RowLock(e, id.Project, id.Ref)
		if !ok || row.Token != id.Token || row.Owner != id.Owner {
			e.Errorf("the lock on %s is %v by %q (%v), want %v by %q", id.Ref, row.Token, row.Owner, ok, id.Token, id.Owner)
		}
	}
}

// wantFree checks that no lock stands on the refs.
func (e *env) wantFree(refs ...string) {
	e.Helper()
	for _, ref := range refs {
		if row, ok := e.db.RowLock(e, e.project, ref); ok {
			e.Errorf("a lock of %q stands on %s, want none", row.Owner, ref)
		}
	}
}

// row returns the row of a lock, which must exist.
func (e *env) row(ref string) refdb.LockInfo {
	e.Helper()
	l, ok := e.db.RowLock(e, e.project, ref)
	if !ok {
		e.Fatalf("no lock stands on %s", ref)
	}
	return l
}

// holders returns the details of an ErrLocked.
func (e *env) holders(err error) []refdb.LockInfo {
	e.Helper()
	var locked *refdb.LockedError
	if !errors.As(err, &locked) || !errors.Is(err, refdb.ErrLocked) {
		e.Fatalf("got %v, want a *LockedError", err)
	}
	return locked.Holders
}

// wantHolders checks that err is an ErrLocked that names exactly these refs.
func (e *env) wantHolders(err error, refs ...string) []refdb.LockInfo {
	e.Helper()
	holders := e.holders(err)
	var got []string
	for _, h := range holders {
		got = append(got, h.Ref)
	}
	if !slices.Equal(got, refs) {
		e.Fatalf("the holders are those of %q, want those of %q", got, refs)
	}
	return holders
}

// wantMismatches checks that err is an ErrMismatch with exactly these details.
func (e *env) wantMismatches(err error, want ...refdb.Mismatch) {
	e.Helper()
	var mismatch *refdb.MismatchError
	if !errors.As(err, &mismatch) || !errors.Is(err, refdb.ErrMismatch) {
		e.Fatalf("got %v, want a *MismatchError", err)
	}
	if mismatch.Project != e.project || !slices.Equal(mismatch.Mismatches, want) {
		e.Errorf("got mismatches %+v of %q, want %+v", mismatch.Mismatches, mismatch.Project, want)
	}
}

// wantLost checks that err is an ErrLockLost that names exactly these refs.
func (e *env) wantLost(err error, refs ...string) {
	e.Helper()
	var lost *refdb.LostError
	if !errors.As(err, &lost) || !errors.Is(err, refdb.ErrLockLost) {
		e.Fatalf("got %v, want a *LostError", err)
	}
	if lost.Project != e.project || !slices.Equal(lost.Refs, refs) {
		e.Errorf("lost %q of %q, want %q", lost.Refs, lost.Project, refs)
	}
}

// readPages returns everything that read lists after a place, page after page. It ends the row of
// the suite if a page is too long, or if a listed row or a cursor isn't after the one before.
func readPages[T any, C comparable](e *env, after C, limit int, read func(after C) (page []T, next C, err error), place func(T) C, compare func(a, b C) int) iter.Seq[T] {
	return func(yield func(T) bool) {
		e.Helper()
		var end C
		for last := after; ; {
			page, next, err := read(after)
			e.must(err)
			if len(page) > limit {
				e.Fatalf("a page of at most %d has %d rows", limit, len(page))
			}
			for _, r := range page {
				if compare(place(r), after) <= 0 || compare(place(r), last) <= 0 {
					e.Fatalf("the page after %+v has %+v", after, r)
				}
				if last = place(r); !yield(r) {
					return
				}
			}
			if next == end {
				return
			}
			if compare(next, after) <= 0 {
				e.Fatalf("the cursor goes from %+v to %+v", after, next)
			}
			after = next
		}
	}
}
