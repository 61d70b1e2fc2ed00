package sqlite

import (
	"context"
	"strings"

	"github.com/globalrefdb/globalrefdb/refdb"
)

// List implements refdb.Driver.
func (d *Driver) List(ctx context.Context, q refdb.RefQuery) ([]refdb.Ref, error) {
	var w where
	w.add("project = ?", q.Project)
	w.prefix("ref", q.Prefix)
	if q.After != "" {
		w.add("ref > ?", q.After)
	}
	if !q.Deleted {
		w.add("value NOT IN (?, ?)", string(refdb.Deleted), string(refdb.Deleted256))
	}
	var page []refdb.Ref
	err := d.read(ctx, "list refs", func(c *conn) error {
		return c.query(ctx, func(r row) {
			page = append(page, refOf(r.text(0), r.text(1), r.int(2), r.text(3)))
		}, "SELECT ref, value, time, op FROM refs"+w.String()+" ORDER BY ref LIMIT ?", w.with(int64(q.Limit))...)
	})
	if err != nil {
		return nil, err
	}
	return page, nil
}

// where is a WHERE clause made of fixed conditions, and their arguments.
type where struct {
	conditions []string
	args       []any
}

func (w *where) add(condition string, args ...any) {
	w.conditions = append(w.conditions, condition)
	w.args = append(w.args, args...)
}

// prefix selects the texts that start with the bytes of prefix. Texts are
// compared as bytes, so they lie between it and itself with the last byte
// raised; in UTF-8 no byte is 0xFF.
func (w *where) prefix(column, prefix string) {
	if n := len(prefix); n > 0 {
		w.add(column+" >= ? AND "+column+" < ?", prefix, prefix[:n-1]+string([]byte{prefix[n-1] + 1}))
	}
}

// owner selects what is one owner's, or of any process of a site; all for "".
func (w *where) owner(name string) {
	if name != "" {
		// Between the "/" and what comes after it is whatever starts with it.
		w.add("(owner = ? OR owner >= ? AND owner < ?)", name, name+"/", name+string(rune('/'+1)))
	}
}

func (w *where) String() string {
	if len(w.conditions) == 0 {
		return ""
	}
	return " WHERE " + strings.Join(w.conditions, " AND ")
}

// with returns the arguments, and one more.
func (w *where) with(last any) []any { return append(w.args[:len(w.args):len(w.args)], last) }
