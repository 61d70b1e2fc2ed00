package projects_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/memory"
	"github.com/globalrefdb/globalrefdb/refdb/projects"
)

func handle(t *testing.T, d driver.Driver) *projects.Handle {
	t.Helper()
	db, err := refdb.New(d, refdb.Options{Site: "eu-1"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db.Projects()
}

func put(t *testing.T, h *projects.Handle, p driver.Project) driver.Project {
	t.Helper()
	row, err := h.Put(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	return row
}

func TestRowsComeInTheOrderOfTheirChanges(t *testing.T) {
	h := handle(t, memory.New().Open())
	b := put(t, h, driver.Project{Project: "b", ID: "1", Rules: "refs/*", Mode: "log"})
	a := put(t, h, driver.Project{Project: "a", ID: "2", Rules: "refs/*", Mode: "log"})
	b.Mode = "enforce"
	b = put(t, h, b)
	names := func(revision int64) (names []string) {
		t.Helper()
		rows, err := h.After(t.Context(), revision)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range rows {
			names = append(names, r.Project+" "+r.Mode)
		}
		return names
	}
	for revision, want := range map[int64]string{0: "[a log b enforce]", a.Revision: "[b enforce]", b.Revision: "[]"} {
		if got := fmt.Sprint(names(revision)); got != want {
			t.Errorf("after revision %d: %s, want %s", revision, got, want)
		}
	}
}

func TestMoreRowsThanAPageAreReadToTheEnd(t *testing.T) {
	h := handle(t, memory.New().Open())
	const n = 1001 // a page has 1000
	for i := range n {
		put(t, h, driver.Project{Project: fmt.Sprint("p", i), ID: "1", Rules: "refs/*", Mode: "log"})
	}
	rows, err := h.After(t.Context(), 0)
	if len(rows) != n || err != nil || rows[n-1].Project != fmt.Sprint("p", n-1) {
		t.Errorf("got %d rows, %v, want %d", len(rows), err, n)
	}
}

func TestARowOfAnotherRevisionIsNotChanged(t *testing.T) {
	h := handle(t, memory.New().Open())
	row := put(t, h, driver.Project{Project: "p", ID: "1", Rules: "refs/*", Mode: "log"})
	for name, revision := range map[string]int64{"none": 0, "an earlier one": row.Revision - 1} {
		changed := row
		changed.Revision, changed.Mode, changed.ID = revision, "enforce", "2"
		var conflict *driver.ProjectChangedError
		if _, err := h.Put(t.Context(), changed); !errors.As(err, &conflict) || conflict.Have != row.Revision {
			t.Errorf("revision %s: %v, want a *driver.ProjectChangedError", name, err)
		}
	}
	got, ok, err := h.Get(t.Context(), "p")
	if !ok || err != nil || got.Mode != "log" || got.Revision != row.Revision {
		t.Errorf("the row is %+v, %v, %v", got, ok, err)
	}
	if _, ok, err := h.Get(t.Context(), "q"); ok || err != nil {
		t.Errorf("a project without a row: %v, %v", ok, err)
	}
}

func TestAnInvalidRowIsRefused(t *testing.T) {
	h := handle(t, memory.New().Open())
	row := driver.Project{Project: "p", ID: "1", Rules: "refs/*", Mode: "log"}
	for name, change := range map[string]func(*driver.Project){
		"without a name":    func(p *driver.Project) { p.Project = "" },
		"without rules":     func(p *driver.Project) { p.Rules = "" },
		"a mode with a NUL": func(p *driver.Project) { p.Mode = "log\x00" },
		"a store not UTF-8": func(p *driver.Project) { p.Store = "\xff" },
	} {
		bad := row
		change(&bad)
		if _, err := h.Put(t.Context(), bad); !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("%s: %v, want ErrInvalid", name, err)
		}
	}
	if _, _, err := h.Get(t.Context(), ""); !errors.Is(err, driver.ErrInvalid) {
		t.Errorf("read without a name: %v, want ErrInvalid", err)
	}
	if rows, err := h.After(t.Context(), 0); len(rows) != 0 || err != nil {
		t.Errorf("written were %+v, %v", rows, err)
	}
}

// A forgetful driver loses the replies to the first writes of a project's row.
type forgetful struct {
	driver.Driver
	loses int
}

func (d *forgetful) PutProject(ctx context.Context, r driver.ProjectRequest) (driver.Project, error) {
	row, err := d.Driver.PutProject(ctx, r)
	if err == nil && d.loses > 0 {
		d.loses--
		return driver.Project{}, driver.ErrOutcomeUnknown
	}
	return row, err
}

func TestALostReplyIsFoundByTheRequestsOwnID(t *testing.T) {
	d := &forgetful{Driver: memory.New().Open()}
	h := handle(t, d)
	row := put(t, h, driver.Project{Project: "p", ID: "1", Rules: "refs/*", Mode: "log"})
	d.loses = 1
	row.Mode = "enforce"
	again, err := h.Put(t.Context(), row)
	if err != nil || again.Mode != "enforce" || again.Revision != row.Revision+1 {
		t.Errorf("got %+v, %v, want the row that the first request wrote", again, err)
	}
}
