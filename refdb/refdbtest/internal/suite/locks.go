package suite

import (
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
)

// A Lock is a request to acquire and the answer to it.
type Lock struct {
	driver.AcquireRequest
	driver.Acquired
}

func (l Lock) Refs() []string { return l.AcquireRequest.Refs }

// IDs returns the IDs of l's locks.
func (l Lock) IDs() []driver.LockID { return IDsOf(l.Project, l.Owner, l.Token, l.Refs()) }

func IDsOf(project, owner string, token driver.Token, refs []string) []driver.LockID {
	var ids []driver.LockID
	for _, ref := range refs {
		ids = append(ids, driver.LockID{Project: project, Ref: ref, Owner: owner, Token: token})
	}
	return ids
}

// Fence returns the fence of an update through l.
func (l Lock) Fence() *driver.Fence {
	return &driver.Fence{Refs: l.Refs(), Owner: l.Owner, Token: l.Token}
}

// Releasing returns the fence of an update that also releases l.
func (l Lock) Releasing() *driver.Fence {
	f := l.Fence()
	f.Release = true
	return f
}

// Values returns what the refs held as of the acquisition.
func (l Lock) Values() map[string]driver.Value { return ValuesOf(l.Acquired.Refs) }

// locked is a lock or a preparation, which has locks too.
type locked interface{ IDs() []driver.LockID }

// AcquireRequest returns p's request for refs of the row's project.
func (e *Env) AcquireRequest(p Process, refs ...string) driver.AcquireRequest {
	return driver.AcquireRequest{
		Project: e.Project, Refs: refs, Owner: p.Owner, Nonce: rand.Text(), StaleAfter: StaleAfter,
	}
}

// SendAcquire sends r through p.
func (e *Env) SendAcquire(p Process, r driver.AcquireRequest) (Lock, error) {
	var got driver.Acquired
	err := Retry(func() (err error) {
		got, err = p.Acquire(e.Context(), r)
		return err
	})
	return Lock{r, got}, err
}

// TryAcquire tries to take locks through p.
func (e *Env) TryAcquire(p Process, refs ...string) (Lock, error) {
	return e.SendAcquire(p, e.AcquireRequest(p, refs...))
}

// Acquire takes locks that are free, or stale.
func (e *Env) Acquire(p Process, refs ...string) Lock {
	e.Helper()
	l, err := e.TryAcquire(p, refs...)
	e.Must(err)
	return l
}

// AcquireEventually tries to take locks until it gets them, or patience is over.
func (e *Env) AcquireEventually(p Process, refs ...string) (Lock, error) {
	for deadline := time.Now().Add(e.Patience()); ; {
		l, err := e.TryAcquire(p, refs...)
		if !errors.Is(err, driver.ErrLocked) || time.Now().After(deadline) {
			return l, err
		}
	}
}

// Refused tries to take locks that are not free, and returns their holders.
func (e *Env) Refused(p Process, refs ...string) []driver.LockInfo {
	e.Helper()
	_, err := e.TryAcquire(p, refs...)
	return e.Holders(err)
}

// TryBeat beats locks through p.
func (e *Env) TryBeat(p Process, ids ...driver.LockID) (got []driver.BeatResult, err error) {
	err = Retry(func() error {
		got, err = p.Beat(e.Context(), ids)
		return err
	})
	if err == nil && len(got) != len(ids) {
		err = fmt.Errorf("a beat of %d rows gave %d results", len(ids), len(got))
	}
	return got, err
}

// Beat is a TryBeat that succeeds.
func (e *Env) Beat(p Process, ids ...driver.LockID) []driver.BeatResult {
	e.Helper()
	got, err := e.TryBeat(p, ids...)
	e.Must(err)
	return got
}

// TryRelease releases l through p, on the given refs or on all of l's.
func (e *Env) TryRelease(p Process, l Lock, refs ...string) (driver.Released, error) {
	if refs == nil {
		refs = l.Refs()
	}
	return e.SendRelease(p, driver.ReleaseRequest{Project: l.Project, Refs: refs, Owner: l.Owner, Token: l.Token})
}

// SendRelease sends r through p.
func (e *Env) SendRelease(p Process, r driver.ReleaseRequest) (got driver.Released, err error) {
	err = Retry(func() error {
		got, err = p.Release(e.Context(), r)
		return err
	})
	return got, err
}

