package refdbtest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
)

// restart makes the server of the row's database another one, as a restart or a fail-over does. It skips
// the row where that can't be done.
func (e *env) restart(others ...refdb.Driver) {
	e.Helper()
	r, ok := e.db.(restarter)
	if !ok {
		e.Skip("the server of this database can't be made another one")
	}
	r.Restart(e)
	e.notice(others...)
}

// notice has drivers look which server is admitted. One may do so only as often as it checks the schema.
func (e *env) notice(others ...refdb.Driver) {
	e.Helper()
	for _, d := range append([]refdb.Driver{e.a.Driver, e.b.Driver}, others...) {
		for _, each := range instances(d) {
			if c, ok := each.(refdb.SchemaChecker); ok {
				e.must(c.CheckSchema(e.Context()))
			}
		}
	}
}

// instances are the drivers behind d.
func instances(d refdb.Driver) []refdb.Driver {
	switch d := d.(type) {
	case interface{ instances() []refdb.Driver }:
		return d.instances()
	case *faultyDriver:
		return instances(d.Driver)
	default:
		return []refdb.Driver{d}
	}
}

// admission returns the state of the row's database.
func (e *env) admission() refdb.Admission {
	e.Helper()
	a, err := e.a.Admission(e.Context())
	e.must(err)
	return a
}

// report reports about the present server.
func (e *env) report(r refdb.Report) refdb.Admission {
	e.Helper()
	r.Server = e.admission().Server
	a, err := e.a.Report(e.Context(), r)
	e.must(err)
	e.notice()
	return a
}

// witnesses registers sites, which have compared the present server.
func (e *env) witnesses(names ...string) {
	e.Helper()
	for _, name := range names {
		e.report(refdb.Report{Witness: name})
	}
}

// wantAdmission checks whether the server is admitted, and for whom it waits.
func (e *env) wantAdmission(a refdb.Admission, admitted bool, waiting ...string) {
	e.Helper()
	if a.Admitted != admitted || !slices.Equal(a.Waiting(), waiting) {
		e.Errorf("admitted: %t, and it waits for %q; want %t, %q", a.Admitted, a.Waiting(), admitted, waiting)
	}
}

// wantWritable checks whether the database may be written.
func (e *env) wantWritable(want bool) {
	e.Helper()
	ref := "refs/heads/writable/" + fmt.Sprint(time.Now().UnixNano())
	err := e.a.Update(e.Context(), refdb.UpdateRequest{Project: e.project, Updates: []refdb.Update{move(ref, "", v1)}, Origin: refdb.Origin{ID: ref, Owner: e.a.owner}})
	switch {
	case want:
		e.must(err)
	default:
		e.wantIs(err, refdb.ErrNotAdmitted)
	}
}

// known is a change of a ref of the row's project, by an operation.
func (e *env) known(op, ref string, from, to refdb.Value) refdb.Known {
	at := time.Now().UTC().Truncate(time.Microsecond)
	return refdb.Known{Project: e.project, Ref: ref, Old: from, New: to, Op: op, Owner: "site-w/1", By: asker, At: at}
}

// knownIntent is an intent for that.
func (e *env) knownIntent(op, ref string, from, to refdb.Value, m refdb.Move) refdb.Known {
	k := e.known(op, ref, from, to)
	k.Token, k.Move = refdb.TokenOf(k.At), m
	return k
}

// missing returns the operations of those that the database does not have.
func (e *env) missing(witness string, known ...refdb.Known) string {
	e.Helper()
	l, err := e.a.Look(e.Context(), witness, known)
	e.must(err)
	if want := e.admission().Server; l.Server != want {
		e.Errorf("looked at %q, the server is %q", l.Server, want)
	}
	var ops []string
	for _, i := range l.Missing {
		ops = append(ops, known[i].Op)
	}
	return strings.Join(ops, " ")
}

func (e *env) wantMissing(want, witness string, known ...refdb.Known) {
	e.Helper()
	if got := e.missing(witness, known...); got != want {
		e.Errorf("missing are %q, want %q", got, want)
	}
}

