package refdbtest

import (
	"cmp"
	"crypto/rand"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
)

// agent is the Agent of the suite's intents, asker who asked for them.
const (
	agent = "boot-1:42:1234567"
	asker = "o'brien <o@example.com>"
)

// A preparation is a request to prepare and the answer to it.
type preparation struct {
	refdb.PrepareRequest
	refdb.Prepared
}

func (l preparation) refs() []string {
	var refs []string
	for _, u := range l.Updates {
		refs = append(refs, u.Ref)
	}
	return refs
}

// ids returns the IDs of l's intents, which are those of their locks too.
func (l preparation) ids() []refdb.LockID { return idsOf(l.Project, l.Owner, l.Token, l.refs()) }

// lock returns l's locks as if they had been acquired.
func (l preparation) lock() lock {
	return lock{
		refdb.AcquireRequest{Project: l.Project, Refs: l.refs(), Owner: l.Owner, Nonce: l.Nonce},
		refdb.Acquired{Token: l.Token},
	}
}

// prepareRequest returns p's request to prepare sorted updates of the row's project.
func (e *env) prepareRequest(p process, updates ...refdb.Update) refdb.PrepareRequest {
	return refdb.PrepareRequest{Project: e.project, Updates: updates, Owner: p.owner, Nonce: rand.Text(), Agent: agent, By: asker}
}

// sendPrepare sends r through p.
func (e *env) sendPrepare(p process, r refdb.PrepareRequest) (preparation, error) {
	var got refdb.Prepared
	err := retry(func() (err error) {
		got, err = p.Prepare(e.Context(), r)
		return err
	})
	return preparation{r, got}, err
}

// tryPrepare tries to prepare updates through p.
func (e *env) tryPrepare(p process, updates ...refdb.Update) (preparation, error) {
	return e.sendPrepare(p, e.prepareRequest(p, updates...))
}

// prepare is a tryPrepare that succeeds.
func (e *env) prepare(p process, updates ...refdb.Update) preparation {
	e.Helper()
	l, err := e.tryPrepare(p, updates...)
	e.must(err)
	return l
}

// tryFinish ends intents of l: the refs in done take their new values, those in dropped keep the old.
func (e *env) tryFinish(p process, l preparation, done, dropped []string) error {
	r := refdb.FinishRequest{Project: l.Project, Origin: refdb.Origin{ID: rand.Text(), Owner: l.Owner}, Token: l.Token, Dropped: dropped}
	for _, u := range l.Updates {
		if slices.Contains(done, u.Ref) {
			r.Done = append(r.Done, u)
		}
	}
	return retry(func() error { return p.Finish(e.Context(), r) })
}

// finish ends all of l's intents as done.
func (e *env) finish(p process, l preparation) error {
	return e.tryFinish(p, l, l.refs(), nil)
}

// tryDrop ends all of l's intents as dropped.
func (e *env) tryDrop(p process, l preparation) error {
	return e.tryFinish(p, l, nil, l.refs())
}

// drop is a tryDrop that succeeds.
func (e *env) drop(p process, l preparation) {
	e.Helper()
	e.must(e.tryDrop(p, l))
}

// tryResolve resolves intents as an operator.
func (e *env) tryResolve(p process, d refdb.Decision, intents ...refdb.LockID) (ended []bool, err error) {
	err = retry(func() error {
		ended, err = p.Resolve(e.Context(), refdb.ResolveRequest{Intents: intents, Decision: d, Origin: refdb.Origin{By: "an operator"}, Reason: "the site is gone"})
		return err
	})
	if err == nil && len(ended) != len(intents) {
		e.Errorf("a resolution of %d intents gave %d results", len(intents), len(ended))
	}
	return ended, err
}

// resolve is a tryResolve that succeeds.
func (e *env) resolve(p process, d refdb.Decision, intents ...refdb.LockID) []bool {
	e.Helper()
	ended, err := e.tryResolve(p, d, intents...)
	e.must(err)
	return ended
}

