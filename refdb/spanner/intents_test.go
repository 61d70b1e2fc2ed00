package spanner_test

import (
	"errors"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/spanner"
	"github.com/globalrefdb/globalrefdb/test/dbtest"
)

// preparing returns a request for intents to create refs.
func preparing(nonce string, refs ...string) driver.PrepareRequest {
	r := driver.PrepareRequest{Project: project, Owner: owner, Nonce: nonce, Agent: "boot:1:2"}
	for _, ref := range refs {
		r.Updates = append(r.Updates, move(ref, "", v1))
	}
	return r
}

func prepare(tb testing.TB, d driver.Driver, nonce string, refs ...string) driver.Prepared {
	tb.Helper()
	p, err := d.Prepare(tb.Context(), preparing(nonce, refs...))
	if err != nil {
		tb.Fatalf("prepare %v: %v", refs, err)
	}
	return p
}

// finishing returns a request to end intents of p as done.
func finishing(p driver.Prepared, refs ...string) driver.FinishRequest {
	return driver.FinishRequest{Project: project, Origin: driver.Origin{ID: "finish", Owner: owner}, Token: p.Token, Done: preparing("", refs...).Updates}
}

// dropping returns a request to end intents of p as dropped.
func dropping(p driver.Prepared, refs ...string) driver.FinishRequest {
	return driver.FinishRequest{Project: project, Origin: driver.Origin{Owner: owner}, Token: p.Token, Dropped: refs}
}

func intents(tb testing.TB, d driver.Driver) []driver.Intent {
	tb.Helper()
	var all []driver.Intent
	for _, decided := range []bool{false, true} {
		page, err := d.Intents(tb.Context(), driver.IntentQuery{IntentFilter: driver.IntentFilter{Decided: decided}, Limit: 10_000})
		must(tb, err)
		all = append(all, page.Intents...)
	}
	return all
}

func TestAnIntentHasTheTokenOfItsLock(t *testing.T) {
	t.Parallel()
	db := dbtest.Spanner(t)
	d := db.Open(t)
	for range 10 {
		a := prepare(t, d, "n", branch)
		l, ok := db.RowLock(t, project, branch)
		all := intents(t, d)
		if !ok || len(all) != 1 || l.Token != a.Token || all[0].Token != a.Token {
			t.Fatalf("the answer is %d, the lock %+v, the intents %+v", a.Token, l, all)
		}
		if at := all[0].Time; !at.Equal(a.Token.Time()) || !at.Equal(l.Heartbeat) {
			t.Fatalf("the intent has the time %v, the token %v, the heartbeat %v", at, a.Token.Time(), l.Heartbeat)
		}
		if err := d.Finish(t.Context(), dropping(a, branch)); err != nil || len(intents(t, d)) != 0 {
			t.Fatalf("drop: %v; %+v remain", err, intents(t, d))
		}
	}
}

func TestLostReplyAboutIntents(t *testing.T) {
	t.Parallel()
	w := &wire{}
	d := openWire(t, dbtest.Spanner(t), w)
	unknown := func(what string, err error) {
		t.Helper()
		if !errors.Is(err, driver.ErrOutcomeUnknown) {
			t.Fatalf("%s: %v", what, err)
		}
	}
	loseReply(w, codes.Internal)
	_, err := d.Prepare(t.Context(), preparing("n", "HEAD", branch))
	unknown("prepare", err)
	first := intents(t, d)
	a := prepare(t, d, "n", "HEAD", branch)
	if all := intents(t, d); len(first) != 2 || len(all) != 2 || all[0].Token != a.Token || first[0].Token != a.Token {
		t.Fatalf("the repeated request returned token %d: first %+v, then %+v", a.Token, first, all)
	}

	loseReply(w, codes.Internal)
	unknown("finish", d.Finish(t.Context(), finishing(a, branch)))
	must(t, d.Finish(t.Context(), finishing(a, branch)))
	if all := intents(t, d); len(all) != 1 || all[0].Ref != "HEAD" {
		t.Fatalf("the intents are %+v", all)
	}

	left := lockIDs(a.Token, "HEAD")
	loseReply(w, codes.Internal)
	_, err = d.Resolve(t.Context(), driver.ResolveRequest{Intents: left, Decision: driver.TakeNew, Origin: driver.Origin{By: "me"}, Reason: "why"})
	unknown("resolve", err)
	if got := get(t, d, "HEAD"); got.Value != v1 {
		t.Fatalf("HEAD is %+v", got)
	}
	ended, err := d.Resolve(t.Context(), driver.ResolveRequest{Intents: left, Decision: driver.KeepOld, Origin: driver.Origin{By: "you"}, Reason: "why"})
	must(t, err)
	if all := intents(t, d); ended[0] || len(all) != 1 || all[0].DecidedBy != "me" {
		t.Fatalf("the intent was resolved again: %v, %+v", ended, all)
	}

	loseReply(w, codes.Internal)
	unknown("forget", d.Forget(t.Context(), left))
	must(t, d.Forget(t.Context(), left))
	if all := intents(t, d); len(all) != 0 {
		t.Fatalf("the intents are %+v", all)
	}
}

