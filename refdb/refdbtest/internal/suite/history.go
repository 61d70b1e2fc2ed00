package suite

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
)

// By is who makes the suite's recorded changes.
func By(p Process, id string) driver.Origin {
	return driver.Origin{ID: id, Owner: p.Owner, By: "o'brien <" + id + ">"}
}

// Change makes an update through p under an ID.
func (e *Env) Change(p Process, id string, updates ...driver.Update) {
	e.Helper()
	e.Must(e.SendUpdate(p, driver.UpdateRequest{Origin: By(p, id), Updates: updates}))
}

// ReadLog returns all changes of a ref or, given "", of the row's project, oldest first.
func (e *Env) ReadLog(ref string) []driver.Change {
	e.Helper()
	return e.ReadLogOf(e.Project, ref, 3)
}

func (e *Env) ReadLogOf(project, ref string, limit int) (all []driver.Change) {
	e.Helper()
	for r := (driver.LogRequest{Project: project, Ref: ref, Limit: limit}); ; {
		page, err := e.B.Log(e.Context(), r)
		e.Must(err)
		all = append(all, page.Changes...)
		if page.Next == (driver.ChangeKey{}) {
			slices.Reverse(all)
			return all
		}
		if len(page.Changes) == 0 {
			e.Fatalf("before %+v is an empty page, and Next is %+v", r.Before, page.Next)
		}
		r.Before = page.Next
	}
}

// Said is a change in short: of a ref, from one value to another.
func Said(c driver.Change) string {
	return fmt.Sprintf("%s %s>%s", strings.TrimPrefix(c.Ref, "refs/heads/"), Short(c.Old), Short(c.New))
}

func Short(v driver.Value) string {
	switch {
	case v == driver.Unknown:
		return "-"
	case v.IsDeleted():
		return "0"
	}
	return string(v[:1])
}

func SaidAll(changes []driver.Change) string {
	all := make([]string, len(changes))
	for i, c := range changes {
		all[i] = Said(c)
	}
	return strings.Join(all, ", ")
}

// WantLog checks the changes of the row's project, oldest first.
func (e *Env) WantLog(want ...string) []driver.Change {
	e.Helper()
	got := e.ReadLog("")
	if SaidAll(got) != strings.Join(want, ", ") {
		e.Errorf("the log says %q, want %q", SaidAll(got), want)
	}
	return got
}

// History returns the state of the history.
func (e *Env) History() driver.HistoryState {
	e.Helper()
	s, err := e.A.HistoryState(e.Context())
	e.Must(err)
	return s
}

// Complete waits until the changes of the row's project so far are complete, and returns the last
// position.
func (e *Env) Complete() driver.Position {
	e.Helper()
	return e.CompleteOf(e.ReadLog(""))
}

// CompleteOf waits until all of changes are complete, and returns the last position. On some
// databases any open transaction holds that back, other tests' too.
func (e *Env) CompleteOf(changes []driver.Change) driver.Position {
	e.Helper()
	last := driver.Position(math.MinInt64)
	for _, c := range changes {
		last = max(last, c.Position)
	}
	if !e.Poll(func() bool { return e.History().Upto >= last }) {
		e.Fatalf("after %s, %d is not complete: %+v", e.Patience(), last, e.History())
	}
	return last
}

// Beginning is where the row's reading of changes begins: no change of its project is before that.
func (e *Env) Beginning() driver.ChangeKey {
	e.Helper()
	return driver.ChangeKey{Position: e.History().Upto + 1}
}

// Changes reads all changes that r selects, page by page.
func (e *Env) Changes(p Process, r driver.ChangesRequest) (all []driver.Change) {
	e.Helper()
	for {
		page, err := p.Changes(e.Context(), r)
		e.Must(err)
		all = append(all, page.Changes...)
		if page.Next.Position > page.State.Upto {
			return all
		}
		if page.Next.Compare(r.After) <= 0 {
			e.Fatalf("after %+v, Next is %+v", r.After, page.Next)
		}
		r.After = page.Next
	}
}

// Past returns the refs of the row's project as they were at a position, page by page.
func (e *Env) Past(at driver.Position, q driver.RefQuery) (all []driver.Ref) {
	e.Helper()
	q.Project, q.Limit = e.Project, 2
	for {
		page, err := e.B.Past(e.Context(), driver.PastRequest{RefQuery: q, At: at})
		e.Must(err)
		all = append(all, page.Refs...)
		if page.Next == "" {
			return all
		}
		if page.Next <= q.After {
			e.Fatalf("after %q, Next is %q", q.After, page.Next)
		}
		q.After = page.Next
	}
}

// WantPast checks what the row's project held at a position: "a=1 b=2".
func (e *Env) WantPast(at driver.Position, q driver.RefQuery, want string) {
	e.Helper()
	var got []string
	for _, r := range e.Past(at, q) {
		got = append(got, strings.TrimPrefix(r.Name, "refs/heads/")+"="+Short(r.Value))
	}
	if strings.Join(got, " ") != want {
		e.Errorf("at %d the project held %q, want %q", at, strings.Join(got, " "), want)
	}
}

// Tip returns the tip of the row's project.
func (e *Env) Tip() (t driver.Tip) {
	e.Helper()
	e.Must(Retry(func() (err error) {
		t, err = e.B.Tip(e.Context(), e.Project)
		return err
	}))
	return t
}

// WantTip compares the tip with the log.
func (e *Env) WantTip() {
	e.Helper()
	log := e.ReadLog("")
	if t := e.Tip(); t.Newest != log[len(log)-1].Position {
		e.Errorf("the tip is %+v, the last change %+v", t, log[len(log)-1])
	}
}
