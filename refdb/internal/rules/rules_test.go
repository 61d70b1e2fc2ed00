package rules

import (
	"errors"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/internal/queue"
)

const (
	v1 driver.Value = "1111111111111111111111111111111111111111"
	v2 driver.Value = "2222222222222222222222222222222222222222"

	owner = "site/1"
	other = "site/2"
)

var now = time.UnixMicro(1_800_000_000_000_000)

// lock returns the lock of that owner and age on a ref, with the token 7.
func lock(ref, owner string, age time.Duration) *driver.LockInfo {
	return &driver.LockInfo{
		Project: "p", Ref: ref, Owner: owner, Token: 7, Heartbeat: now.Add(-age), Age: age, StaleAfter: driver.DefaultStaleAfter,
	}
}

func freshLock(ref, owner string) *driver.LockInfo { return lock(ref, owner, time.Second) }

func staleLock(ref, owner string) *driver.LockInfo {
	return lock(ref, owner, driver.DefaultStaleAfter+1)
}

// intent returns the lock of an intent, of any age.
func intent(ref, owner string) *driver.LockInfo {
	l := lock(ref, owner, 50*365*24*time.Hour)
	l.StaleAfter = driver.NeverStale
	return l
}

// nulls returns a lock without token, heartbeat and stale-after, as drivers read it.
func nulls(ref, owner string) *driver.LockInfo {
	epoch := time.UnixMicro(0)
	return &driver.LockInfo{Project: "p", Ref: ref, Owner: owner, Heartbeat: epoch, Age: now.Sub(epoch), StaleAfter: driver.DefaultStaleAfter}
}

// locked returns a row of a ref that has no value.
func locked(l *driver.LockInfo, nonce string) Row { return Row{Name: l.Ref, Lock: l, Nonce: nonce} }

// holding returns a row of an unlocked ref that holds a value.
func holding(ref string, v driver.Value, op string) Row {
	return Row{Name: ref, Ref: &driver.Ref{Name: ref, Value: v, Op: op}}
}

// holders returns the refs in a *driver.LockedError, nil for none.
func holders(t *testing.T, err error) (refs []string) {
	t.Helper()
	locked, ok := errors.AsType[*driver.LockedError](err)
	if err != nil && !ok {
		t.Fatalf("got %v, want a LockedError", err)
	}
	if ok {
		for _, l := range locked.Holders {
			refs = append(refs, l.Ref)
		}
	}
	return refs
}

func TestAClaimTookTheLocksThatCarryItsOwnerNonceAndKind(t *testing.T) {
	lease := Claim{owner, "n", Lease}
	for name, row := range map[string]struct {
		claim Claim
		row   Row
		want  bool
	}{
		"its lock":                      {lease, locked(freshLock("a", owner), "n"), true},
		"its lock, stale":               {lease, locked(staleLock("a", owner), "n"), true},
		"its intent":                    {Claim{owner, "n", Intent}, locked(intent("a", owner), "n"), true},
		"no row":                        {lease, Row{Name: "a"}, false},
		"another nonce":                 {lease, locked(freshLock("a", owner), "m"), false},
		"no nonce on either side":       {Claim{owner, "", Lease}, locked(freshLock("a", owner), ""), false},
		"a nonce left in another's row": {lease, locked(freshLock("a", other), "n"), false},
		"an intent, asked for a lease":  {lease, locked(intent("a", owner), "n"), false},
		"a lease, asked for an intent":  {Claim{owner, "n", Intent}, locked(freshLock("a", owner), "n"), false},
	} {
		if got := row.claim.Took(row.row); got != row.want {
			t.Errorf("%s: %v, want %v", name, got, row.want)
		}
	}
}

func TestAnUpdateWasCarriedOutIfOneRowCarriesItsID(t *testing.T) {
	rows := []Row{{Name: "a"}, holding("b", v1, "x"), holding("c", v2, "")}
	for id, want := range map[string]bool{"x": true, "y": false, "": false} {
		if got := Updated(id, rows); got != want {
			t.Errorf("%q: %v, want %v", id, got, want)
		}
	}
}

