package refdbtest

import (
	"errors"
	"slices"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
)

// agent is who is about to do what the suite prepares.
const agent = "boot-1:42:1234567"

// intention asks for what p is about to do to the row's project. Updates are sorted.
func (e *env) intention(p process, updates ...refdb.Update) refdb.AcquireRequest {
	r := e.request(p)
	r.StaleAfter, r.Intents, r.Agent = refdb.NeverStale, updates, agent
	for _, u := range updates {
		r.Refs = append(r.Refs, u.Ref)
	}
	return r
}

// tryPrepare is p's attempt to record intents.
func (e *env) tryPrepare(p process, updates ...refdb.Update) (lock, error) {
	return e.send(p, e.intention(p, updates...))
}

// prepare is a tryPrepare that succeeds.
func (e *env) prepare(p process, updates ...refdb.Update) lock {
	e.Helper()
	l, err := e.tryPrepare(p, updates...)
	e.must(err)
	return l
}

// tryFinish ends intents of l: the refs of done take the new value, those of dropped keep the old.
func (e *env) tryFinish(p process, l lock, done, dropped []string) error {
	refs := slices.Concat(done, dropped)
	slices.Sort(refs)
	t := refdb.Transaction{
		Project: l.Project, Release: true,
		Fence: &refdb.Fence{Refs: refs, Token: l.Token, Intents: true},
	}
	for _, u := range l.Intents {
		if slices.Contains(done, u.Ref) {
			t.Updates = append(t.Updates, u)
		}
	}
	return e.transact(p, t)
}

// finish has all that l intends done.
func (e *env) finish(p process, l lock) error {
	return e.tryFinish(p, l, l.AcquireRequest.Refs, nil)
}

// intended returns l's rows as Release takes them to drop the intents.
func (l lock) intended() []refdb.Held {
	held := l.held()
	for i := range held {
		held[i].Intent = true
	}
	return held
}

// named returns l's intents as Resolve and Forget take them.
func (l lock) named() []refdb.Intent {
	var all []refdb.Intent
	for _, ref := range l.AcquireRequest.Refs {
		all = append(all, refdb.Intent{Project: l.Project, Ref: ref, Token: l.Token})
	}
	return all
}

// tryResolve decides in place of the intents' owner.
func (e *env) tryResolve(p process, d refdb.Decision, intents ...refdb.Intent) (ended []bool, err error) {
	err = retry(func() error {
		ended, err = p.Resolve(e.Context(), refdb.ResolveRequest{Intents: intents, Decision: d, By: "an operator", Reason: "the site is gone"})
		return err
	})
	if err == nil && len(ended) != len(intents) {
		e.Errorf("a resolution of %d intents gave %d results", len(intents), len(ended))
	}
	return ended, err
}

// resolve is a tryResolve that succeeds.
func (e *env) resolve(p process, d refdb.Decision, intents ...refdb.Intent) []bool {
	e.Helper()
	ended, err := e.tryResolve(p, d, intents...)
	e.must(err)
	return ended
}

// revoke takes r back, whatever became of it.
func (e *env) revoke(p process, r refdb.AcquireRequest) {
	e.Helper()
	e.must(retry(func() error { return p.Revoke(e.Context(), r) }))
}

// forget has the records of decisions deleted.
func (e *env) forget(p process, intents ...refdb.Intent) {
	e.Helper()
	e.must(retry(func() error { return p.Forget(e.Context(), intents) }))
}

// intents lists everything that q selects, in pages of q.Limit or of many.
func (e *env) intents(q refdb.IntentQuery) []refdb.Intent {
	e.Helper()
	if q.Limit == 0 {
		q.Limit = 1000
	}
	var all []refdb.Intent
	for {
		page, err := e.b.Intents(e.Context(), q)
		e.must(err)
		if len(page) > q.Limit {
			e.Fatalf("a page of at most %d has %d intents", q.Limit, len(page))
		}
		all = append(all, page...)
		if len(page) < q.Limit {
			return all
		}
		if len(all) > 100_000 {
			e.Fatalf("the pages have no end: the last starts with %+v", page[0])
		}
		last := page[len(page)-1]
		q.AfterProject, q.AfterRef, q.AfterToken = last.Project, last.Ref, last.Token
	}
}

// pending lists the intents of the row's project that nobody has ended.
func (e *env) pending() []refdb.Intent {
	e.Helper()
	return e.intents(refdb.IntentQuery{IntentFilter: refdb.IntentFilter{Project: e.project}})
}

// decided lists those that were resolved and not forgotten.
func (e *env) decided() []refdb.Intent {
	e.Helper()
	return e.intents(refdb.IntentQuery{IntentFilter: refdb.IntentFilter{Project: e.project, Decided: true}})
}

// wantIntended checks that l's locks and intents stand as they were recorded, on
// the given refs or on all of l's.
func (e *env) wantIntended(l lock, refs ...string) {
	e.Helper()
	if refs == nil {
		refs = l.AcquireRequest.Refs
	}
	e.wantLock(l, refs...)
	found := make(map[string]refdb.Intent)
	for _, i := range e.pending() {
		if i.Token == l.Token {
			found[i.Ref] = i
		}
	}
	for _, u := range l.Intents {
		if !slices.Contains(refs, u.Ref) {
			continue
		}
		i, ok := found[u.Ref]
		same := i.Project == l.Project && i.Owner == l.Owner && i.Agent == l.Agent && i.New == u.New &&
			(i.Old == u.Old || i.Old.IsAbsent() && u.Old.IsAbsent())
		if !ok || !same || i.Decision != refdb.Pending || i.Time.IsZero() || i.Age < 0 || i.Age > time.Hour {
			e.Errorf("the intent on %s is %+v (%v), want that of %+v", u.Ref, i, ok, u)
		}
	}
}

// wantNone checks that nothing of an intent is left on the row's project: neither
// a lock nor a record.
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
