package suite

import (
	"cmp"
	"crypto/rand"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
)

// Agent is the Agent of the suite's intents, asker who asked for them.
const (
	Agent = "boot-1:42:1234567"
	Asker = "o'brien <o@example.com>"
)

// A Preparation is a request to prepare and the answer to it.
type Preparation struct {
	driver.PrepareRequest
	driver.Prepared
}

func (l Preparation) Refs() []string {
	var refs []string
	for _, u := range l.Updates {
		refs = append(refs, u.Ref)
	}
	return refs
}

// IDs returns the IDs of l's intents, which are those of their locks too.
func (l Preparation) IDs() []driver.LockID { return IDsOf(l.Project, l.Owner, l.Token, l.Refs()) }

// Lock returns l's locks as if they had been acquired.
func (l Preparation) Lock() Lock {
	return Lock{
		driver.AcquireRequest{Project: l.Project, Refs: l.Refs(), Owner: l.Owner, Nonce: l.Nonce},
		driver.Acquired{Token: l.Token},
	}
}

// PrepareRequest returns p's request to prepare sorted updates of the row's project.
func (e *Env) PrepareRequest(p Process, updates ...driver.Update) driver.PrepareRequest {
	return driver.PrepareRequest{Project: e.Project, Updates: updates, Owner: p.Owner, Nonce: rand.Text(), Agent: Agent, By: Asker}
}

// SendPrepare sends r through p.
func (e *Env) SendPrepare(p Process, r driver.PrepareRequest) (Preparation, error) {
	var got driver.Prepared
	err := Retry(func() (err error) {
		got, err = p.Prepare(e.Context(), r)
		return err
	})
	return Preparation{r, got}, err
}

// TryPrepare tries to prepare updates through p.
func (e *Env) TryPrepare(p Process, updates ...driver.Update) (Preparation, error) {
	return e.SendPrepare(p, e.PrepareRequest(p, updates...))
}

// Prepare is a TryPrepare that succeeds.
func (e *Env) Prepare(p Process, updates ...driver.Update) Preparation {
	e.Helper()
	l, err := e.TryPrepare(p, updates...)
	e.Must(err)
	return l
}

// TryFinish ends intents of l: the refs in done take their new values, those in dropped keep the
// old.
func (e *Env) TryFinish(p Process, l Preparation, done, dropped []string) error {
	r := driver.FinishRequest{Project: l.Project, Origin: driver.Origin{ID: rand.Text(), Owner: l.Owner}, Token: l.Token, Dropped: dropped}
	for _, u := range l.Updates {
		if slices.Contains(done, u.Ref) {
			r.Done = append(r.Done, u)
		}
	}
	return Retry(func() error { return p.Finish(e.Context(), r) })
}

// Finish ends all of l's intents as done.
func (e *Env) Finish(p Process, l Preparation) error {
	return e.TryFinish(p, l, l.Refs(), nil)
}

// TryDrop ends all of l's intents as dropped.
func (e *Env) TryDrop(p Process, l Preparation) error {
	return e.TryFinish(p, l, nil, l.Refs())
}

// Drop is a TryDrop that succeeds.
func (e *Env) Drop(p Process, l Preparation) {
	e.Helper()
	e.Must(e.TryDrop(p, l))
}

// TryResolve resolves intents as an operator.
func (e *Env) TryResolve(p Process, d driver.Decision, intents ...driver.LockID) (ended []bool, err error) {
	err = Retry(func() error {
		ended, err = p.Resolve(e.Context(), driver.ResolveRequest{Intents: intents, Decision: d, Origin: driver.Origin{By: "an operator"}, Reason: "the site is gone"})
		return err
	})
	if err == nil && len(ended) != len(intents) {
		e.Errorf("a resolution of %d intents gave %d results", len(intents), len(ended))
	}
	return ended, err
}

// Resolve is a TryResolve that succeeds.
func (e *Env) Resolve(p Process, d driver.Decision, intents ...driver.LockID) []bool {
	e.Helper()
	ended, err := e.TryResolve(p, d, intents...)
	e.Must(err)
	return ended
}

// Revoke revokes r, whether it was carried out or not.
func (e *Env) Revoke(p Process, r driver.PrepareRequest) {
	e.Helper()
	e.Must(Retry(func() error { return p.Revoke(e.Context(), r) }))
}

