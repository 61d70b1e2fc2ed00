package refdbtest_test

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
)

func (d *connection) Projects(ctx context.Context, q driver.ProjectQuery) (rows []driver.Project, err error) {
	end, err := d.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	now := now()
	for _, p := range d.projects {
		is := q.Project == "" || p.Project == q.Project || d.bug == "projects by prefix" && strings.HasPrefix(p.Project, q.Project)
		if is && (p.Revision > q.After || d.bug == "after includes" && p.Revision == q.After) {
			p.Age = now.Sub(p.Time)
			rows = append(rows, p)
		}
	}
	slices.SortFunc(rows, func(a, b driver.Project) int {
		if d.bug == "projects by name" {
			return strings.Compare(a.Project, b.Project)
		}
		return cmp.Compare(a.Revision, b.Revision)
	})
	return rows[:min(len(rows), q.Limit)], nil
}

func (d *connection) PutProject(ctx context.Context, r driver.ProjectRequest) (driver.Project, error) {
	end, err := d.beginWrite(ctx, "PutProject")
	if err != nil {
		return driver.Project{}, err
	}
	defer end()
	old := d.projects[r.Project]
	if old.Revision > 0 && old.Op == r.Op {
		switch d.bug {
		case "a write again is a change":
			return driver.Project{}, &driver.ProjectChangedError{Project: r.Project, Want: r.Revision, Have: old.Revision}
		case "a lost write is written again":
		default:
			return old, nil
		}
	} else if old.Revision != r.Revision && d.bug != "any revision is changed" && !(d.bug == "creates over a row" && r.Revision == 0) {
		return driver.Project{}, &driver.ProjectChangedError{Project: r.Project, Want: r.Revision, Have: old.Revision}
	}
	last := old.Revision
	if d.bug != "revisions per project" {
		for _, p := range d.projects {
			last = max(last, p.Revision)
		}
	}
	d.pause("revisions after looking")
	if d.bug == "revisions before their turn" {
		last = max(last, d.reserved)
		d.reserved = last + 1
		if d.reserved%2 == 0 {
			d.pause(d.bug)
		}
		if have := d.projects[r.Project].Revision; have != r.Revision {
			return driver.Project{}, &driver.ProjectChangedError{Project: r.Project, Want: r.Revision, Have: have}
		}
	}
	p := driver.Project{Project: r.Project, ID: r.ID, Rules: r.Rules, Mode: r.Mode, Store: r.Store, Revision: last + 1, Time: now(), Op: r.Op}
	if d.bug == "what is stored is forgotten" {
		p.Store = ""
	}
	d.projects[r.Project] = p
	return p, nil
}

func (d *connection) Record(ctx context.Context, e driver.AuditEntry) (time.Time, error) {
	end, err := d.begin(ctx)
	if err != nil {
		return time.Time{}, err
	}
	defer end()
	if d.bug != "a caller's time" {
		e.Time = now()
	}
	d.audit = append(d.audit, e)
	return e.Time, nil
}

func (d *connection) Conclude(ctx context.Context, c driver.AuditCursor, outcome string) (bool, error) {
	end, err := d.begin(ctx)
	if err != nil {
		return false, err
	}
	defer end()
	there := d.bug == "nothing is missing from the audit"
	for i, e := range d.audit {
		if !e.Time.Equal(c.Time) || e.ID != c.ID && d.bug != "concludes by time" {
			continue
		}
		if there = true; e.Ended.IsZero() || d.bug == "the last outcome stands" {
			d.audit[i].Outcome, d.audit[i].Ended = outcome, now()
		}
	}
	return there, nil
}

func (d *connection) Audit(ctx context.Context, q driver.AuditQuery) (page driver.AuditPage, err error) {
	end, err := d.begin(ctx)
	if err != nil {
		return page, err
	}
	defer end()
	compare := func(a, b driver.AuditCursor) int {
		return cmp.Or(a.Time.Compare(b.Time), strings.Compare(a.ID, b.ID))
	}
	all := slices.Clone(d.audit)
	slices.SortFunc(all, func(a, b driver.AuditEntry) int {
		if d.bug == "entries without order" {
			return strings.Compare(a.ID, b.ID)
		}
		return compare(a.Cursor(), b.Cursor())
	})
	for _, e := range all {
		late := !e.Time.Before(q.Since) && !(d.bug == "since excludes" && e.Time.Equal(q.Since))
		past := compare(e.Cursor(), q.After)
		if (q.Project == "" || e.Project == q.Project || d.bug == "entries of all projects") && late &&
			(past > 0 || d.bug == "a page starts with the last" && past == 0) && len(page.Entries) < q.Limit {
			page.Entries = append(page.Entries, e)
		}
	}
	if n := len(page.Entries); n > 0 && n == q.Limit {
		page.Next = page.Entries[n-1].Cursor()
	}
	return page, nil
}

// frozen returns the refusal of what moves refs of a frozen project.
func (d *connection) frozen(project string) error {
	for _, p := range d.projects {
		is := p.Project == project || d.bug == "freezes by prefix" && strings.HasPrefix(project, p.Project)
		f, _, frozen := driver.CutFreeze(p.Rules)
		switch {
		case !is:
		case d.bug == "unreadable freezes freeze nothing" && !strings.HasPrefix(p.Rules, "frozen {"):
		case frozen && d.bug == "a freeze has no reason":
			return driver.ErrFrozen
		case frozen:
			return fmt.Errorf("moving refs: %w", &driver.FrozenError{Project: project, Freeze: f})
		case d.bug == "rules that resemble a freeze freeze" && strings.HasPrefix(strings.ToLower(p.Rules), "frozen"):
			return &driver.FrozenError{Project: project}
		case d.bug == "freezes are looked for in all rules" && strings.Contains(p.Rules, "frozen "):
			return &driver.FrozenError{Project: project}
		}
	}
	return nil
}
