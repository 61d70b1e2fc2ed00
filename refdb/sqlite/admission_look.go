package sqlite

import (
	"cmp"
	"context"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/internal/rules"
)

const (
	// prunedUpto is the time up to which a known change of the witness ?1 may have been pruned.
	prunedUpto = `
		SELECT CASE WHEN ?1 = '' THEN pruned_time
			ELSE min(pruned_time, (SELECT seen FROM witnesses WHERE name = ?1)) END
		FROM history_state`

	// byOperation is true for rows of an operation: their op is its ID, or begins with its ID and a
	// tab.
	byOperation = `op = k.op OR substr(op, 1, length(k.op) + 1) = k.op || char(9)`

	// missing selects the indices of those known changes ?1 that are missing. ?2 is prunedUpto.
	// Most known changes are recent, so each one is searched for from the end of its ref's history.
	missing = `
		WITH known AS (
			SELECT key AS i, value ->> 0 AS project, value ->> 1 AS ref, value ->> 2 AS op, value ->> 3 AS token, value ->> 4 AS at FROM json_each(?1)
		)
		SELECT i FROM known AS k
		WHERE (
				SELECT 1 FROM history AS h WHERE h.project = k.project AND h.ref = k.ref
				AND (` + byOperation + ` OR k.token <> 0 AND substr(op, 1, length(k.op) + 1) = k.op || '-')
				ORDER BY h.position DESC LIMIT 1) IS NULL
			AND NOT (k.token <> 0 AND EXISTS (
				SELECT 1 FROM intents AS n WHERE n.project = k.project AND n.ref = k.ref
				AND (n.nonce = k.op OR substr(n.nonce, 1, length(k.op) + 1) = k.op || char(9))))
			AND NOT EXISTS (SELECT 1 FROM lost AS l WHERE l.project = k.project AND l.ref = k.ref AND l.op = k.op AND l.fate <> '')
			AND NOT coalesce(k.at <= ?2, 0)
		ORDER BY i`

	lostColumns = `project, ref, op, old, new, owner, asked_by, token, move, at, witness, fate, reported`

	// recordLost contains rules.Tells in SQL.
	recordLost = `
		INSERT INTO lost (` + lostColumns + `) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
		ON CONFLICT (project, ref, op) DO UPDATE SET move = excluded.move
		WHERE fate = '' AND excluded.move <> '' AND (witness = excluded.witness OR substr(owner, 1, instr(owner || '/', '/') - 1) = excluded.witness)`

	putWitness = `INSERT OR REPLACE INTO witnesses (name, server, seen, away, without, since, word) VALUES (?, ?, ?, ?, ?, ?, ?)`

	// putWordless is putWitness for version 11 of the schema.
	putWordless = `INSERT OR REPLACE INTO witnesses (name, server, seen, away, without, since) VALUES (?, ?, ?, ?, ?, ?)`
)

// Look implements driver.AdmissionStore.
func (d *Driver) Look(ctx context.Context, witness string, known []driver.Known) (driver.Looked, error) {
	return snapshot(ctx, d, "compare with the file", func(c *conn) (driver.Looked, error) {
		missing, err := c.look(ctx, witness, known)
		return driver.Looked{Server: d.server, Missing: missing}, err
	})
}

func (c *conn) look(ctx context.Context, witness string, known []driver.Known) (lost []int, err error) {
	list := make([][5]any, len(known))
	for i, k := range known {
		list[i] = [5]any{k.Project, k.Ref, k.Op, int64(k.Token), k.At.UnixMicro()}
	}
	var upto any // NULL if nothing was pruned
	if err := c.query(ctx, func(r row) { upto = r[0] }, prunedUpto, witness); err != nil {
		return nil, err
	}
	err = c.query(ctx, func(r row) { lost = append(lost, int(r.int(0))) }, missing, asJSON(list), upto)
	return lost, err
}

// report records r; a is the state before the report.
func (t *tx) report(r driver.Report, a driver.Admission) error {
	if !t.testimonies {
		r = rules.WithoutTestimonies(r)
	}
	reported := rules.Report(a, r, timeOf(t.now))
	// The comparison depends on when the witness was last seen, so it precedes the update of its
	// row.
	lost, err := t.conn.look(context.Background(), r.Witness, reported.Missing)
	if err != nil {
		return err
	}
	for _, i := range lost {
		k := reported.Missing[i]
		_, err := t.exec(recordLost, k.Project, k.Ref, k.Op, string(k.Old), string(k.New), k.Owner, k.By, int64(k.Token), string(k.Move),
			k.At.UnixMicro(), cmp.Or(r.Witness, r.Owner), string(reported.Fate), t.now)
		if err != nil {
			return err
		}
	}
	for _, w := range reported.Witnesses {
		if err := t.putWitness(w); err != nil {
			return err
		}
	}
	if reported.Policy.Policy != "" {
		return t.setPolicy(reported.Policy)
	}
	return nil
}

func (t *tx) putWitness(w driver.Witness) error {
	statement, args := putWordless, []any{w.Name, w.Server, nullTime(w.Seen), w.Away, w.Without, w.Since.UnixMicro()}
	if t.testimonies {
		statement, args = putWitness, append(args, nullTime(w.Word))
	}
	_, err := t.exec(statement, args...)
	return err
}

// nullTime returns microseconds, or NULL for zero.
func nullTime(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return t.UnixMicro()
}

// LostChanges implements driver.AdmissionStore.
func (d *Driver) LostChanges(ctx context.Context, q driver.LostQuery) (driver.LostPage, error) {
	const doing = "list lost changes"
	var w where
	w.add("(project, ref, op) > (?, ?, ?)", q.After.Project, q.After.Ref, q.After.Op)
	if !q.Decided {
		w.add("fate = ''")
	}
	lost, last, err := page(ctx, d, doing, lostColumns+" FROM lost", w, "project, ref, op", q.Limit, func(_ int64, r row) driver.LostChange { return lostChangeOf(r) })
	return driver.LostPage{Lost: lost, Next: last.Cursor()}, err
}

// lostChangeOf reads lostColumns.
func lostChangeOf(r row) driver.LostChange {
	return driver.LostChange{
		Known: driver.Known{
			Project: r.text(0), Ref: r.text(1), Op: r.text(2), Old: driver.Value(r.text(3)), New: driver.Value(r.text(4)),
			Owner: r.text(5), By: r.text(6), Token: driver.Token(r.int(7)), Move: driver.Move(r.text(8)), At: timeOf(r.int(9)),
		},
		Witness: r.text(10), Fate: driver.Fate(r.text(11)), Reported: timeOf(r.int(12)),
	}
}