// revoke revokes r, whether it was carried out or not.
func (e *env) revoke(p process, r refdb.PrepareRequest) {
	e.Helper()
	e.must(retry(func() error { return p.Revoke(e.Context(), r) }))
}

// forget deletes the records of decided intents.
func (e *env) forget(p process, intents ...refdb.LockID) {
	e.Helper()
	e.must(retry(func() error { return p.Forget(e.Context(), intents) }))
}

// intentIDs returns the IDs of intents.
func intentIDs(intents []refdb.Intent) []refdb.LockID {
	var ids []refdb.LockID
	for _, i := range intents {
		ids = append(ids, i.ID())
	}
	return ids
}

// intents lists everything that q selects, on pages of q.Limit or, for 0, of 1000.
func (e *env) intents(q refdb.IntentQuery) []refdb.Intent {
	e.Helper()
	if q.Limit == 0 {
		q.Limit = 1000
	}
	read := func(after refdb.IntentCursor) ([]refdb.Intent, refdb.IntentCursor, error) {
		q.After = after
		page, err := e.b.Intents(e.Context(), q)
		return page.Intents, page.Next, err
	}
	return slices.Collect(readPages(e, q.After, q.Limit, read, cursorOf, compareCursors))
}

func cursorOf(i refdb.Intent) refdb.IntentCursor {
	return refdb.IntentCursor{Project: i.Project, Ref: i.Ref, Token: i.Token}
}

func compareCursors(a, b refdb.IntentCursor) int {
	return cmp.Or(strings.Compare(a.Project, b.Project), strings.Compare(a.Ref, b.Ref), cmp.Compare(a.Token, b.Token))
}

// pending lists the pending intents of the row's project.
func (e *env) pending() []refdb.Intent {
	e.Helper()
	return e.intents(refdb.IntentQuery{IntentFilter: refdb.IntentFilter{Project: e.project}})
}

// decided lists those of the row's project that were decided and not forgotten.
func (e *env) decided() []refdb.Intent {
	e.Helper()
	return e.intents(refdb.IntentQuery{IntentFilter: refdb.IntentFilter{Project: e.project, Decided: true}})
}

// wantIntended checks that l's locks and intents are as they were recorded, on the given refs or
// on all of l's.
func (e *env) wantIntended(l preparation, refs ...string) {
	e.Helper()
	if refs == nil {
		refs = l.refs()
	}
	e.wantAmong(e.pending(), l, refs...)
}

// wantAmong is wantIntended for listed intents, on the given refs.
func (e *env) wantAmong(listed []refdb.Intent, l preparation, refs ...string) {
	e.Helper()
	e.wantLock(l, refs...)
	found := make(map[string]refdb.Intent)
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
		if !ok || !same || i.Decision != refdb.Pending || i.Time.IsZero() || i.Age < 0 || i.Age > time.Hour {
			e.Errorf("the intent on %s is %+v (%v), want that of %+v", u.Ref, i, ok, u)
		}
	}
}

// wantNone checks that the row's project has no locks and no intents.
func (e *env) wantNone() {
	e.Helper()
	if got := e.locks(refdb.LockQuery{LockFilter: refdb.LockFilter{Project: e.project}}); len(got) != 0 {
		e.Errorf("locks are left: %+v", got)
	}
	if got := append(e.pending(), e.decided()...); len(got) != 0 {
		e.Errorf("intents are left: %+v", got)
	}
}

func (e *env) wantIs(err, target error) {
	e.Helper()
	if !errors.Is(err, target) {
		e.Errorf("got %v, want %v", err, target)
	}
}

// mismatch is true for an ErrMismatch and false for nil; any other error fails the row.
func (e *env) mismatch(err error) bool {
	e.Helper()
	if err != nil && !errors.Is(err, refdb.ErrMismatch) {
		e.Fatal(err)
	}
	return err != nil
}
