package suite

import (
	"crypto/rand"
	"errors"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
)

// ProjectRequest writes the row's own project, as an operation of its own.
func (e *Env) ProjectRequest(rules string, revision int64) driver.ProjectRequest {
	return driver.ProjectRequest{Project: e.Project, ID: "id", Rules: rules, Mode: "enforce", Store: "all", Revision: revision, Op: rand.Text()}
}

func (e *Env) TryPutProject(p Process, r driver.ProjectRequest) (got driver.Project, err error) {
	err = Retry(func() (err error) {
		got, err = p.PutProject(e.Context(), r)
		return err
	})
	return got, err
}

func (e *Env) PutProject(p Process, r driver.ProjectRequest) driver.Project {
	e.Helper()
	got, err := e.TryPutProject(p, r)
	e.Must(err)
	return got
}

func (e *Env) Projects(q driver.ProjectQuery) (all []driver.Project) {
	e.Helper()
	q.Limit = 1000
	for {
		page, err := e.B.Projects(e.Context(), q)
		e.Must(err)
		all = append(all, page...)
		if len(page) < q.Limit {
			return all
		}
		q.After = page[len(page)-1].Revision
	}
}

// SameProject compares everything except the age.
func SameProject(a, b driver.Project) bool {
	sameTime := a.Time.Equal(b.Time)
	a.Time, a.Age, b.Time, b.Age = time.Time{}, 0, time.Time{}, 0
	return sameTime && a == b
}

// RecordEntry records an entry whose ID sorts before those of earlier entries.
func (e *Env) RecordEntry(p Process, action string) driver.AuditEntry {
	e.Helper()
	n := 9 - len(e.Audit(driver.AuditQuery{Project: e.Project}))
	entry := driver.AuditEntry{
		Time: time.Unix(1, 0), ID: string(rune('0'+n)) + rand.Text(), Who: "o'brien@host", Origin: "192.0.2.1", Action: action,
		Project: e.Project, Detail: "refs/heads/main", Reason: "broke",
	}
	e.Must(Retry(func() (err error) {
		entry.Time, err = p.Record(e.Context(), entry)
		return err
	}))
	return entry
}

func (e *Env) Audit(q driver.AuditQuery) []driver.AuditEntry {
	e.Helper()
	if q.Limit == 0 {
		q.Limit = 1000
	}
	page, err := e.B.Audit(e.Context(), q)
	e.Must(err)
	return page.Entries
}

func SameEntry(a, b driver.AuditEntry) bool {
	same := a.Time.Equal(b.Time) && a.Ended.Equal(b.Ended)
	a.Time, a.Ended, b.Time, b.Ended = time.Time{}, time.Time{}, time.Time{}, time.Time{}
	return same && a == b
}

// Freeze freezes the row's project, which has no row yet.
func (e *Env) Freeze(f driver.Freeze) driver.Project {
	e.Helper()
	return e.PutProject(e.A, e.ProjectRequest(driver.WithFreeze(f, "ref *"), 0))
}

// IsFrozen reports whether err is the refusal of a project with that freeze.
func IsFrozen(err error, project string, f driver.Freeze) bool {
	var frozen *driver.FrozenError
	return errors.As(err, &frozen) && errors.Is(err, driver.ErrFrozen) && frozen.Project == project && frozen.Freeze == f &&
		driver.ClassOf(err) == driver.Permanent
}
