package postgres

import (
	"context"
	"strings"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/globalrefdb/globalrefdb/refdb"
)

// Values of a ref that is not there. The empty one is nothing that this package writes.
const (
	zeroIDs = `('` + string(refdb.Deleted) + `', '` + string(refdb.Deleted256) + `')`
	absent  = `('', '` + string(refdb.Deleted) + `', '` + string(refdb.Deleted256) + `')`
)

// refColumns are the columns of refs beside the key, all of them NULL if there is no row.
type refColumns struct {
	value pgtype.Text
	time  pgtype.Timestamptz
	op    pgtype.Text
}

func (c refColumns) ref(name string) refdb.Ref {
	r := refdb.Ref{Name: name, Value: refdb.Value(c.value.String), Op: c.op.String}
	if c.time.Valid {
		r.Time = c.time.Time.UTC()
	}
	return r
}

// refs are read from rows of name, value, time and op.
type refs []refdb.Ref

func (r *refs) read(rows pgx.Rows) error {
	*r = nil
	for rows.Next() {
		var name string
		var c refColumns
		if err := rows.Scan(&name, &c.value, &c.time, &c.op); err != nil {
			return err
		}
		*r = append(*r, c.ref(name))
	}
	return rows.Err()
}

// refOfAsked is the row of asked.ref of project $1, and where it is stored.
const refOfAsked = `SELECT *, ctid AS tid FROM refs WHERE project = $1 AND ref = asked.ref LIMIT 1`

const getSQL = `
SELECT refs.ref, value, time, op FROM unnest($2::text[]) AS asked (ref), LATERAL (` + refOfAsked + `) AS refs`

// Get reads the refs in one statement, so that all are as of one moment.
func (d *Driver) Get(ctx context.Context, project string, names []string) ([]refdb.Ref, error) {
	var found refs
	err := d.do(ctx, roundTrip{what: "get refs"}.then(getSQL, found.read, project, names))
	return found, err
}

// A page starts at the index's entry for its first ref.
const (
	listSQL = `
SELECT ref, value, time, op FROM refs
WHERE project = $1 AND ref >= $2 AND ref > $3 AND ($4 OR value NOT IN ` + zeroIDs + `)
ORDER BY ref LIMIT $5`

	listPrefixSQL = `
SELECT ref, value, time, op FROM refs
WHERE project = $1 AND ref >= $2 AND ref < $6 AND ref > $3 AND ($4 OR value NOT IN ` + zeroIDs + `)
ORDER BY ref LIMIT $5`
)

// List reads one page.
func (d *Driver) List(ctx context.Context, q refdb.RefQuery) (page refdb.RefPage, err error) {
	sql, args := listSQL, []any{q.Project, q.Prefix, q.After, q.Deleted, q.Limit}
	if end, ok := prefixEnd(q.Prefix); ok {
		sql, args = listPrefixSQL, append(args, end)
	}
	var found refs
	err = d.do(ctx, roundTrip{what: "list refs"}.then(sql, found.read, args...))
	page.Refs = found
	if n := len(found); err == nil && n > 0 && n == q.Limit {
		page.Next = found[n-1].Name
	}
	return page, err
}

// prefixEnd returns the smallest text that is greater, by bytes, than all that
// start with prefix. Nothing is greater than the last code point.
func prefixEnd(prefix string) (end string, ok bool) {
	prefix = strings.TrimRight(prefix, string(utf8.MaxRune))
	last, size := utf8.DecodeLastRuneInString(prefix)
	if size == 0 {
		return "", false
	}
	next := last + 1
	if !utf8.ValidRune(next) { // UTF-8 has no surrogates
		next = 0xE000
	}
	return prefix[:len(prefix)-size] + string(next), true
}
