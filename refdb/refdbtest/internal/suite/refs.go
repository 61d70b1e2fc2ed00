package suite

import (
	"crypto/rand"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
)

// Move returns an update of one ref.
func Move(ref string, from, to driver.Value) driver.Update {
	return driver.Update{Ref: ref, Old: from, New: to}
}

// Creations returns updates that create refs with v1.
func Creations(refs []string) (updates []driver.Update) {
	for _, ref := range refs {
		updates = append(updates, Move(ref, "", V1))
	}
	return updates
}

// SendUpdate sends r through p, its updates sorted, as a driver is promised. It fills in the row's
// project and a unique ID where r has none.
func (e *Env) SendUpdate(p Process, r driver.UpdateRequest) error {
	r.Updates = slices.SortedFunc(slices.Values(r.Updates), func(a, b driver.Update) int { return strings.Compare(a.Ref, b.Ref) })
	if r.Project == "" {
		r.Project = e.Project
	}
	if r.ID == "" {
		r.ID = rand.Text()
	}
	return Retry(func() error { return p.Update(e.Context(), r) })
}

// Update sends a plain update through p.
func (e *Env) Update(p Process, updates ...driver.Update) error {
	return e.SendUpdate(p, driver.UpdateRequest{Updates: updates})
}

// Store creates refs, each with its own name as value.
func (e *Env) Store(names []string) {
	e.Helper()
	var updates []driver.Update
	for _, n := range names {
		updates = append(updates, Move(n, "", driver.Value(n)))
	}
	e.Must(e.Update(e.A, updates...))
}

// Get returns the rows of some of the project's refs.
func (e *Env) Get(refs ...string) []driver.Ref {
	e.Helper()
	got, err := e.A.Get(e.Context(), e.Project, refs)
	e.Must(err)
	return got
}

// GetOne returns the row of a ref that must have one.
func (e *Env) GetOne(ref string) driver.Ref {
	e.Helper()
	got := e.Get(ref)
	if len(got) != 1 || got[0].Name != ref {
		e.Fatalf("the rows of %s are %v", ref, got)
	}
	return got[0]
}

// Now is the database's time, as p has it.
func (e *Env) Now(p Process) time.Time {
	e.Helper()
	now, err := p.Now(e.Context())
	e.Must(err)
	return now
}

// Names lists the refs that q selects. Each must hold its own name or v1, or be deleted.
func (e *Env) Names(q driver.RefQuery) []string {
	e.Helper()
	if q.Project == "" {
		q.Project = e.Project
	}
	if q.Limit == 0 {
		q.Limit = 1000
	}
	read := func(after string) ([]driver.Ref, string, error) {
		q.After = after
		page, err := e.A.List(e.Context(), q)
		return page.Refs, page.Next, err
	}
	var all []string
	for r := range ReadPages(e, q.After, q.Limit, read, func(r driver.Ref) string { return r.Name }, strings.Compare) {
		if v := r.Value; string(v) != r.Name && v != V1 && !v.IsDeleted() {
			e.Errorf("%q holds %q", r.Name, v)
		}
		all = append(all, r.Name)
	}
	return all
}

// States returns what is known of the refs, by name. It sorts them.
func (e *Env) States(refs ...string) map[string]driver.State {
	e.Helper()
	got, err := e.TryStates(refs...)
	e.Must(err)
	return got
}

func (e *Env) TryStates(refs ...string) (map[string]driver.State, error) {
	var got []driver.State
	err := Retry(func() (err error) {
		got, err = e.B.States(e.Context(), e.Project, slices.Sorted(slices.Values(refs)))
		return err
	})
	byRef := make(map[string]driver.State, len(got))
	for _, s := range got {
		if _, twice := byRef[s.Ref]; twice {
			e.Errorf("%s has two states", s.Ref)
		}
		byRef[s.Ref] = s
	}
	return byRef, err
}

// List returns all refs of a project, including tombstones.
func (e *Env) List(project string) []driver.Ref {
	e.Helper()
	page, err := e.A.List(e.Context(), driver.RefQuery{Project: project, Deleted: true, Limit: 100_000})
	e.Must(err)
	return page.Refs
}

// WantRefs checks everything that the row's project holds, including tombstones.
func (e *Env) WantRefs(want map[string]driver.Value) {
	e.Helper()
	if got := ValuesOf(e.List(e.Project)); !maps.Equal(got, want) {
		e.Errorf("the project holds %v, want %v", got, want)
	}
}

func ValuesOf(refs []driver.Ref) map[string]driver.Value {
	all := make(map[string]driver.Value)
	for _, r := range refs {
		all[r.Name] = r.Value
	}
	return all
}

// Remove is a Remove of the row's project that succeeds.
func (e *Env) Remove(r driver.RemoveRequest) (n int) {
	e.Helper()
	r.Project = e.Project
	e.Must(Retry(func() (err error) {
		n, err = e.B.Remove(e.Context(), r)
		return err
	}))
	return n
}

// PurgeTombstones is a PurgeTombstones of the row's project that succeeds.
func (e *Env) PurgeTombstones(r driver.TombstoneRequest) (n int) {
	e.Helper()
	r.Project = e.Project
	e.Must(Retry(func() (err error) {
		n, err = e.B.PurgeTombstones(e.Context(), r)
		return err
	}))
	return n
}

// WantMismatches checks that err is an ErrMismatch with exactly these details.
func (e *Env) WantMismatches(err error, want ...driver.Mismatch) {
	e.Helper()
	var mismatch *driver.MismatchError
	if !errors.As(err, &mismatch) || !errors.Is(err, driver.ErrMismatch) {
		e.Fatalf("got %v, want a *MismatchError", err)
	}
	if mismatch.Project != e.Project || !slices.Equal(mismatch.Mismatches, want) {
		e.Errorf("got mismatches %+v of %q, want %+v", mismatch.Mismatches, mismatch.Project, want)
	}
}

// WantConflicts checks that err is an ErrNameConflict with exactly these details.
func (e *Env) WantConflicts(err error, want ...driver.NameConflict) {
	e.Helper()
	var conflict *driver.NameConflictError
	if !errors.As(err, &conflict) || !errors.Is(err, driver.ErrNameConflict) {
		e.Fatalf("got %v, want a *NameConflictError", err)
	}
	if conflict.Project != e.Project || !slices.Equal(conflict.Conflicts, want) {
		e.Errorf("got conflicts %+v of %q, want %+v", conflict.Conflicts, conflict.Project, want)
	}
}