func TestAnIntentWithoutALockCanOnlyKeepTheOldValue(t *testing.T) {
	t.Parallel()
	db := dbtest.Spanner(t)
	d := db.Open(t)
	left := lockIDs(prepare(t, d, "n", "HEAD", branch).Token, "HEAD", branch)
	db.Exec(t, `DELETE FROM locks WHERE true`)
	must(t, update(t, d, "u", move(branch, "", v2)))
	other := acquire(t, d, "other", branch)
	resolve := func(decision driver.Decision) []bool {
		ended, err := d.Resolve(t.Context(), driver.ResolveRequest{Intents: left, Decision: decision, Origin: driver.Origin{By: "me"}, Reason: "why"})
		must(t, err)
		return ended
	}
	if ended := resolve(driver.TakeNew); ended[0] || ended[1] {
		t.Errorf("the new value was taken: %v", ended)
	}
	if ended := resolve(driver.KeepOld); !ended[0] || !ended[1] {
		t.Errorf("the old value was not kept: %v", ended)
	}
	if r := get(t, d, branch); r.Value != v2 {
		t.Errorf("the ref is %+v", r)
	}
	if l := locks(t, d); len(l) != 1 || l[0].Token != other.Token {
		t.Errorf("the locks are %+v", l)
	}
}

// patient opens a driver whose time limits only a hang reaches: the emulator has no key ranges, and
// reads all rows for each created ref.
func patient(tb testing.TB, db *dbtest.Database) *spanner.Driver {
	d := db.Open(tb).(*spanner.Driver)
	d.BePatient()
	return d
}

func TestLargestPreparationCanBeFinished(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("left out by -short: as many refs as a request may have, some seconds on the emulator; make test-all runs it")
	}
	d := patient(t, dbtest.Spanner(t))
	refs := names(spanner.MaxRefs)
	a := prepare(t, d, "n", refs...)
	if all := intents(t, d); len(all) != len(refs) {
		t.Fatalf("%d intents are listed", len(all))
	}
	must(t, d.Finish(t.Context(), finishing(a, refs...)))
	if all := intents(t, d); len(all) != 0 {
		t.Fatalf("%d intents remain", len(all))
	}
	page, err := d.Log(t.Context(), driver.LogRequest{Project: project, Limit: 2 * len(refs)})
	must(t, err)
	if len(page.Changes) != len(refs) {
		t.Errorf("%d changes were recorded", len(page.Changes))
	}
}

func TestALargerPreparationIsRefused(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("left out by -short: as many refs as a request may have, some seconds on the emulator; make test-all runs it")
	}
	const most = spanner.MaxRefs
	db := dbtest.Spanner(t)
	d := patient(t, db)
	refs := names(most + 1)
	must(t, update(t, d, "u", preparing("", refs[:most]...).Updates...))
	a := acquire(t, d, "other", refs...)
	db.Exec(t, `UPDATE locks SET heartbeat = TIMESTAMP_SUB(heartbeat, INTERVAL 1 HOUR) WHERE true`)
	// The preparation creates none of the refs: to check whether their names are free, the emulator
	// would read all locks for each of them, which takes a minute, and ten on a busy machine.
	r := preparing("n", refs...)
	for i := range r.Updates {
		r.Updates[i].Old, r.Updates[i].New = v1, v2
	}
	if _, err := d.Prepare(t.Context(), r); !errors.Is(err, driver.ErrTooMany) {
		t.Fatal(err)
	}
	if l, ok := db.RowLock(t, project, refs[0]); !ok || l.Token != a.Token || len(intents(t, d)) != 0 {
		t.Fatalf("the lock is %+v, the intents are %d", l, len(intents(t, d)))
	}
	r.Updates = r.Updates[:most]
	b, err := d.Prepare(t.Context(), r)
	must(t, err)
	if len(b.Reclaimed) != most {
		t.Errorf("%d were reclaimed", len(b.Reclaimed))
	}
}

func TestStatesReadInSeveralRequestsAreOfOneTime(t *testing.T) {
	t.Parallel()
	w := &wire{}
	d := openWire(t, dbtest.Spanner(t), w)
	refs, updates := longNames(1000)
	must(t, update(t, d, "u", updates...))
	acquire(t, d, "n", refs[:500]...)
	w.take()
	states, err := d.States(t.Context(), project, refs)
	must(t, err)
	wantCalls(t, "states", w.take(), "BeginTransaction", "ExecuteStreamingSql", "ExecuteStreamingSql")
	var locked int
	for _, s := range states {
		if s.Value != v1 {
			t.Fatalf("%+v", s)
		}
		if s.Lock != nil {
			locked++
		}
	}
	if len(states) != len(refs) || locked != 500 {
		t.Errorf("%d states, %d of them locked", len(states), locked)
	}
}

func TestAnAdvisoryUpdateStillIgnoresOtherLocks(t *testing.T) {
	t.Parallel()
	db := dbtest.Spanner(t)
	d := db.Open(t)
	a := acquire(t, d, "other", branch)
	prepare(t, d, "n", "HEAD")
	advisory := func(ref string, old, new driver.Value) error {
		return d.Update(t.Context(), driver.UpdateRequest{Project: project, Origin: driver.Origin{ID: string(new)}, Locks: driver.AdvisoryLocks, Updates: []driver.Update{move(ref, old, new)}})
	}
	must(t, advisory(branch, "", v2))
	db.Age(t, project, branch, time.Hour)
	must(t, advisory(branch, v2, v1))
	if l, ok := db.RowLock(t, project, branch); !ok || l.Token != a.Token {
		t.Errorf("the stale lock is %+v", l)
	}
	if err := advisory("HEAD", "", v2); !errors.Is(err, driver.ErrLocked) {
		t.Error(err)
	}
}
