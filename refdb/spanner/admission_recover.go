package spanner

import (
	"context"
	"time"

	"cloud.google.com/go/spanner"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/internal/operation"
	"github.com/globalrefdb/globalrefdb/refdb/internal/rules"
)

const (
	// recoveredRefs and recoveredCost limit what a step of a recovery writes, and endedLocks is how
	// many locks a step ends: a commit has room for maxMutations.
	recoveredRefs = 500
	recoveredCost = maxMutations - 10_000
	endedLocks    = 20_000

	// undecidedSQL selects all lost changes of some refs, with each ref's value and pending intent.
	undecidedSQL = `
SELECT ` + lostSQL + `,
  IFNULL((SELECT r.value FROM refs AS r WHERE r.project = lost.project AND r.ref = lost.ref), ''),
  (SELECT i.token FROM intents AS i WHERE i.project = lost.project AND i.ref = lost.ref AND i.decision IS NULL ORDER BY i.token DESC LIMIT 1),
  (SELECT i.nonce FROM intents AS i WHERE i.project = lost.project AND i.ref = lost.ref AND i.decision IS NULL ORDER BY i.token DESC LIMIT 1)
FROM lost
JOIN (SELECT DISTINCT project, ref FROM lost WHERE fate = '' ORDER BY project, ref LIMIT @limit) AS few USING (project, ref)
WHERE fate = '' ORDER BY project, ref, op`

	leasesSQL = `SELECT project, ref FROM locks WHERE IFNULL(stale_after, 0) < @never_stale LIMIT @limit`

	lastEpochSQL = `SELECT MAX(first), CURRENT_TIMESTAMP() FROM epochs`
)

var (
	fateColumns  = []string{"project", "ref", "op", "fate"}
	epochColumns = []string{"first", "id", "began", "asked_by", "reason"}
)

// Recover implements driver.AdmissionStore. It does not have to raise tokens, as they are commit
// timestamps.
func (d *Driver) Recover(ctx context.Context, r driver.RecoverRequest) (driver.Recovered, error) {
	q := request{tag: "refdb.recover", what: "recover"}
	return changeAdmission(ctx, d, q, func(ctx context.Context, t *transaction, b *batch, row admissionRow) (answer driver.Recovered, err error) {
		answer.Admission, err = d.admissionNow(ctx, row, t.query)
		if answer.Done = answer.Admitted; err != nil || answer.Done || !r.MayBegin(answer.Admission) {
			return answer, err
		}
		if answer.Lost > 0 {
			answer.Decided, err = b.decideLost(ctx, t, min(r.Limit, recoveredRefs))
			answer.Lost -= len(answer.Decided)
			answer.Halted = answer.Lost > 0
		}
		if err != nil || answer.Halted {
			return answer, err
		}
		if len(answer.Decided) > 0 && b.cost > maxMutations/2 {
			return answer, nil // the rest is for the next step
		}
		more, err := b.endLeases(ctx, t)
		if err != nil || more {
			return answer, err
		}
		for i, w := range answer.Witnesses {
			if w.Awaited(d.name) { // it is one of r.Without
				w.Without, w.Since = true, rules.Later(w.Since, row.now)
				answer.Witnesses[i] = w
				b.putWitness(w, d.hasTestimonies())
			}
		}
		answer.Admitted, answer.Done = true, true
		b.admit(d.name)
		return answer, b.beginEpoch(ctx, t, r, row)
	})
}

// endLeases ends all locks except those of intents, and reports whether there are more.
func (b *batch) endLeases(ctx context.Context, t *transaction) (more bool, err error) {
	s := spanner.Statement{SQL: leasesSQL, Params: map[string]any{"never_stale": driver.NeverStale.Microseconds(), "limit": int64(endedLocks)}}
	n := 0
	err = t.query(ctx, s, func(row *spanner.Row) error {
		var project, ref string
		err := row.Columns(&project, &ref)
		b.deleteLock(project, ref)
		n++
		return err
	})
	return n == endedLocks, err
}

// beginEpoch begins an epoch before the changes that the recovery wrote: since the halt, the
// database has accepted no other change.
func (b *batch) beginEpoch(ctx context.Context, t *transaction, r driver.RecoverRequest, row admissionRow) error {
	return t.query(ctx, spanner.NewStatement(lastEpochSQL), func(found *spanner.Row) error {
		var last, first time.Time
		if err := found.Columns(&last, &first); err != nil {
			return err
		}
		if row.server == "" {
			first = row.since.Add(time.Microsecond)
		}
		if !first.After(last) {
			first = last.Add(time.Microsecond)
		}
		first = instant(positionOf(first))
		b.add(len(epochColumns), spanner.Insert("epochs", epochColumns, []any{first, r.Epoch, spanner.CommitTimestamp, r.By, r.Reason}))
		return nil
	})
}

func readUndecided(ctx context.Context, t *transaction, limit int) (refs rules.LostRefs, err error) {
	s := spanner.Statement{SQL: undecidedSQL, Params: map[string]any{"limit": int64(limit)}}
	err = t.query(ctx, s, func(row *spanner.Row) error {
		var now rules.LostRef
		var token spanner.NullTime // of the intent; NULL if there is none
		var nonce spanner.NullString
		l, err := readLost(row, (*string)(&now.Value), &token, &nonce)
		now.Intent, now.Token = operation.ID(nonce.StringVal), driver.TokenOf(token.Time)
		refs.Add(l, now)
		return err
	})
	return refs, err
}

// decideLost decides about lost changes of at most limit refs, and only as many as fit into the
// commit.
func (b *batch) decideLost(ctx context.Context, t *transaction, limit int) (decided []driver.LostChange, err error) {
	refs, err := readUndecided(ctx, t, limit)
	if err != nil {
		return nil, err
	}
	for _, ref := range refs {
		if b.cost > recoveredCost {
			break
		}
		verdict := ref.Decide()
		if verdict.Again != nil {
			b.rewrite(*verdict.Again, ref.Value, verdict.Origin())
		}
		if verdict.EndIntent {
			b.deleteIntent(ref.Project, ref.Ref, ref.Token)
			b.deleteLock(ref.Project, ref.Ref)
		}
		for _, l := range verdict.Decided {
			// If not all of these fit, the next step comes to the same result for the rest, unless
			// they depend on what this step wrote.
			if l.Fate == driver.Opposed && b.cost > recoveredCost {
				continue
			}
			b.add(len(fateColumns), spanner.Update("lost", fateColumns, []any{l.Project, l.Ref, l.Op, string(l.Fate)}))
			decided = append(decided, l)
		}
	}
	return decided, nil
}

// rewrite makes a lost change again.
func (b *batch) rewrite(l driver.LostChange, have driver.Value, by driver.Origin) {
	if l.New == driver.Unknown {
		b.removeRef(l.Project, l.Ref, have, by)
	} else {
		b.putRef(l.Project, l.Ref, have, l.New, by)
	}
}
