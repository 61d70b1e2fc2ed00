package spanner

import (
	"context"
	"slices"
	"strings"

	"cloud.google.com/go/spanner"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/internal/rules"
)

// zeros are the values of deleted refs.
var zeros = []string{string(driver.Deleted), string(driver.Deleted256)}

// List implements driver.RefStore.
//
// Spanner orders STRING by code points, which in UTF-8 is the order of bytes. It reads STARTS_WITH
// and the other conditions as one range of the primary key.
func (d *Driver) List(ctx context.Context, q driver.RefQuery) (driver.RefPage, error) {
	s := spanner.Statement{
		SQL:    `SELECT ref, value, time, op FROM refs WHERE project = @project AND ref > @after`,
		Params: map[string]any{"project": q.Project, "after": q.After},
	}
	if q.Prefix != "" {
		and(&s, `STARTS_WITH(ref, @prefix)`, "prefix", q.Prefix)
	}
	if !q.Deleted {
		and(&s, `value NOT IN UNNEST(@zeros)`, "zeros", zeros)
	}
	s.SQL += ` ORDER BY ref`
	refs, last, err := page(ctx, d, request{tag: "refdb.list", what: "list refs"}, s, q.Limit, readRef)
	return driver.RefPage{Refs: refs, Next: last.Name}, err
}

// and adds a condition with a parameter to the last clause of a query.
func and(s *spanner.Statement, condition, name string, value any) {
	s.SQL += ` AND ` + condition
	s.Params[name] = value
}

// andFilter selects rows by project, ref and owner. The name of a site selects all processes of the
// site, and "" selects all rows.
func andFilter(s *spanner.Statement, project, ref, owner string) {
	if project != "" {
		and(s, `project = @project`, "project", project)
	}
	if ref != "" {
		and(s, `ref = @ref`, "ref", ref)
	}
	if owner != "" {
		and(s, `(owner = @owner OR STARTS_WITH(owner, CONCAT(@owner, '/')))`, "owner", owner)
	}
}

// page runs a strong query for at most limit rows. If the page is full, it also returns its last
// row, after which there may be more.
func page[T any](ctx context.Context, d *Driver, r request, s spanner.Statement, limit int, rowOf func(*spanner.Row) (T, error)) (rows []T, last T, err error) {
	s.SQL += ` LIMIT @limit`
	s.Params["limit"] = int64(limit)
	rows, err = readRows(ctx, d, r, rowOf, r.query(s))
	if n := len(rows); n > 0 && n == limit {
		last = rows[n-1]
	}
	return rows, last, err
}

// Both statements group by the first column of the key: Spanner counts rows as it reads them, in
// order, up to the last project of the page.
const (
	projectRefsSQL = `
SELECT project, COUNTIF(value NOT IN UNNEST(@zeros)), COUNTIF(value IN UNNEST(@zeros)), 0, MAX(time)
FROM refs WHERE project > @after GROUP BY project ORDER BY project LIMIT @limit`

	projectLocksSQL = `
SELECT project, 0, 0, COUNT(*), CAST(NULL AS TIMESTAMP)
FROM locks WHERE project > @after AND NOT STARTS_WITH(project, @markers) GROUP BY project ORDER BY project LIMIT @limit`
)

// Summaries implements driver.RefStore. It merges the first projects of both tables.
func (d *Driver) Summaries(ctx context.Context, q driver.SummaryQuery) (driver.SummaryPage, error) {
	r := request{tag: "refdb.projects", what: "list projects"}
	params := map[string]any{"after": q.After, "limit": int64(q.Limit), "zeros": zeros, "markers": driver.ReclaimPrefix}
	found, err := readRows(ctx, d, r, readProject,
		r.query(spanner.Statement{SQL: projectRefsSQL, Params: params}), r.query(spanner.Statement{SQL: projectLocksSQL, Params: params}))
	if err != nil {
		return driver.SummaryPage{}, err
	}
	slices.SortStableFunc(found, func(a, b driver.ProjectSummary) int { return strings.Compare(a.Name, b.Name) })
	var page driver.SummaryPage
	for _, p := range found {
		if n := len(page.Summaries); n > 0 && page.Summaries[n-1].Name == p.Name {
			page.Summaries[n-1].Locks = p.Locks // the summary of the project's refs came first
			continue
		}
		page.Summaries = append(page.Summaries, p)
	}
	page.Summaries = page.Summaries[:min(len(page.Summaries), q.Limit)]
	if n := len(page.Summaries); n > 0 && n == q.Limit {
		page.Next = page.Summaries[n-1].Name
	}
	return page, nil
}

func readProject(r *spanner.Row) (driver.ProjectSummary, error) {
	var p driver.ProjectSummary
	var refs, deleted, locks int64
	var changed spanner.NullTime
	err := r.Columns(&p.Name, &refs, &deleted, &locks, &changed)
	p.Refs, p.Deleted, p.Locks = int(refs), int(deleted), int(locks)
	if changed.Valid {
		p.Changed = changed.Time.UTC()
	}
	return p, err
}

// Get implements driver.RefStore. It reads by keys.
func (d *Driver) Get(ctx context.Context, project string, refs []string) ([]driver.Ref, error) {
	var parts []part
	for chunk := range chunks(refs, func(ref string) int { return len(project) + len(ref) + 32 }) {
		keys := make([]spanner.Key, len(chunk))
		for i, ref := range chunk {
			keys[i] = spanner.Key{project, ref}
		}
		parts = append(parts, func(ctx context.Context, txn *spanner.ReadOnlyTransaction) *spanner.RowIterator {
			return txn.ReadWithOptions(ctx, "refs", spanner.KeySetFromKeys(keys...), []string{"ref", "value", "time", "op"},
				&spanner.ReadOptions{RequestTag: "refdb.get"})
		})
	}
	return readRows(ctx, d, request{what: "read refs"}, readRef, parts...)
}

func readRef(r *spanner.Row) (driver.Ref, error) {
	var name string
	var row refRow
	err := r.Columns(append([]any{&name}, row.columns()...)...)
	return row.ref(name), err
}

// States implements driver.RefStore. It reads by keys.
func (d *Driver) States(ctx context.Context, project string, refs []string) ([]driver.State, error) {
	r := request{tag: "refdb.states", what: "read refs and locks"}
	if err := d.requireAdmission(r); err != nil {
		return nil, err
	}
	var parts []part
	for chunk := range chunks(stateKeys(refs), key.bytes) {
		s := stateStatement(project)
		s.Params["keys"] = chunk
		parts = append(parts, r.query(s))
	}
	found, err := readRows(ctx, d, r, func(row *spanner.Row) (state, error) { return readState(project, row) }, parts...)
	return rules.States(rowsOf(found)), err
}