// lost returns all lost changes, as their operations and fates.
func (e *env) lost(decided bool) string {
	e.Helper()
	var all []string
	for l := range readPages(e, refdb.LostCursor{}, 2, func(after refdb.LostCursor) ([]refdb.LostChange, refdb.LostCursor, error) {
		p, err := e.b.LostChanges(e.Context(), refdb.LostQuery{Decided: decided, After: after, Limit: 2})
		return p.Lost, p.Next, err
	}, func(l refdb.LostChange) refdb.LostCursor {
		return refdb.LostCursor{Project: l.Project, Ref: l.Ref, Op: l.Op}
	}, func(a, b refdb.LostCursor) int {
		return slices.Compare([]string{a.Project, a.Ref, a.Op}, []string{b.Project, b.Ref, b.Op})
	}) {
		all = append(all, fate(l))
	}
	return strings.Join(all, ", ")
}

func fate(l refdb.LostChange) string { return strings.TrimSpace(l.Op + " " + string(l.Fate)) }

func (e *env) wantLostChanges(decided bool, want string) {
	e.Helper()
	if got := e.lost(decided); got != want {
		e.Errorf("lost are %q, want %q", got, want)
	}
}

const recoverLimit = 10

func recoverRequest(without ...string) refdb.RecoverRequest {
	return refdb.RecoverRequest{Epoch: "epoch-2", By: "alice@host", Reason: "a backup was put back", Without: without, Limit: recoverLimit}
}

// recoverOnce does one step, and returns what it decided about.
func (e *env) recoverOnce(p process, r refdb.RecoverRequest) (refdb.Recovered, string) {
	e.Helper()
	var answer refdb.Recovered
	e.must(retry(func() (err error) {
		answer, err = p.Recover(e.Context(), r)
		return err
	}))
	e.notice()
	var decided []string
	for _, l := range answer.Decided {
		decided = append(decided, fate(l))
	}
	slices.Sort(decided)
	return answer, strings.Join(decided, ", ")
}

// recover does all steps.
func (e *env) recover(r refdb.RecoverRequest) (decided []string) {
	e.Helper()
	for range 20 {
		answer, said := e.recoverOnce(e.a, r)
		decided = append(decided, said)
		if answer.Done != answer.Admitted {
			e.Errorf("done: %t, admitted: %t", answer.Done, answer.Admitted)
		}
		if answer.Done {
			return decided
		}
	}
	e.Fatalf("it never ended: %q", decided)
	return nil
}

// A testJournal says that its DB knows what a row gave it, besides what the DB notes.
type testJournal struct {
	mu      sync.Mutex
	changes []refdb.Known // oldest first
	intents []refdb.Known
	marks   []refdb.WitnessMark
	noted   func() // called by Note
}

func (j *testJournal) Note(known []refdb.Known) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, k := range known {
		if k.Token != 0 {
			j.intents = append(j.intents, k)
		} else {
			j.changes = append(j.changes, k)
		}
	}
	if j.noted != nil {
		j.noted()
	}
	return nil
}

func (j *testJournal) End(project string, refs []string, op string) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.intents = slices.DeleteFunc(j.intents, func(k refdb.Known) bool {
		return k.Project == project && k.Op == op && slices.Contains(refs, k.Ref)
	})
	return nil
}

func (j *testJournal) Pending() ([]refdb.Known, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.intents), nil
}

func (j *testJournal) Newest(skip, limit int) ([]refdb.Known, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	newest := slices.Clone(j.changes)
	slices.Reverse(newest)
	newest = newest[min(skip, len(newest)):]
	return newest[:min(limit, len(newest))], nil
}

func (j *testJournal) Settle(_ context.Context, lost []refdb.Known) ([]refdb.Known, bool, error) {
	return lost, false, nil
}

func (j *testJournal) Marks() ([]refdb.WitnessMark, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.marks, nil
}

func (j *testJournal) SetMarks(marks []refdb.WitnessMark) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.marks = marks
	return nil
}
