package rules

import (
	"slices"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/internal/queue"
)

// An Acquisition is the result of a request for locks.
type Acquisition struct {
	// Acquired is the reply. It has a token if the locks were adopted; otherwise the driver creates
	// one. For a refused request only its Place is set.
	driver.Acquired
	// Adopted says that an earlier request took the locks and its reply was lost. Nothing is
	// written.
	Adopted bool
	// After are the updates of the rows, in their order; see [queue.Verdict].
	After []queue.RowUpdate
}

// Acquire decides about r. The rows are those of r.Refs, in their order, with ages up to now. If it
// refuses with a *driver.LockedError, the driver writes After nevertheless: the waiter gets its
// place, and the remaining locks of an earlier request with the same nonce end.
func Acquire(r driver.AcquireRequest, rows []Row, now time.Time) (Acquisition, error) {
	c := AcquireClaim(r)
	if c.tookAll(rows) {
		return adopted(rows), nil
	}
	asked := make([]queue.Row, len(rows))
	for i, row := range rows {
		asked[i] = row.queueRow(c)
	}
	v := queue.Decide(asked, r.Waiter, r.Owner, now)
	if v.Refused {
		return Acquisition{Acquired: driver.Acquired{Place: v.Place}, After: v.After}, &driver.LockedError{Holders: v.Others}
	}
	return Acquisition{Acquired: driver.Acquired{Refs: Refs(rows), Reclaimed: v.Others}, After: v.After}, nil
}

// Prepare decides about r, unless that was revoked. Stored are the rules of r's project, for
// [RefuseFrozen]. The rows are those of r.Updates, in their order; around are those that
// [CheckNames] needs. If it refuses, with a *driver.FrozenError, a *driver.LockedError, a
// *driver.MismatchError or a *driver.NameConflictError, nothing is written.
//
// If only a part of an earlier preparation of r is left, its owner has to end that part: it counts
// as locks of another owner.
func Prepare(r driver.PrepareRequest, stored string, rows, around []Row) (Acquisition, error) {
	if PrepareClaim(r).tookAll(rows) {
		return adopted(rows), nil
	}
	if err := RefuseFrozen(r.Project, stored); err != nil {
		return Acquisition{}, err
	}
	locks := Locks(rows)
	intents, conflicts := CheckNames(r.Project, Created(r.Updates), around)
	if err := Refuse(inOrder(locks, intents)); err != nil {
		return Acquisition{}, err
	}
	if err := Compare(driver.UpdateRequest{Project: r.Project, Updates: r.Updates}, rows); err != nil {
		return Acquisition{}, err
	}
	if conflicts != nil {
		return Acquisition{}, conflicts
	}
	after := make([]queue.RowUpdate, len(rows))
	for i, row := range rows {
		after[i].Queue = row.Queue.Overtaken()
	}
	return Acquisition{Acquired: driver.Acquired{Reclaimed: reclaimed(locks)}, After: after}, nil
}

// RefusePreparation returns the *driver.FrozenError or the *driver.LockedError of [Prepare].
func RefusePreparation(r driver.PrepareRequest, stored string, rows, around []Row) error {
	if err := RefuseFrozen(r.Project, stored); err != nil {
		return err
	}
	intents, _ := CheckNames(r.Project, Created(r.Updates), around)
	return Refuse(inOrder(Locks(rows), intents))
}

// adopted returns the result of an earlier request, which gave all rows the same token.
func adopted(rows []Row) Acquisition {
	return Acquisition{Acquired: driver.Acquired{Token: rows[0].Lock.Token, Refs: Refs(rows)}, Adopted: true}
}

// Abandon returns the update of a row when r gives up.
func Abandon(r driver.AbandonRequest, row Row, now time.Time) queue.RowUpdate {
	c := abandonClaim(r)
	if c.Took(row) {
		return queue.End(*row.Lock, row.Queue.Without(r.Waiter), driver.Waiter{}, now)
	}
	return queue.Withdraw(row.queueRow(c), r.Waiter, now)
}

