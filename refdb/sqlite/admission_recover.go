package sqlite

import (
	"context"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/internal/operation"
	"github.com/globalrefdb/globalrefdb/refdb/internal/rules"
)

const (
	leaveOut = `UPDATE witnesses SET without = 1, since = max(since + 1, ?3) WHERE name = ?1 AND server <> ?2 AND NOT away AND NOT without`

	// undecided selects all lost changes of some refs, with each ref's value and pending intent.
	undecided = `
		SELECT ` + lostColumns + `,
			(SELECT value FROM refs AS r WHERE r.project = lost.project AND r.ref = lost.ref),
			(SELECT nonce FROM intents AS i WHERE i.project = lost.project AND i.ref = lost.ref AND decision IS NULL ORDER BY token DESC LIMIT 1)
		FROM lost
		WHERE fate = '' AND (project, ref) IN (SELECT DISTINCT project, ref FROM lost WHERE fate = '' ORDER BY project, ref LIMIT ?)
		ORDER BY project, ref, op`

	// The newline tells the trigger that the operation is that of the removal.
	signRef   = `UPDATE refs SET op = ?3 || char(10), time = ?4 WHERE project = ?1 AND ref = ?2`
	removeRef = `DELETE FROM refs WHERE project = ?1 AND ref = ?2`

	endIntent     = `DELETE FROM intents WHERE project = ?1 AND ref = ?2 AND decision IS NULL`
	endIntentLock = `DELETE FROM locks WHERE project = ?1 AND ref = ?2 AND stale_after >= ?3`

	setFate = `UPDATE lost SET fate = ?4 WHERE project = ?1 AND ref = ?2 AND op = ?3`

	// endLocks deletes all locks except those of intents.
	endLocks = `DELETE FROM locks WHERE coalesce(stale_after, 0) < ?`

	// newEpoch begins an epoch before the changes that the recovery wrote: the halted file has
	// accepted no other change. Its position may once have belonged to another lost change.
	newEpoch = `
		INSERT INTO epochs (first, id, began, asked_by, reason)
		SELECT max(1 + (SELECT max(first) FROM epochs), coalesce(
			(SELECT min(position) FROM history WHERE latest >= (SELECT since FROM admission WHERE server = '')), position + 1)), ?, ?, ?, ?
		FROM history_state`

	// reachEpoch raises the position so that no later change is before the epoch that it belongs
	// to.
	reachEpoch = `UPDATE history_state SET position = max(position, (SELECT max(first) FROM epochs) - 1)`
)

// Recover implements driver.AdmissionStore.
func (d *Driver) Recover(ctx context.Context, r driver.RecoverRequest) (driver.Recovered, error) {
	return changeAdmission(ctx, d, "recover", r.Limit, func(t *tx, admitted bool) (driver.Recovered, error) {
		return t.recover(d.server, admitted, r)
	})
}

func (t *tx) recover(server string, admitted bool, r driver.RecoverRequest) (answer driver.Recovered, err error) {
	answer.Done = admitted
	answer.Admission, err = t.admissionNow(server, admitted)
	if err != nil || admitted || !r.MayBegin(answer.Admission) {
		return answer, err
	}
	if answer.Lost > 0 {
		if answer.Decided, err = t.decideLost(r.Limit); err != nil {
			return answer, err
		}
		if answer.Admission, err = t.admissionNow(server, false); err != nil || answer.Lost > 0 {
			return answer, err
		}
	}
	for _, name := range r.Without {
		if _, err := t.exec(leaveOut, name, server, t.now); err != nil {
			return answer, err
		}
	}
	if err := t.beginEpoch(server, r); err != nil {
		return answer, err
	}
	answer.Done = true
	answer.Admission, err = t.admissionNow(server, true)
	return answer, err
}

// beginEpoch ends the locks, raises the tokens and admits the server.
func (t *tx) beginEpoch(server string, r driver.RecoverRequest) error {
	if _, err := t.exec(endLocks, microsOf(driver.NeverStale)); err != nil {
		return err
	}
	if err := t.readMark(); err != nil {
		return err
	}
	*t.mark = max(*t.mark, t.now)
	if _, err := t.exec(newEpoch, r.Epoch, t.now, r.By, r.Reason); err != nil {
		return err
	}
	if _, err := t.exec(reachEpoch); err != nil {
		return err
	}
	return t.admit(server)
}

// decideLost decides about lost changes of at most limit refs.
func (t *tx) decideLost(limit int) (decided []driver.LostChange, err error) {
	var refs rules.LostRefs
	err = t.query(func(r row) {
		refs.Add(lostChangeOf(r), rules.LostRef{Value: driver.Value(r.text(13)), Intent: operation.ID(r.text(14))})
	}, undecided, int64(limit))
	if err != nil {
		return nil, err
	}
	for _, ref := range refs {
		verdict := ref.Decide()
		if verdict.Again != nil {
			if err := t.rewrite(*verdict.Again, verdict.Origin()); err != nil {
				return nil, err
			}
		}
		if verdict.EndIntent {
			if err := t.endIntent(ref.Project, ref.Ref); err != nil {
				return nil, err
			}
		}
		for _, l := range verdict.Decided {
			if _, err := t.exec(setFate, l.Project, l.Ref, l.Op, string(l.Fate)); err != nil {
				return nil, err
			}
		}
		decided = append(decided, verdict.Decided...)
	}
	return decided, nil
}

// rewrite makes a lost change again.
func (t *tx) rewrite(l driver.LostChange, by driver.Origin) error {
	if l.New != driver.Unknown {
		return t.put(l.Project, by, []driver.Update{{Ref: l.Ref, Old: l.Old, New: l.New}})
	}
	if _, err := t.exec(signRef, l.Project, l.Ref, operation.Text(by), t.now); err != nil {
		return err
	}
	_, err := t.exec(removeRef, l.Project, l.Ref)
	return err
}

// endIntent ends the intent on a ref, and its lock.
func (t *tx) endIntent(project, ref string) error {
	if _, err := t.exec(endIntent, project, ref); err != nil {
		return err
	}
	_, err := t.exec(endIntentLock, project, ref, microsOf(driver.NeverStale))
	return err
}