func TestOnlyFreshLocksRefuseAndIdleReservationsAreNotNamed(t *testing.T) {
	waits := driver.ReservedFor(owner)
	for name, row := range map[string]struct {
		locks []*driver.LockInfo
		want  []string
	}{
		"no lock":                           {nil, nil},
		"a fresh one":                       {[]*driver.LockInfo{freshLock("a", owner)}, []string{"a"}},
		"an age equal to stale-after":       {[]*driver.LockInfo{lock("a", owner, driver.DefaultStaleAfter)}, []string{"a"}},
		"a nanosecond more":                 {[]*driver.LockInfo{staleLock("a", owner)}, nil},
		"a heartbeat in the future":         {[]*driver.LockInfo{lock("a", owner, -time.Hour)}, []string{"a"}},
		"NULL columns":                      {[]*driver.LockInfo{nulls("a", owner)}, nil},
		"an intent of any age":              {[]*driver.LockInfo{intent("a", owner)}, []string{"a"}},
		"a stale one beside a fresh one":    {[]*driver.LockInfo{staleLock("a", owner), freshLock("b", other)}, []string{"a", "b"}},
		"a reservation whose turn lasts":    {[]*driver.LockInfo{freshLock("a", waits)}, []string{"a"}},
		"a reservation whose turn is over":  {[]*driver.LockInfo{staleLock("a", waits)}, nil},
		"an idle reservation beside a lock": {[]*driver.LockInfo{staleLock("a", waits), freshLock("b", other)}, []string{"b"}},
	} {
		var locks []driver.LockInfo
		for _, l := range row.locks {
			locks = append(locks, *l)
		}
		if got := holders(t, Refuse(locks)); !slices.Equal(got, row.want) {
			t.Errorf("%s: refused by %v, want %v", name, got, row.want)
		}
	}
}

func TestAnUpdateHeedsLocksByItsModeAndEndsTheStaleOnes(t *testing.T) {
	fence := &driver.Fence{Refs: []string{"a"}, Owner: owner, Token: 7}
	first := queue.Place{Ticket: 1, Turn: time.Minute, ID: "first", Channel: "c", Owner: other}
	waits, polls := queue.Queue{first}, queue.Queue{{Ticket: 1, Turn: time.Minute, ID: "first", Owner: other}}
	reserved := driver.ReservedFor(other)
	const mandatory, advisory = driver.MandatoryLocks, driver.AdvisoryLocks
	for name, row := range map[string]struct {
		mode    driver.LockMode
		fence   *driver.Fence
		lock    *driver.LockInfo
		nonce   string
		queue   queue.Queue
		refused bool
		want    queue.Action
	}{
		"a fresh lock":                              {mandatory, nil, freshLock("a", other), "n", waits, true, queue.Keep},
		"a stale lock":                              {mandatory, nil, staleLock("a", other), "n", nil, false, queue.Delete},
		"a stale lock that is waited for":           {mandatory, nil, staleLock("a", other), "n", waits, false, queue.Reserve},
		"the same, by one that polls":               {mandatory, nil, staleLock("a", other), "n", polls, false, queue.Reserve},
		"NULL columns":                              {mandatory, nil, nulls("a", other), "", nil, false, queue.Delete},
		"NULL columns, waited for":                  {mandatory, nil, nulls("a", other), "", waits, false, queue.Reserve},
		"the fence's own":                           {mandatory, fence, freshLock("a", owner), "n", waits, false, queue.Keep},
		"a fresh lock, advisory":                    {advisory, nil, freshLock("a", other), "n", nil, false, queue.Keep},
		"a stale lock, advisory":                    {advisory, nil, staleLock("a", other), "n", waits, false, queue.Keep},
		"an intent, advisory":                       {advisory, nil, intent("a", other), "n", nil, true, queue.Keep},
		"a reservation":                             {mandatory, nil, freshLock("a", reserved), first.String(), nil, true, queue.Keep},
		"a reservation whose turn is over":          {mandatory, nil, staleLock("a", reserved), first.String(), nil, false, queue.Delete},
		"the same, with others behind":              {mandatory, nil, staleLock("a", reserved), first.String(), waits, false, queue.Reserve},
		"what is kept for nobody":                   {mandatory, nil, staleLock("a", reserved), "", polls, false, queue.Keep},
		"what is kept for nobody, and nobody waits": {mandatory, nil, staleLock("a", reserved), "", nil, false, queue.Delete},
	} {
		r := driver.UpdateRequest{Project: "p", Updates: []driver.Update{{Ref: "a", New: v1}}, Locks: row.mode, Fence: row.fence}
		lock := locked(row.lock, row.nonce)
		lock.Queue = row.queue
		after, err := Update(r, "", nil, []Row{lock}, nil, time.Unix(1_000_000, 0))
		refused := holders(t, err) != nil
		if refused != row.refused || refused != (after == nil) || !refused && after[0].Action != row.want {
			t.Errorf("%s: %v, becomes %+v", name, err, after)
		}
	}
}

