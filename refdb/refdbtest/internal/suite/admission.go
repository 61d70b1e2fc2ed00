package suite

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
)

// Restart makes the server of the row's database another one, as a restart or a fail-over does. It
// skips the row where that can't be done.
func (e *Env) Restart(others ...driver.Driver) {
	e.Helper()
	r, ok := e.DB.(restarter)
	if !ok {
		e.Skip("the server of this database can't be made another one")
	}
	r.Restart(e)
	e.Notice(others...)
}

// Notice has drivers look which server is admitted. One may do so only as often as it checks the
// schema.
func (e *Env) Notice(others ...driver.Driver) {
	e.Helper()
	for _, d := range append([]driver.Driver{e.A.Driver, e.B.Driver}, others...) {
		for _, each := range instances(d) {
			if c, ok := each.(driver.SchemaChecker); ok {
				e.Must(c.CheckSchema(e.Context()))
			}
		}
	}
}

// instances are the drivers behind d.
func instances(d driver.Driver) []driver.Driver {
	switch d := d.(type) {
	case interface{ instances() [2]driver.Driver }:
		both := d.instances()
		return both[:]
	case *FaultyDriver:
		return instances(d.Driver)
	default:
		return []driver.Driver{d}
	}
}

// Admission returns the state of the row's database.
func (e *Env) Admission() driver.Admission {
	e.Helper()
	a, err := e.A.Admission(e.Context())
	e.Must(err)
	return a
}

// Report reports about the present server.
func (e *Env) Report(r driver.Report) driver.Admission {
	e.Helper()
	r.Server = e.Admission().Server
	a, err := e.A.Report(e.Context(), r)
	e.Must(err)
	e.Notice()
	return a
}

// Witnesses registers sites, which have compared the present server.
func (e *Env) Witnesses(names ...string) {
	e.Helper()
	for _, name := range names {
		e.Report(driver.Report{Witness: name})
	}
}

// WantAdmission checks whether the server is admitted, and for whom it waits.
func (e *Env) WantAdmission(a driver.Admission, admitted bool, waiting ...string) {
	e.Helper()
	if a.Admitted != admitted || !slices.Equal(a.Waiting(), waiting) {
		e.Errorf("admitted: %t, and it waits for %q; want %t, %q", a.Admitted, a.Waiting(), admitted, waiting)
	}
}

// WantWritable checks whether the database may be written.
func (e *Env) WantWritable(want bool) {
	e.Helper()
	ref := "refs/heads/writable/" + fmt.Sprint(time.Now().UnixNano())
	err := e.A.Update(e.Context(), driver.UpdateRequest{Project: e.Project, Updates: []driver.Update{Move(ref, "", V1)}, Origin: driver.Origin{ID: ref, Owner: e.A.Owner}})
	switch {
	case want:
		e.Must(err)
	default:
		e.WantIs(err, driver.ErrNotAdmitted)
	}
}

// Known is a change of a ref of the row's project, by an operation.
func (e *Env) Known(op, ref string, from, to driver.Value) driver.Known {
	at := time.Now().UTC().Truncate(time.Microsecond)
	return driver.Known{Project: e.Project, Ref: ref, Old: from, New: to, Op: op, Owner: "site-w/1", By: Asker, At: at}
}

// KnownIntent is an intent for that.
func (e *Env) KnownIntent(op, ref string, from, to driver.Value, m driver.Move) driver.Known {
	k := e.Known(op, ref, from, to)
	k.Token, k.Move = driver.TokenOf(k.At), m
	return k
}

// missing returns the operations of those that the database does not have.
func (e *Env) missing(witness string, known ...driver.Known) string {
	e.Helper()
	l, err := e.A.Look(e.Context(), witness, known)
	e.Must(err)
	if want := e.Admission().Server; l.Server != want {
		e.Errorf("looked at %q, the server is %q", l.Server, want)
	}
	var ops []string
	for _, i := range l.Missing {
		ops = append(ops, known[i].Op)
	}
	return strings.Join(ops, " ")
}

func (e *Env) WantMissing(want, witness string, known ...driver.Known) {
	e.Helper()
	if got := e.missing(witness, known...); got != want {
		e.Errorf("missing are %q, want %q", got, want)
	}
}

// lost returns all lost changes, as their operations and fates.
func (e *Env) lost(decided bool) string {
	e.Helper()
	var all []string
	for l := range ReadPages(e, driver.LostCursor{}, 2, func(after driver.LostCursor) ([]driver.LostChange, driver.LostCursor, error) {
		p, err := e.B.LostChanges(e.Context(), driver.LostQuery{Decided: decided, After: after, Limit: 2})
		return p.Lost, p.Next, err
	}, func(l driver.LostChange) driver.LostCursor {
		return driver.LostCursor{Project: l.Project, Ref: l.Ref, Op: l.Op}
	}, func(a, b driver.LostCursor) int {
		return slices.Compare([]string{a.Project, a.Ref, a.Op}, []string{b.Project, b.Ref, b.Op})
	}) {
		all = append(all, Fate(l))
	}
	return strings.Join(all, ", ")
}

