package sqlite

import (
	"context"
	"slices"

	"github.com/globalrefdb/globalrefdb/refdb"
)

const (
	lostOf = `
		SELECT name.value
		FROM json_each(?2) AS name
		LEFT JOIN locks AS l ON l.project = ?1 AND l.ref = name.value
		WHERE l.ref IS NULL OR coalesce(l.token, 0) <> ?3 OR NOT ?4 AND coalesce(l.stale_after, 0) >= ?5
		ORDER BY name.key`

	putRef = `INSERT OR REPLACE INTO refs (project, ref, value, time, op) VALUES (?, ?, ?, ?, ?)`

	putRefs = `
		INSERT OR REPLACE INTO refs (project, ref, value, time, op)
		SELECT ?1, pair.value ->> 0, pair.value ->> 1, ?3, ?4 FROM json_each(?2) AS pair`
)

// Update implements refdb.Driver.
func (d *Driver) Update(ctx context.Context, x refdb.Transaction) error {
	var refused error
	err := d.write(ctx, "update refs", rowsOf(x), func(t *tx) (err error) {
		refused, err = t.update(x)
		return err
	})
	if err != nil {
		return err
	}
	return refused
}

// update has written nothing if it is refused.
func (t *tx) update(x refdb.Transaction) (refused, err error) {
	if x.Fence != nil {
		lost, err := t.lost(x.Project, *x.Fence)
		if err != nil || lost != nil {
			return lost, err
		}
	}
	refs := make([]string, len(x.Updates))
	for i, u := range x.Updates {
		refs[i] = u.Ref
	}
	states, err := look(t.query, t.now, x.Project, refs)
	if err != nil {
		return nil, err
	}
	passed, locked := standing(x, states)
	if locked != nil {
		return locked, nil
	}
	if mismatch := compare(x, states); mismatch != nil {
		return mismatch, nil
	}

	if len(passed) > 0 {
		if _, err := t.exec(dropLocks, x.Project, asJSON(passed)); err != nil {
			return nil, err
		}
	}
	if err := t.put(x); err != nil {
		return nil, err
	}
	if x.Fence != nil && x.Release {
		if _, err := t.exec(dropLocks, x.Project, asJSON(x.Fence.Refs)); err != nil {
			return nil, err
		}
		if x.Fence.Intents {
			_, err := t.exec(dropIntents, x.Project, asJSON(x.Fence.Refs), int64(x.Fence.Token))
			return nil, err
		}
	}
	return nil, nil
}

// put writes the new values.
func (t *tx) put(x refdb.Transaction) (err error) {
	switch len(x.Updates) {
	case 0:
	case 1:
		_, err = t.exec(putRef, x.Project, x.Updates[0].Ref, string(x.Updates[0].New), t.now, orNull(x.ID))
	default:
		pairs := make([][2]string, len(x.Updates))
		for i, u := range x.Updates {
			pairs[i] = [2]string{u.Ref, string(u.New)}
		}
		_, err = t.exec(putRefs, x.Project, asJSON(pairs), t.now, orNull(x.ID))
	}
	return err
}

// lost returns a *refdb.LostError if the lock f is no longer held.
func (t *tx) lost(project string, f refdb.Fence) (lost, err error) {
	var refs []string
	err = t.query(func(r row) { refs = append(refs, r.text(0)) }, lostOf, project, asJSON(f.Refs), int64(f.Token),
		f.Intents, microsOf(refdb.NeverStale))
	if err != nil || len(refs) == 0 {
		return nil, err
	}
	return &refdb.LostError{Project: project, Refs: refs, Reason: "gone, or another's"}, nil
}

// standing looks at the locks that x must heed, which are none of its fence. If
// one is fresh, they are in the way; if none is, it returns their refs.
func standing(x refdb.Transaction, states []state) (stale []string, locked error) {
	var holders []refdb.LockInfo
	fresh := false
	for _, s := range states {
		if s.lock == nil || x.Advisory && !s.lock.Intended() {
			continue
		}
		if x.Fence != nil {
			if _, own := slices.BinarySearch(x.Fence.Refs, s.lock.Ref); own {
				continue
			}
		}
		holders = append(holders, *s.lock)
		stale = append(stale, s.lock.Ref)
		fresh = fresh || !s.lock.Stale()
	}
	if fresh {
		return nil, &refdb.LockedError{Holders: holders}
	}
	return stale, nil
}

// compare returns a *refdb.MismatchError unless every ref holds what is expected.
func compare(x refdb.Transaction, states []state) error {
	var mismatches []refdb.Mismatch
	for i, u := range x.Updates {
		have := refdb.Unknown
		if states[i].row != nil {
			have = states[i].row.Value
		}
		switch {
		case have == u.Old:
		case have.IsAbsent() && u.Old.IsAbsent():
		case states[i].row == nil && x.Adopt:
		default:
			mismatches = append(mismatches, refdb.Mismatch{Ref: u.Ref, Want: u.Old, Have: have})
		}
	}
	if mismatches == nil {
		return nil
	}
	return &refdb.MismatchError{Project: x.Project, Mismatches: mismatches}
}

// rowsOf is how many rows x writes, or looks at.
func rowsOf(x refdb.Transaction) int {
	rows := len(x.Updates)
	if x.Fence != nil {
		rows += len(x.Fence.Refs)
	}
	return rows
}