func TestLocksAreLookedAtBeforeValues(t *testing.T) {
	rows := []Row{locked(freshLock("a", other), "")}
	updates := []driver.Update{{Ref: "a", Old: v1, New: v2}}
	if _, err := Update(driver.UpdateRequest{Project: "p", Updates: updates}, "", nil, rows, nil, time.Now()); !errors.Is(err, driver.ErrLocked) {
		t.Errorf("an update got %v", err)
	}
	if _, err := Prepare(driver.PrepareRequest{Project: "p", Updates: updates}, "", rows, nil); !errors.Is(err, driver.ErrLocked) {
		t.Errorf("a preparation got %v", err)
	}
}

func TestAProjectIsRemovedUnlessALockThatTheModeHeedsIsFresh(t *testing.T) {
	lease, old, pending := *freshLock("a", other), *staleLock("b", other), *intent("c", other)
	for name, row := range map[string]struct {
		mode  driver.LockMode
		locks []driver.LockInfo
		want  []string
	}{
		"no locks":                {driver.MandatoryLocks, nil, nil},
		"stale ones":              {driver.MandatoryLocks, []driver.LockInfo{old}, nil},
		"a fresh one":             {driver.MandatoryLocks, []driver.LockInfo{lease, old}, []string{"a", "b"}},
		"a fresh one, advisory":   {driver.AdvisoryLocks, []driver.LockInfo{lease}, nil},
		"an intent, advisory":     {driver.AdvisoryLocks, []driver.LockInfo{lease, pending}, []string{"a", "c"}},
		"an intent and stale one": {driver.MandatoryLocks, []driver.LockInfo{old, pending}, []string{"b", "c"}},
	} {
		got := holders(t, Remove(driver.RemoveRequest{Project: "p", Locks: row.mode}, row.locks))
		if !slices.Equal(got, row.want) {
			t.Errorf("%s: refused by %v, want %v", name, got, row.want)
		}
	}
}

func TestARefMatchesWhatItHoldsAndAnyKindOfAbsentMatchesAnother(t *testing.T) {
	unknown := Row{Name: "a"}
	absent := []driver.Value{driver.Unknown, driver.Deleted, driver.Deleted256}
	type test struct {
		name  string
		old   driver.Value
		row   Row
		adopt bool
		want  bool
	}
	tests := []test{
		{"the value", v1, holding("a", v1, ""), false, true},
		{"another value", v1, holding("a", v2, ""), false, false},
		{"a value, expected absent", driver.Unknown, holding("a", v1, ""), false, false},
		{"39 zeros", driver.Unknown, holding("a", driver.Deleted[1:], ""), false, false},
		{"unknown, expected a value", v1, unknown, false, false},
		{"unknown, adopted", v1, unknown, true, true},
		{"another value, adopted", v1, holding("a", v2, ""), true, false},
		{"a tombstone, adopted", v1, holding("a", driver.Deleted, ""), true, false},
	}
	for _, old := range absent {
		tests = append(tests, test{"unknown, expected absent", old, unknown, false, true})
		for _, have := range absent[1:] {
			tests = append(tests, test{"a tombstone, expected absent", old, holding("a", have, ""), false, true})
		}
	}
	for _, test := range tests {
		r := driver.UpdateRequest{Project: "p", Updates: []driver.Update{{Ref: "a", Old: test.old, New: v2}}, Adopt: test.adopt}
		if err := Compare(r, []Row{test.row}); (err == nil) != test.want || err != nil && !errors.Is(err, driver.ErrMismatch) {
			t.Errorf("%s (%q): %v", test.name, test.old, err)
		}
	}
}