// Forget deletes the records of decided intents.
func (e *Env) Forget(p Process, intents ...driver.LockID) {
	e.Helper()
	e.Must(Retry(func() error { return p.Forget(e.Context(), intents) }))
}

// IntentIDs returns the IDs of intents.
func IntentIDs(intents []driver.Intent) []driver.LockID {
	var ids []driver.LockID
	for _, i := range intents {
		ids = append(ids, i.ID())
	}
	return ids
}

// Intents lists everything that q selects, on pages of q.Limit or, for 0, of 1000.
func (e *Env) Intents(q driver.IntentQuery) []driver.Intent {
	e.Helper()
	if q.Limit == 0 {
		q.Limit = 1000
	}
	read := func(after driver.IntentCursor) ([]driver.Intent, driver.IntentCursor, error) {
		q.After = after
		page, err := e.B.Intents(e.Context(), q)
		return page.Intents, page.Next, err
	}
	return slices.Collect(ReadPages(e, q.After, q.Limit, read, CursorOf, CompareCursors))
}

func CursorOf(i driver.Intent) driver.IntentCursor {
	return driver.IntentCursor{Project: i.Project, Ref: i.Ref, Token: i.Token}
}

func CompareCursors(a, b driver.IntentCursor) int {
	return cmp.Or(strings.Compare(a.Project, b.Project), strings.Compare(a.Ref, b.Ref), cmp.Compare(a.Token, b.Token))
}

// Pending lists the pending intents of the row's project.
func (e *Env) Pending() []driver.Intent {
	e.Helper()
	return e.Intents(driver.IntentQuery{IntentFilter: driver.IntentFilter{Project: e.Project}})
}

// Decided lists those of the row's project that were decided and not forgotten.
func (e *Env) Decided() []driver.Intent {
	e.Helper()
	return e.Intents(driver.IntentQuery{IntentFilter: driver.IntentFilter{Project: e.Project, Decided: true}})
}

// WantIntended checks that l's locks and intents are as they were recorded, on the given refs or
// on all of l's.
func (e *Env) WantIntended(l Preparation, refs ...string) {
	e.Helper()
	if refs == nil {
		refs = l.Refs()
	}
	e.wantAmong(e.Pending(), l, refs...)
}

// wantAmong is WantIntended for listed intents, on the given refs.
func (e *Env) wantAmong(listed []driver.Intent, l Preparation, refs ...string) {
	e.Helper()
	e.WantLock(l, refs...)
	found := make(map[string]driver.Intent)
	for _, i := range listed {
		if i.Token == l.Token {
			found[i.Ref] = i
		}
	}
	for _, u := range l.Updates {
		if !slices.Contains(refs, u.Ref) {
			continue
		}
		i, ok := found[u.Ref]
		same := i.Project == l.Project && i.Owner == l.Owner && i.Agent == l.Agent && i.By == l.By && i.Op == l.Nonce && i.New == u.New &&
			(i.Old == u.Old || i.Old.IsAbsent() && u.Old.IsAbsent())
		if !ok || !same || i.Decision != driver.Pending || i.Time.IsZero() || i.Age < 0 || i.Age > time.Hour {
			e.Errorf("the intent on %s is %+v (%v), want that of %+v", u.Ref, i, ok, u)
		}
	}
}

// WantNone checks that the row's project has no locks and no intents.
func (e *Env) WantNone() {
	e.Helper()
	if got := e.Locks(driver.LockQuery{LockFilter: driver.LockFilter{Project: e.Project}}); len(got) != 0 {
		e.Errorf("locks are left: %+v", got)
	}
	if got := append(e.Pending(), e.Decided()...); len(got) != 0 {
		e.Errorf("intents are left: %+v", got)
	}
}

func (e *Env) WantIs(err, target error) {
	e.Helper()
	if !errors.Is(err, target) {
		e.Errorf("got %v, want %v", err, target)
	}
}

// Mismatch is true for an ErrMismatch and false for nil; any other error fails the row.
func (e *Env) Mismatch(err error) bool {
	e.Helper()
	if err != nil && !errors.Is(err, driver.ErrMismatch) {
		e.Fatal(err)
	}
	return err != nil
}
