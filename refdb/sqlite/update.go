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
		WHERE l.ref IS NULL OR l.owner <> ?3 OR coalesce(l.token, 0) <> ?4 OR (coalesce(l.stale_after, 0) >= ?5) <> ?6
		ORDER BY name.key`

	putRef = `INSERT OR REPLACE INTO refs (project, ref, value, time, op) VALUES (?, ?, ?, ?, ?)`

	putRefs = `
		INSERT OR REPLACE INTO refs (project, ref, value, time, op)
		SELECT ?1, pair.value ->> 0, pair.value ->> 1, ?3, ?4 FROM json_each(?2) AS pair`
)

// Update implements refdb.RefStore.
func (d *Driver) Update(ctx context.Context, r refdb.UpdateRequest) error {
	rows := len(r.Updates)
	if r.Fence != nil {
		rows += len(r.Fence.Refs)
	}
	return d.decide(ctx, "update refs", rows, func(t *tx) (refused, err error) { return t.update(r) })
}

func refsOf(updates []refdb.Update) []string {
	refs := make([]string, len(updates))
	for i, u := range updates {
		refs[i] = u.Ref
	}
	return refs
}

// update has written nothing if it is refused.
func (t *tx) update(r refdb.UpdateRequest) (refused, err error) {
	if r.Fence != nil {
		if lost, err := t.lost(r.Project, *r.Fence, false); err != nil || lost != nil {
			return lost, err
		}
	}
	states, err := t.look(r.Project, refsOf(r.Updates))
	if err != nil {
		return nil, err
	}
	stale, locked := standing(r, states)
	if locked != nil {
		return locked, nil
	}
	if mismatch := compare(r.Project, r.Updates, r.Adopt, states); mismatch != nil {
		return mismatch, nil
	}

	if len(stale) > 0 {
		if _, err := t.exec(dropLocks, r.Project, asJSON(stale)); err != nil {
			return nil, err
		}
	}
	if err := t.put(r.Project, r.ID, r.Updates); err != nil {
		return nil, err
	}
	if r.Fence != nil && r.Fence.Release {
		return nil, t.end(r.Project, r.Fence.Refs, r.Fence.Next)
	}
	return nil, nil
}

// put writes the new values.
func (t *tx) put(project, id string, updates []refdb.Update) (err error) {
	switch len(updates) {
	case 0:
	case 1:
		_, err = t.exec(putRef, project, updates[0].Ref, string(updates[0].New), t.now, orNull(id))
	default:
		pairs := make([][2]string, len(updates))
		for i, u := range updates {
			pairs[i] = [2]string{u.Ref, string(u.New)}
		}
		_, err = t.exec(putRefs, project, asJSON(pairs), t.now, orNull(id))
	}
	return err
}

// lost returns a *refdb.LostError if the lock f is no longer held. It has to stand
// for intents, or not to.
func (t *tx) lost(project string, f refdb.Fence, intended bool) (lost, err error) {
	var refs []string
	err = t.query(func(r row) { refs = append(refs, r.text(0)) }, lostOf, project, asJSON(f.Refs), f.Owner, int64(f.Token),
		microsOf(refdb.NeverStale), intended)
	if err != nil || len(refs) == 0 {
		return nil, err
	}
	reason := "the database has it gone, or another's"
	if intended {
		reason = "the intent was ended already"
	}
	return &refdb.LostError{Project: project, Refs: refs, Reason: reason}, nil
}

// standing looks at the locks that r must heed, which are none of its fence. If
// one is fresh, they are in the way; if none is, it returns their refs.
func standing(r refdb.UpdateRequest, states []state) (stale []string, locked error) {
	var holders []refdb.LockInfo
	fresh := false
	for _, s := range states {
		if s.lock == nil || r.Locks == refdb.AdvisoryLocks && !s.lock.Intended() {
			continue
		}
		if r.Fence != nil {
			if _, own := slices.BinarySearch(r.Fence.Refs, s.lock.Ref); own {
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

// compare returns a *refdb.MismatchError unless every ref holds what is
// expected, or is unknown and adopted.
func compare(project string, updates []refdb.Update, adopt bool, states []state) error {
	var all []refdb.Mismatch
	for i, u := range updates {
		have := refdb.Unknown
		row := states[i].row
		if row != nil {
			have = row.Value
		}
		switch {
		case have == u.Old:
		case have.IsAbsent() && u.Old.IsAbsent():
		case row == nil && adopt:
		default:
			all = append(all, refdb.Mismatch{Ref: u.Ref, Want: u.Old, Have: have})
		}
	}
	if all == nil {
		return nil
	}
	return &refdb.MismatchError{Project: project, Mismatches: all}
}