func TestAMismatchNamesEveryRefThatDiffers(t *testing.T) {
	r := driver.UpdateRequest{Project: "p", Updates: []driver.Update{{Ref: "a", Old: v1, New: v2}, {Ref: "b", Old: v1, New: v2}, {Ref: "c", New: v2}}}
	err := Compare(r, []Row{{Name: "a"}, holding("b", v1, ""), holding("c", v2, "")})
	want := []driver.Mismatch{{Ref: "a", Want: v1, Have: driver.Unknown}, {Ref: "c", Want: driver.Unknown, Have: v2}}
	if got, ok := errors.AsType[*driver.MismatchError](err); !ok || got.Project != "p" || !slices.Equal(got.Mismatches, want) {
		t.Errorf("got %v, want %v", err, want)
	}
}

func TestALockStandsUnderItsOwnerTokenAndKind(t *testing.T) {
	id := freshLock("a", owner).ID()
	reclaimed := freshLock("a", owner)
	reclaimed.Token++
	for name, row := range map[string]struct {
		lock *driver.LockInfo
		id   driver.LockID
		kind Kind
		want bool
	}{
		"it":                              {freshLock("a", owner), id, Lease, true},
		"it, stale":                       {staleLock("a", owner), id, Lease, true},
		"its intent":                      {intent("a", owner), id, Intent, true},
		"no lock":                         {nil, id, Lease, false},
		"another owner":                   {freshLock("a", other), id, Lease, false},
		"another token":                   {reclaimed, id, Lease, false},
		"an intent, asked for a lease":    {intent("a", owner), id, Lease, false},
		"a lease, asked for an intent":    {freshLock("a", owner), id, Intent, false},
		"a NULL token is 0":               {nulls("a", owner), driver.LockID{Project: "p", Ref: "a", Owner: owner}, Lease, true},
		"what is kept for its own waiter": {freshLock("a", driver.ReservedFor(owner)), id, Lease, false},
	} {
		if got := Stands(row.lock, row.id, row.kind); got != row.want {
			t.Errorf("%s: %v, want %v", name, got, row.want)
		}
	}
}

func TestALockThatWasRenewedSinceIsNotTheOneThatWasListed(t *testing.T) {
	l := lock("a", owner, time.Minute)
	for name, row := range map[string]struct {
		heartbeat time.Time
		want      bool
	}{
		"any heartbeat":     {time.Time{}, true},
		"its heartbeat":     {l.Heartbeat, true},
		"it in another way": {l.Heartbeat.UTC().Add(999 * time.Nanosecond), true},
		"an earlier one":    {l.Heartbeat.Add(-time.Microsecond), false},
	} {
		if got := StandsAsListed(l, driver.StandingLock{LockID: l.ID(), Heartbeat: row.heartbeat}); got != row.want {
			t.Errorf("%s: %v, want %v", name, got, row.want)
		}
	}
}

func TestAFenceNamesTheRefsWhoseLockIsLost(t *testing.T) {
	locks := map[string]*driver.LockInfo{"a": freshLock("a", owner), "b": freshLock("b", other)}
	f := driver.Fence{Refs: []string{"a", "b", "c"}, Owner: owner, Token: 7}
	for kind, want := range map[Kind][]string{Lease: {"b", "c"}, Intent: {"a", "b", "c"}} {
		missing := Missing("p", f, kind, func(ref string) *driver.LockInfo { return locks[ref] })
		err := lost("p", missing, kind)
		if lost, ok := errors.AsType[*driver.LostError](err); !ok || !slices.Equal(lost.Refs, want) || lost.Reason == "" {
			t.Errorf("got %v, want %v", err, want)
		}
	}
	f.Refs = f.Refs[:1]
	if missing := Missing("p", f, Lease, func(ref string) *driver.LockInfo { return locks[ref] }); lost("p", missing, Lease) != nil {
		t.Errorf("a fence that stands: %v are missing", missing)
	}
}