// Update decides about r. Stored are the rules of r's project, for [RefuseFrozen]. missing are the
// refs of its fence without its lock: see [Missing]. The rows are those of r.Updates, in their
// order; around are those that [CheckNames] needs, if r.GitNames. If refs are missing, the rest is
// not looked at.
//
// It returns the updates of the rows' locks, in the same order: stale locks end, because their
// holders have to learn of the update. Or it refuses, with a *driver.LostError, a
// *driver.FrozenError, a *driver.LockedError, a *driver.MismatchError or a
// *driver.NameConflictError.
func Update(r driver.UpdateRequest, stored string, missing []string, rows, around []Row, now time.Time) (after []queue.RowUpdate, refused error) {
	if err := lost(r.Project, missing, Lease); err != nil {
		return nil, err
	}
	if err := RefuseFrozen(r.Project, stored); err != nil {
		return nil, err
	}
	var passed []driver.LockInfo
	after = make([]queue.RowUpdate, len(rows))
	for i, row := range rows {
		if row.Lock == nil || fences(r.Fence, row.Name) || ignores(r.Locks, *row.Lock) {
			continue
		}
		passed = append(passed, *row.Lock)
		after[i] = queue.Pass(queue.Row{Lock: row.Lock, Nonce: row.Nonce, Queue: row.Queue}, now)
	}
	intents, conflicts := CheckNames(r.Project, Created(r.Updates), around)
	if err := Refuse(inOrder(passed, intents)); err != nil {
		return nil, err
	}
	if err := Compare(r, rows); err != nil {
		return nil, err
	}
	if conflicts != nil {
		return nil, conflicts
	}
	return after, nil
}

// Intents returns the intents that r ends, as a fence.
func Intents(r driver.FinishRequest) driver.Fence {
	refs := slices.Sorted(slices.Values(slices.Concat(RefsOf(r.Done), r.Dropped)))
	return driver.Fence{Refs: refs, Owner: r.Owner, Token: r.Token}
}

// Finish decides about r. missing are the refs of [Intents] without its lock. The rows are those of
// r.Done, in their order; if refs are missing, they are not looked at. It refuses with a
// *driver.LostError or a *driver.MismatchError.
func Finish(r driver.FinishRequest, missing []string, rows []Row) error {
	if err := lost(r.Project, missing, Intent); err != nil {
		return err
	}
	return Compare(driver.UpdateRequest{Project: r.Project, Updates: r.Done}, rows)
}

// Remove decides about r. The argument locks contains all locks of its project. The
// *driver.LockedError also names locks that r's mode ignores.
func Remove(r driver.RemoveRequest, locks []driver.LockInfo) error {
	if Refuse(heeded(locks, r.Locks)) == nil {
		return nil
	}
	return Refuse(locks)
}

// An IntentRow is the row of an intent.
type IntentRow struct {
	New     driver.Value
	Pending bool
	Locked  bool // the lock that was taken with it still exists
}

// Resolvable reports whether d can end the intent in row, which is nil if there is none. A program
// without support for intents may have deleted the intent's lock and moved the ref since: then the
// ref can only keep its value.
func Resolvable(row *IntentRow, d driver.Decision) bool {
	return row != nil && row.Pending && (row.Locked || d == driver.KeepOld)
}

// PutProject decides about r. have is the project's row, zero if there is none. It reports
// whether the row was written by an earlier request of the same r.Op, and otherwise refuses with
// a *driver.ProjectChangedError if it has another revision than r expects.
func PutProject(r driver.ProjectRequest, have driver.Project) (written bool, refused error) {
	switch {
	case have.Revision > 0 && have.Op == r.Op:
		return true, nil
	case have.Revision != r.Revision:
		return false, &driver.ProjectChangedError{Project: r.Project, Want: r.Revision, Have: have.Revision}
	default:
		return false, nil
	}
}