// Release is a TryRelease that succeeds. It returns the refs whose rows did not match.
func (e *Env) Release(p Process, l Lock, refs ...string) (missing []string) {
	e.Helper()
	got, err := e.TryRelease(p, l, refs...)
	e.Must(err)
	return got.Missing
}

// TryPurge deletes the rows that still match, and reports which did.
func (e *Env) TryPurge(p Process, locks ...driver.StandingLock) (got []bool, err error) {
	err = Retry(func() error {
		got, err = p.Purge(e.Context(), locks)
		return err
	})
	if err == nil && len(got) != len(locks) {
		err = fmt.Errorf("a purge of %d locks gave %d results", len(locks), len(got))
	}
	return got, err
}

// Purge is a TryPurge that succeeds.
func (e *Env) Purge(p Process, locks ...driver.StandingLock) []bool {
	e.Helper()
	got, err := e.TryPurge(p, locks...)
	e.Must(err)
	return got
}

// Standing returns locks as Purge takes them, without a condition on the heartbeat.
func Standing(ids ...driver.LockID) []driver.StandingLock {
	var all []driver.StandingLock
	for _, id := range ids {
		all = append(all, driver.StandingLock{LockID: id})
	}
	return all
}

// AsListed returns a lock as Purge takes it, on condition that it was not renewed.
func AsListed(l driver.LockInfo) driver.StandingLock {
	return driver.StandingLock{LockID: l.ID(), Heartbeat: l.Heartbeat}
}

// Abandon deletes what r may have acquired.
func (e *Env) Abandon(p Process, r driver.AcquireRequest) {
	e.Helper()
	e.Must(e.TryAbandon(p, r))
}

func (e *Env) TryAbandon(p Process, r driver.AcquireRequest) error {
	return Retry(func() error {
		return p.Abandon(e.Context(), driver.AbandonRequest{Project: r.Project, Refs: r.Refs, Owner: r.Owner, Nonce: r.Nonce})
	})
}

// ChangeOwner gives locks on the row's project another owner, and leaves their tokens.
func (e *Env) ChangeOwner(refs ...string) {
	e.Helper()
	for _, ref := range refs {
		e.DB.Exec(e, fmt.Sprintf("UPDATE locks SET owner = '%s' WHERE project = '%s' AND ref = '%s'", Gerrit, e.Project, ref))
	}
}

// WantChangedOwner checks that those locks stand, with that owner and l's token.
func (e *Env) WantChangedOwner(l locked, refs ...string) {
	e.Helper()
	for _, ref := range refs {
		if row := e.Row(ref); row.Owner != Gerrit || row.Token != l.IDs()[0].Token {
			e.Errorf("the lock on %s is %+v", ref, row)
		}
	}
}

// WantGerrits checks that locks on the row's project are Gerrit's.
func (e *Env) WantGerrits(refs ...string) {
	e.Helper()
	for _, ref := range refs {
		if row := e.Row(ref); row.Owner != Gerrit {
			e.Errorf("the lock on %s is %+v", ref, row)
		}
	}
}

// Age moves the heartbeats of all of l's locks back.
func (e *Env) Age(l locked, d time.Duration) {
	e.Helper()
	for _, id := range l.IDs() {
		e.DB.Age(e, id.Project, id.Ref, d)
	}
}

// Locks lists everything that q selects, on pages of q.Limit or, for 0, of 1000.
func (e *Env) Locks(q driver.LockQuery) []driver.LockInfo {
	e.Helper()
	if q.Limit == 0 {
		q.Limit = 1000
	}
	read := func(after driver.LockCursor) ([]driver.LockInfo, driver.LockCursor, error) {
		q.After = after
		page, err := e.B.Locks(e.Context(), q)
		return page.Locks, page.Next, err
	}
	return slices.Collect(ReadPages(e, q.After, q.Limit, read, PlaceOf, ComparePlaces))
}

func PlaceOf(l driver.LockInfo) driver.LockCursor {
	return driver.LockCursor{Project: l.Project, Ref: l.Ref}
}

func ComparePlaces(a, b driver.LockCursor) int {
	return cmp.Or(strings.Compare(a.Project, b.Project), strings.Compare(a.Ref, b.Ref))
}