func TestALostFenceRefusesBeforeLocksAndValuesDo(t *testing.T) {
	updates := []driver.Update{{Ref: "a", Old: v1, New: v2}}
	held := locked(freshLock("a", other), "")
	held.Ref = &driver.Ref{Name: "a", Value: v2}
	_, err := Update(driver.UpdateRequest{Project: "p", Updates: updates}, "", []string{"b"}, []Row{held}, nil, now)
	if got, ok := errors.AsType[*driver.LostError](err); !ok || got.Project != "p" || !slices.Equal(got.Refs, []string{"b"}) {
		t.Errorf("an update got %v", err)
	}
	finish := driver.FinishRequest{Project: "p", Done: updates, Dropped: []string{"0"}, Origin: driver.Origin{Owner: owner}, Token: 7}
	if held := Intents(finish); !slices.Equal(held.Refs, []string{"0", "a"}) || held.Owner != owner || held.Token != 7 {
		t.Errorf("it ends the intents of %+v", held)
	}
	for name, row := range map[string]struct {
		missing []string
		value   driver.Value
		want    error
	}{
		"an intent that has ended, and another value": {[]string{"0"}, v2, driver.ErrLockLost},
		"another value": {nil, v2, driver.ErrMismatch},
		"neither":       {nil, v1, nil},
	} {
		if err := Finish(finish, row.missing, []Row{holding("a", row.value, "")}); !errors.Is(err, row.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := Finish(finish, []string{"0"}, nil); !errors.Is(err, driver.ErrLockLost) {
		t.Errorf("without rows: %v", err)
	}
}

func TestAnAcquisitionIsAdoptedGrantedOrRefused(t *testing.T) {
	a, b := locked(freshLock("a", owner), "n"), locked(freshLock("b", owner), "n")
	a.Ref = &driver.Ref{Name: "a", Value: v1}
	for name, row := range map[string]struct {
		rows      []Row
		adopted   bool
		token     driver.Token
		reclaimed int
		refused   []string
		after     []queue.Action
	}{
		"free":                        {[]Row{{Name: "a"}, {Name: "b"}}, false, 0, 0, nil, []queue.Action{queue.Keep, queue.Keep}},
		"its own":                     {[]Row{a, b}, true, 7, 0, nil, nil},
		"a part of them its own":      {[]Row{a, {Name: "b"}}, false, 0, 0, nil, []queue.Action{queue.Keep, queue.Keep}},
		"a part of them, others held": {[]Row{a, locked(freshLock("b", other), "m")}, false, 0, 0, []string{"b"}, []queue.Action{queue.Delete, queue.Keep}},
		"a stale one":                 {[]Row{locked(staleLock("a", other), "m"), {Name: "b"}}, false, 0, 1, nil, []queue.Action{queue.Keep, queue.Keep}},
		"an idle reservation":         {[]Row{locked(staleLock("a", driver.ReservedFor(other)), ""), {Name: "b"}}, false, 0, 0, nil, []queue.Action{queue.Keep, queue.Keep}},
	} {
		got, err := Acquire(driver.AcquireRequest{Project: "p", Refs: []string{"a", "b"}, Owner: owner, Nonce: "n"}, row.rows, now)
		var after []queue.Action
		for _, a := range got.After {
			after = append(after, a.Action)
		}
		if got.Adopted != row.adopted || got.Token != row.token || len(got.Reclaimed) != row.reclaimed ||
			!slices.Equal(holders(t, err), row.refused) || !slices.Equal(after, row.after) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
		if want := err == nil && row.rows[0].Ref != nil; len(got.Refs) > 0 != want {
			t.Errorf("%s: it has the refs %v", name, got.Refs)
		}
	}
}

func TestAPreparationIsAdoptedGrantedOrRefused(t *testing.T) {
	waiting := locked(staleLock("a", other), "m")
	waiting.Queue = queue.Queue{{Ticket: 1, ID: "w"}}
	for name, row := range map[string]struct {
		row       Row
		adopted   bool
		reclaimed int
		passed    int // of the waiter, if there is one
		refused   error
	}{
		"free":                            {Row{Name: "a"}, false, 0, 0, nil},
		"its own intent":                  {locked(intent("a", owner), "n"), true, 0, 0, nil},
		"a lease with its nonce":          {locked(freshLock("a", owner), "n"), false, 0, 0, driver.ErrLocked},
		"another's intent":                {locked(intent("a", other), "n"), false, 0, 0, driver.ErrLocked},
		"a stale lock that is waited for": {waiting, false, 1, 1, nil},
		"an idle reservation":             {locked(staleLock("a", driver.ReservedFor(other)), ""), false, 0, 0, nil},
		"another value":                   {holding("a", v2, ""), false, 0, 0, driver.ErrMismatch},
	} {
		r := driver.PrepareRequest{Project: "p", Updates: []driver.Update{{Ref: "a", New: v1}}, Owner: owner, Nonce: "n"}
		got, err := Prepare(r, "", []Row{row.row}, nil)
		if got.Adopted != row.adopted || got.Token > 0 != row.adopted || len(got.Reclaimed) != row.reclaimed || !errors.Is(err, row.refused) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
		if err == nil && !got.Adopted {
			passed := 0
			for _, p := range got.After[0].Queue {
				passed += p.Passed
			}
			if len(got.After) != 1 || passed != row.passed {
				t.Errorf("%s: the rows are left with %v", name, got.After)
			}
		}
	}
}

func TestAbandonEndsWhatTheAcquisitionTookAndTheWait(t *testing.T) {
	queued := locked(freshLock("a", other), "m")
	queued.Queue = queue.Queue{{Ticket: 1, ID: "w"}, {Ticket: 2, ID: "x", Channel: "c"}}
	own := locked(freshLock("a", owner), "n")
	own.Queue = queued.Queue
	for name, row := range map[string]struct {
		row   Row
		want  queue.Action
		queue []string
	}{
		"no row":                   {Row{Name: "a"}, queue.Keep, nil},
		"its lock":                 {locked(freshLock("a", owner), "n"), queue.Delete, nil},
		"its lock, with waiters":   {own, queue.Reserve, nil},
		"another's lock":           {locked(freshLock("a", other), "n"), queue.Keep, nil},
		"another's, in its queue":  {queued, queue.SetQueue, []string{"x"}},
		"an intent with its nonce": {locked(intent("a", owner), "n"), queue.Keep, nil},
	} {
		got := Abandon(driver.AbandonRequest{Project: "p", Refs: []string{"a"}, Owner: owner, Nonce: "n", Waiter: "w"}, row.row, now)
		var left []string
		for _, p := range got.Queue {
			left = append(left, p.ID)
		}
		if got.Action != row.want || !slices.Equal(left, row.queue) {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

func TestOnlyAPendingIntentIsResolvedAndWithoutItsLockTheRefKeepsItsValue(t *testing.T) {
	for name, row := range map[string]struct {
		intent        *IntentRow
		keeps, writes bool
	}{
		"pending":                     {&IntentRow{Pending: true, Locked: true}, true, true},
		"pending, its lock deleted":   {&IntentRow{Pending: true}, true, false},
		"decided":                     {&IntentRow{Locked: true}, false, false},
		"none":                        {nil, false, false},
		"decided, its lock not there": {&IntentRow{}, false, false},
	} {
		if keeps, writes := Resolvable(row.intent, driver.KeepOld), Resolvable(row.intent, driver.TakeNew); keeps != row.keeps || writes != row.writes {
			t.Errorf("%s: may keep %v, may take the new value %v", name, keeps, writes)
		}
	}
}

func TestAProjectIsWrittenOnceOverTheRevisionThatWasRead(t *testing.T) {
	have := driver.Project{Project: "p", Revision: 3, Op: "x"}
	for name, row := range map[string]struct {
		op       string
		revision int64
		have     driver.Project
		written  bool
		refused  error
	}{
		"the first":                  {"y", 0, driver.Project{}, false, nil},
		"the next":                   {"y", 3, have, false, nil},
		"the same again":             {"x", 2, have, true, nil},
		"over an older one":          {"y", 2, have, false, &driver.ProjectChangedError{Project: "p", Want: 2, Have: 3}},
		"none, expected one":         {"y", 3, driver.Project{}, false, &driver.ProjectChangedError{Project: "p", Want: 3}},
		"without a name, no row yet": {"", 0, driver.Project{}, false, nil},
	} {
		written, err := PutProject(driver.ProjectRequest{Project: "p", Op: row.op, Revision: row.revision}, row.have)
		if written != row.written || !reflect.DeepEqual(err, row.refused) {
			t.Errorf("%s: %v, %v", name, written, err)
		}
	}
}

func TestAStateHasTheValueAndTheLockOfARefThatHasARow(t *testing.T) {
	lock := freshLock("b", owner)
	both := holding("c", v2, "")
	both.Lock = lock
	got := States([]Row{holding("a", v1, ""), locked(lock, "n"), both, {Name: "d"}})
	want := []driver.State{{Ref: "a", Value: v1}, {Ref: "b", Lock: lock}, {Ref: "c", Value: v2, Lock: lock}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}
