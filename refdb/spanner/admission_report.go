package spanner

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"cloud.google.com/go/spanner"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/internal/rules"
)

// maxReported is the maximum number of lost changes that a transaction records: each has 13
// columns.
const maxReported = 4000

const (
	prunedUptoSQL = `SELECT begun, pruned, (SELECT seen FROM witnesses WHERE name = @witness) FROM history_state`

	// missingSQL selects the indices of the missing changes. Most known changes are recent, so each
	// one is searched for from the end of its ref's history: a ref may have moved a million times.
	missingSQL = `
SELECT k.n FROM UNNEST(@keys) AS k
WHERE (
    SELECT h.position FROM history AS h WHERE h.project = k.project AND h.ref = k.ref
      AND (h.op = k.op OR k.token <> 0 AND STARTS_WITH(h.op, CONCAT(k.op, '-')))
    ORDER BY h.position DESC LIMIT 1) IS NULL
  AND NOT (k.token <> 0 AND EXISTS (
    SELECT 1 FROM intents AS i WHERE i.project = k.project AND i.ref = k.ref AND (i.nonce = k.op OR STARTS_WITH(i.nonce, CONCAT(k.op, '\t')))))
  AND NOT EXISTS (SELECT 1 FROM lost AS l WHERE l.project = k.project AND l.ref = k.ref AND l.op = k.op AND l.fate <> '')
  AND NOT IFNULL(k.made <= @upto, FALSE)`

	recordedSQL = `
SELECT l.project, l.ref, l.op, l.owner, l.fate, l.witness
FROM UNNEST(@keys) AS k
JOIN@{JOIN_METHOD=APPLY_JOIN} lost AS l ON l.project = k.project AND l.ref = k.ref AND l.op = k.op`

	lostSQL = `project, ref, op, old_value, new_value, owner, asked_by, token, move, made, witness, fate, reported`

	lostPageSQL = `
SELECT ` + lostSQL + ` FROM lost
WHERE (project > @project OR project = @project AND (ref > @ref OR ref = @ref AND op > @op)) AND (@decided OR fate = '')
ORDER BY project, ref, op LIMIT @limit`
)

var (
	lostColumns = strings.Split(lostSQL, ", ")
	moveColumns = []string{"project", "ref", "op", "move"}
)

// A knownKey is a known change; N is its index in the list.
type knownKey struct {
	N       int64     `spanner:"n"`
	Project string    `spanner:"project"`
	Ref     string    `spanner:"ref"`
	Op      string    `spanner:"op"`
	Token   int64     `spanner:"token"`
	Made    time.Time `spanner:"made"`
}

func (k knownKey) bytes() int { return len(k.Project) + len(k.Ref) + len(k.Op) + 64 }

func knownKeys(known []driver.Known) []knownKey {
	keys := make([]knownKey, len(known))
	for n, k := range known {
		keys[n] = knownKey{int64(n), k.Project, k.Ref, k.Op, int64(k.Token), instant(positionOf(k.At))}
	}
	return keys
}

// Look implements driver.AdmissionStore.
func (d *Driver) Look(ctx context.Context, witness string, known []driver.Known) (driver.Looked, error) {
	r := request{tag: "refdb.look", what: "compare with the database"}
	return snapshot(ctx, d, r, func(ctx context.Context, query queryFunc) (driver.Looked, error) {
		missing, err := look(ctx, query, witness, known)
		return driver.Looked{Server: d.name, Missing: missing}, err
	})
}