// WantLock checks that l's rows stand, on the given refs or on all of l's.
func (e *Env) WantLock(l locked, refs ...string) {
	e.Helper()
	for _, id := range l.IDs() {
		if refs != nil && !slices.Contains(refs, id.Ref) {
			continue
		}
		row, ok := e.DB.RowLock(e, id.Project, id.Ref)
		if !ok || row.Token != id.Token || row.Owner != id.Owner {
			e.Errorf("the lock on %s is %v by %q (%v), want %v by %q", id.Ref, row.Token, row.Owner, ok, id.Token, id.Owner)
		}
	}
}

// WantFree checks that no lock stands on the refs.
func (e *Env) WantFree(refs ...string) {
	e.Helper()
	for _, ref := range refs {
		if row, ok := e.DB.RowLock(e, e.Project, ref); ok {
			e.Errorf("a lock of %q stands on %s, want none", row.Owner, ref)
		}
	}
}

// WantOnly checks that l's intents are pending, and no others on its refs.
func (e *Env) WantOnly(l Preparation) {
	e.Helper()
	pending := e.Pending()
	e.wantAmong(pending, l, l.Refs()...)
	for _, i := range pending {
		if i.Token != l.Token && slices.Contains(l.Refs(), i.Ref) {
			e.Errorf("%+v is left beside %+v", i, l)
		}
	}
}

// Row returns the row of a lock, which must exist.
func (e *Env) Row(ref string) driver.LockInfo {
	e.Helper()
	l, ok := e.DB.RowLock(e, e.Project, ref)
	if !ok {
		e.Fatalf("no lock stands on %s", ref)
	}
	return l
}

// Holders returns the details of an ErrLocked.
func (e *Env) Holders(err error) []driver.LockInfo {
	e.Helper()
	var locked *driver.LockedError
	if !errors.As(err, &locked) || !errors.Is(err, driver.ErrLocked) {
		e.Fatalf("got %v, want a *LockedError", err)
	}
	return locked.Holders
}

// WantHolders checks that err is an ErrLocked that names exactly these refs.
func (e *Env) WantHolders(err error, refs ...string) []driver.LockInfo {
	e.Helper()
	holders := e.Holders(err)
	var got []string
	for _, h := range holders {
		got = append(got, h.Ref)
	}
	if !slices.Equal(got, refs) {
		e.Fatalf("the holders are those of %q, want those of %q", got, refs)
	}
	return holders
}

// WantLost checks that err is an ErrLockLost that names exactly these refs.
func (e *Env) WantLost(err error, refs ...string) {
	e.Helper()
	var lost *driver.LostError
	if !errors.As(err, &lost) || !errors.Is(err, driver.ErrLockLost) {
		e.Fatalf("got %v, want a *LostError", err)
	}
	if lost.Project != e.Project || !slices.Equal(lost.Refs, refs) {
		e.Errorf("lost %q of %q, want %q", lost.Refs, lost.Project, refs)
	}
}

// Refusal is true for an ErrLocked and false for nil; any other error fails the row.
func (e *Env) Refusal(err error) bool {
	e.Helper()
	if err != nil && !errors.Is(err, driver.ErrLocked) {
		e.Fatal(err)
	}
	return err != nil
}

// Loss is true for an ErrLockLost and false for nil; any other error fails the row.
func (e *Env) Loss(err error) bool {
	e.Helper()
	if err != nil && !errors.Is(err, driver.ErrLockLost) {
		e.Fatal(err)
	}
	return err != nil
}

// A CriticalSection checks a ref's holders: there is one at a time, each with a larger token than
// the one before.
type CriticalSection struct {
	inside atomic.Bool
	mu     sync.Mutex
	last   driver.Token
}

func (s *CriticalSection) Enter(t driver.Token) error {
	if !s.inside.CompareAndSwap(false, true) {
		return errors.New("two holders at once")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if t <= s.last {
		return fmt.Errorf("token %d follows %d", t, s.last)
	}
	s.last = t
	return nil
}

func (s *CriticalSection) Leave() { s.inside.Store(false) }

// Marker returns the project of the row that a reclaim inserts and deletes.
func Marker(project string, t driver.Token) string {
	return driver.ReclaimPrefix + project + "_" + t.Time().Format("2006-01-02T15:04:05.000000000Z")
}
