package sqlite

import (
	"context"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/internal/rules"
)

const (
	lostOf = `
		SELECT name.value
		FROM json_each(?2) AS name
		LEFT JOIN locks AS l ON l.project = ?1 AND l.ref = name.value
		WHERE l.ref IS NULL OR l.owner <> ?3 OR coalesce(l.token, 0) <> ?4 OR (coalesce(l.stale_after, 0) >= ?5) <> ?6
		ORDER BY name.key`

	// OR REPLACE would delete the old row, and no trigger would see it.
	overwrite = ` ON CONFLICT (project, ref) DO UPDATE SET value = excluded.value, time = excluded.time, op = excluded.op`

	putRef = `INSERT INTO refs (project, ref, value, time, op) VALUES (?, ?, ?, ?, ?)` + overwrite

	// WHERE true tells the parser that no JOIN ... ON follows.
	putRefs = `
		INSERT INTO refs (project, ref, value, time, op)
		SELECT ?1, pair.value ->> 0, pair.value ->> 1, ?3, ?4 FROM json_each(?2) AS pair WHERE true` + overwrite
)

// Update implements driver.RefStore.
func (d *Driver) Update(ctx context.Context, r driver.UpdateRequest) error {
	rows := len(r.Updates)
	if r.Fence != nil {
		rows += len(r.Fence.Refs)
	}
	return d.decide(ctx, "update refs", rows, func(t *tx) (refused, err error) { return t.update(r) })
}

// update writes nothing if it refuses r.
func (t *tx) update(r driver.UpdateRequest) (refused, err error) {
	refs := rules.RefsOf(r.Updates)
	var missing []string
	var stored string
	var rows, around []rules.Row
	if r.Fence != nil {
		missing, err = t.missing(r.Project, *r.Fence, rules.Lease)
	}
	if err == nil && len(missing) == 0 {
		rows, stored, err = t.ruledRows(r.Project, refs)
	}
	if err == nil && len(missing) == 0 && r.GitNames {
		around, err = t.around(r.Project, r.Updates)
	}
	if err != nil {
		return nil, err
	}
	after, refused := rules.Update(r, stored, missing, rows, around, timeOf(t.now))
	if refused != nil {
		return refused, nil
	}

	if err := t.apply(r.Project, refs, after); err != nil {
		return nil, err
	}
	if err := t.put(r.Project, r.Origin, r.Updates); err != nil {
		return nil, err
	}
	if r.Fence != nil && r.Fence.Release {
		return nil, t.end(r.Project, r.Fence.Refs, r.Fence.Next)
	}
	return nil, nil
}

// put writes the new values. Triggers record the changes in the history.
func (t *tx) put(project string, by driver.Origin, updates []driver.Update) (err error) {
	switch len(updates) {
	case 0:
	case 1:
		_, err = t.exec(putRef, project, updates[0].Ref, string(updates[0].New), t.now, opOf(by))
	default:
		pairs := make([][2]string, len(updates))
		for i, u := range updates {
			pairs[i] = [2]string{u.Ref, string(u.New)}
		}
		_, err = t.exec(putRefs, project, asJSON(pairs), t.now, opOf(by))
	}
	return err
}

// missing is rules.Missing in SQL: its query returns no rows unless some locks are missing.
func (t *tx) missing(project string, f driver.Fence, k rules.Kind) (refs []string, err error) {
	err = t.query(func(r row) { refs = append(refs, r.text(0)) }, lostOf, project, asJSON(f.Refs), f.Owner, int64(f.Token),
		microsOf(driver.NeverStale), k == rules.Intent)
	return refs, err
}