func Fate(l driver.LostChange) string { return strings.TrimSpace(l.Op + " " + string(l.Fate)) }

func (e *Env) WantLostChanges(decided bool, want string) {
	e.Helper()
	if got := e.lost(decided); got != want {
		e.Errorf("lost are %q, want %q", got, want)
	}
}

const recoverLimit = 10

func RecoverRequest(without ...string) driver.RecoverRequest {
	return driver.RecoverRequest{Epoch: "epoch-2", By: "alice@host", Reason: "a backup was put back", Without: without, Limit: recoverLimit}
}

// RecoverOnce does one step, and returns what it decided about.
func (e *Env) RecoverOnce(p Process, r driver.RecoverRequest) (driver.Recovered, string) {
	e.Helper()
	var answer driver.Recovered
	e.Must(Retry(func() (err error) {
		answer, err = p.Recover(e.Context(), r)
		return err
	}))
	e.Notice()
	var decided []string
	for _, l := range answer.Decided {
		decided = append(decided, Fate(l))
	}
	slices.Sort(decided)
	return answer, strings.Join(decided, ", ")
}

// Recover does all steps.
func (e *Env) Recover(r driver.RecoverRequest) (decided []string) {
	e.Helper()
	for range 20 {
		answer, said := e.RecoverOnce(e.A, r)
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

// A TestJournal says that its DB knows what a row gave it, besides what the DB notes.
type TestJournal struct {
	Mu      sync.Mutex
	Changes []driver.Known // oldest first
	intents []driver.Known
	marks   []driver.WitnessMark
	noted   func() // called by Note

	policy      driver.PolicyMark
	testimonies []driver.Testimony
}

func (j *TestJournal) Note(known []driver.Known) error {
	j.Mu.Lock()
	defer j.Mu.Unlock()
	for _, k := range known {
		if k.Token != 0 {
			j.intents = append(j.intents, k)
		} else {
			j.Changes = append(j.Changes, k)
		}
	}
	if j.noted != nil {
		j.noted()
	}
	return nil
}

func (j *TestJournal) End(project string, refs []string, op string) (ended []driver.Known, err error) {
	j.Mu.Lock()
	defer j.Mu.Unlock()
	j.intents = slices.DeleteFunc(j.intents, func(k driver.Known) bool {
		ends := k.Project == project && k.Op == op && slices.Contains(refs, k.Ref)
		if ends {
			ended = append(ended, k)
		}
		return ends
	})
	return ended, nil
}

func (j *TestJournal) Pending() ([]driver.Known, error) {
	j.Mu.Lock()
	defer j.Mu.Unlock()
	return slices.Clone(j.intents), nil
}

func (j *TestJournal) Newest(skip, limit int) ([]driver.Known, error) {
	j.Mu.Lock()
	defer j.Mu.Unlock()
	newest := slices.Clone(j.Changes)
	slices.Reverse(newest)
	newest = newest[min(skip, len(newest)):]
	return newest[:min(limit, len(newest))], nil
}

func (j *TestJournal) Settle(_ context.Context, lost []driver.Known) ([]driver.Known, bool, error) {
	return lost, false, nil
}

func (j *TestJournal) Marks() ([]driver.WitnessMark, error) {
	j.Mu.Lock()
	defer j.Mu.Unlock()
	return j.marks, nil
}

func (j *TestJournal) SetMarks(marks []driver.WitnessMark) error {
	j.Mu.Lock()
	defer j.Mu.Unlock()
	j.marks = marks
	return nil
}

func (j *TestJournal) Policy() (driver.PolicyMark, error) {
	j.Mu.Lock()
	defer j.Mu.Unlock()
	return j.policy, nil
}

func (j *TestJournal) SetPolicy(p driver.PolicyMark) error {
	j.Mu.Lock()
	defer j.Mu.Unlock()
	j.policy = p
	return nil
}

func (j *TestJournal) Testimonies() ([]driver.Testimony, error) {
	j.Mu.Lock()
	defer j.Mu.Unlock()
	return slices.Clone(j.testimonies), nil
}

func (j *TestJournal) SetTestimonies(all []driver.Testimony) error {
	j.Mu.Lock()
	defer j.Mu.Unlock()
	j.testimonies = slices.Clone(all)
	return nil
}