// look returns the indices of the missing changes.
func look(ctx context.Context, query queryFunc, witness string, known []driver.Known) (missing []int, err error) {
	if len(known) == 0 {
		return nil, nil
	}
	upto, err := prunedUpto(ctx, query, witness)
	if err != nil {
		return nil, err
	}
	for keys := range chunks(knownKeys(known), knownKey.bytes) {
		s := spanner.Statement{SQL: missingSQL, Params: map[string]any{"keys": keys, "upto": upto}}
		err := query(ctx, s, func(row *spanner.Row) error {
			var n int64
			err := row.Columns(&n)
			missing = append(missing, int(n))
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	slices.Sort(missing)
	return missing, nil
}

// prunedUpto returns the time up to which a known change may have been pruned, NULL for none.
func prunedUpto(ctx context.Context, query queryFunc, witness string) (upto spanner.NullTime, err error) {
	s := spanner.Statement{SQL: prunedUptoSQL, Params: map[string]any{"witness": witness}}
	err = query(ctx, s, func(row *spanner.Row) error {
		var begun, pruned time.Time
		var seen spanner.NullTime
		err := row.Columns(&begun, &pruned, &seen)
		upto = spanner.NullTime{Time: pruned.Add(-time.Microsecond), Valid: pruned.After(begun)}
		if witness != "" && (!seen.Valid || seen.Time.Before(upto.Time)) {
			upto = seen
		}
		return err
	})
	return upto, err
}

// Report implements driver.AdmissionStore. A long report is split into parts: all parts before the
// last are open, so the witness decides about others only with the last one.
func (d *Driver) Report(ctx context.Context, r driver.Report) (driver.Admission, error) {
	for len(r.Missing) > maxReported {
		part := r
		part.Missing, part.Open = r.Missing[:maxReported], true
		if _, err := d.reportOnce(ctx, part); err != nil {
			return driver.Admission{}, err
		}
		r.Missing = r.Missing[maxReported:]
	}
	return d.reportOnce(ctx, r)
}

func (d *Driver) reportOnce(ctx context.Context, r driver.Report) (driver.Admission, error) {
	q := request{tag: "refdb.report", what: "report a comparison with the database"}
	if r.Server != d.name {
		return driver.Admission{}, failed(q.what, errReplaced)
	}
	return changeAdmission(ctx, d, q, func(ctx context.Context, t *transaction, b *batch, row admissionRow) (driver.Admission, error) {
		a, err := d.admissionNow(ctx, row, t.query)
		if err != nil {
			return a, err
		}
		r, withWord := r, d.hasTestimonies()
		if !withWord {
			r = rules.WithoutTestimonies(r)
		}
		reported := rules.Report(a, r, row.now)
		missing, err := look(ctx, t.query, r.Witness, reported.Missing)
		if err != nil {
			return a, err
		}
		lost := make([]driver.Known, len(missing))
		for n, i := range missing {
			lost[n] = reported.Missing[i]
		}
		recorded, err := lostAmong(ctx, t, lost)
		if err != nil {
			return a, err
		}
		b.recordLost(cmp.Or(r.Witness, r.Owner), reported.Fate, lost, &a, recorded)
		b.putReported(reported, &a, withWord)
		a.Halted = a.Lost > 0
		next := rules.DecideAdmission(row.server, a)
		if a.Admitted = next == d.name; next != row.server {
			b.admit(next)
		}
		return a, nil
	})
}

// lostAmong reads and locks the rows of those changes that are recorded as lost.
func lostAmong(ctx context.Context, t *transaction, known []driver.Known) (map[driver.LostCursor]driver.LostChange, error) {
	recorded := make(map[driver.LostCursor]driver.LostChange)
	s := spanner.Statement{SQL: recordedSQL, Params: make(map[string]any)}
	err := queryKeys(ctx, t, s, knownKeys(known), knownKey.bytes, func(row *spanner.Row) error {
		var l driver.LostChange
		err := row.Columns(&l.Project, &l.Ref, &l.Op, &l.Owner, (*string)(&l.Fate), &l.Witness)
		recorded[l.Cursor()] = l
		return err
	})
	return recorded, err
}

// putReported writes what a report changes about witnesses and the policy, and updates a
// accordingly.
func (b *batch) putReported(reported rules.Reported, a *driver.Admission, withWord bool) {
	witnesses := make(map[string]driver.Witness)
	for _, w := range slices.Concat(a.Witnesses, reported.Witnesses) {
		witnesses[w.Name] = w
	}
	for _, w := range reported.Witnesses {
		b.putWitness(w, withWord)
	}
	a.Witnesses = nil
	for _, name := range slices.Sorted(maps.Keys(witnesses)) {
		a.Witnesses = append(a.Witnesses, witnesses[name])
	}
	if reported.Policy.Policy != "" {
		a.Policy = reported.Policy
		b.setPolicy(a.Policy)
	}
}

// recordLost records the changes that a reporter misses.
func (b *batch) recordLost(reporter string, fate driver.Fate, missing []driver.Known, a *driver.Admission, recorded map[driver.LostCursor]driver.LostChange) {
	for _, k := range missing {
		was, known := recorded[k.Cursor()]
		switch {
		case !known:
			b.add(len(lostColumns), spanner.Insert("lost", lostColumns, []any{k.Project, k.Ref, k.Op, string(k.Old), string(k.New), k.Owner, k.By,
				int64(k.Token), string(k.Move), instant(positionOf(k.At)), reporter, string(fate), spanner.CommitTimestamp}))
			recorded[k.Cursor()] = driver.LostChange{Known: k, Witness: reporter, Fate: fate}
			if fate == driver.Undecided {
				a.Lost++
			}
		case rules.Tells(was, reporter, k.Move):
			b.add(len(moveColumns), spanner.Update("lost", moveColumns, []any{k.Project, k.Ref, k.Op, string(k.Move)}))
		}
	}
}

// putWitness writes the row of a witness. withWord reports whether the table has the column word.
func (b *batch) putWitness(w driver.Witness, withWord bool) {
	columns, values := witnessColumns, []any{w.Name, w.Server, nullTime(w.Seen), w.Away, w.Without, w.Since, nullTime(w.Word)}
	if !withWord {
		columns, values = columns[:len(columns)-1], values[:len(values)-1]
	}
	b.add(len(columns), spanner.InsertOrUpdate("witnesses", columns, values))
}

// LostChanges implements driver.AdmissionStore.
func (d *Driver) LostChanges(ctx context.Context, q driver.LostQuery) (p driver.LostPage, err error) {
	r := request{tag: "refdb.lost", what: "list lost changes"}
	p.Lost, err = readRows(ctx, d, r, func(row *spanner.Row) (driver.LostChange, error) { return readLost(row) }, r.query(spanner.Statement{SQL: lostPageSQL, Params: map[string]any{
		"project": q.After.Project, "ref": q.After.Ref, "op": q.After.Op, "decided": q.Decided, "limit": int64(q.Limit),
	}}))
	if err != nil {
		return driver.LostPage{}, err
	}
	if n := len(p.Lost); n > 0 && n == q.Limit {
		p.Next = p.Lost[n-1].Cursor()
	}
	return p, nil
}

// readLost reads lostSQL, and the columns after it into more.
func readLost(row *spanner.Row, more ...any) (l driver.LostChange, err error) {
	var token int64
	err = row.Columns(append([]any{&l.Project, &l.Ref, &l.Op, (*string)(&l.Old), (*string)(&l.New), &l.Owner, &l.By, &token,
		(*string)(&l.Move), &l.At, &l.Witness, (*string)(&l.Fate), &l.Reported}, more...)...)
	l.Token, l.At, l.Reported = driver.Token(token), l.At.UTC(), l.Reported.UTC()
	return l, err
}
