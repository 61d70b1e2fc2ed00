package refdb

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/internal/engine"
)

// An UpdateOption changes what an update demands.
type UpdateOption func(*driver.UpdateRequest)

// Adopt lets any Old match a ref that is unknown to the database. Gerrit brings
// existing repositories in this way: the first update of a ref decides.
func Adopt() UpdateOption { return func(r *driver.UpdateRequest) { r.Adopt = true } }

// GitNames makes the update create only refs that git repositories can hold beside what the project
// has, as package intents does: for refs that will be placed in repositories. A part of a new name
// that is too long is refused with [ErrInvalid]. A new name that excludes one that holds a value is
// refused with a [*NameConflictError], and with a [*LockedError] while an intent on that one is
// pending. Refs that exist are not judged. With [Adopt], which does not say whether it creates a
// ref, it is refused with ErrInvalid.
func GitNames() UpdateOption { return func(r *driver.UpdateRequest) { r.GitNames = true } }

// Advisory makes the update ignore locks, as Gerrit's refdb plugins do. Such
// writers can make a holder's own update happen twice: if its reply is lost, and
// one of them puts the old value back before the update is sent again.
func Advisory() UpdateOption { return func(r *driver.UpdateRequest) { r.Locks = driver.AdvisoryLocks } }

// By records in the history who asked for the update, at most 200 bytes, instead of
// [Options].By.
func By(name string) UpdateOption { return func(r *driver.UpdateRequest) { r.By = name } }

// Under fences the update: the same transaction checks that the lock of that owner
// and token still stands on refs; if not, it writes nothing and the error wraps
// [ErrLockLost]. It is for a write on behalf of a [Lock] that another process
// holds, such as the parent of this one; a Lock's own methods need no option. The
// updated refs must be among refs: any other is refused with [ErrInvalid], unless the
// update is made with [AnyRef].
func Under(owner string, token Token, refs ...string) UpdateOption {
	return fencedBy(driver.Fence{Refs: refs, Owner: owner, Token: token})
}

// AnyRef lets a fenced update, [Lock.Update] or one with [Under], move refs that its lock is
// not on. The fence is the same: nothing is written unless the lock still stands. But the lock
// does not keep others from those refs: the locks of others on them stand in the way, and an
// update whose reply is lost is not sent again. Without a fence it is refused with [ErrInvalid].
func AnyRef() UpdateOption { return func(r *driver.UpdateRequest) { r.AnyRef = true } }

func fencedBy(f driver.Fence) UpdateOption { return func(r *driver.UpdateRequest) { r.Fence = &f } }

// covered returns an error wrapping ErrInvalid unless ref is one of locked, which is sorted.
func covered(project string, locked []string, ref string) error {
	if _, ok := slices.BinarySearch(locked, ref); ok {
		return nil
	}
	return fmt.Errorf("%w ref %q of %s: the lock is not on this ref, only on %s", ErrInvalid, ref, project, driver.Enumerate("these", locked))
}

// Update moves refs of a project, at most [MaxUpdateRefs], all or none, in one
// transaction. Unless all hold their Old it writes nothing and returns a
// [*MismatchError] that names every ref that doesn't. While anybody, this process
// included, holds a fresh lock on one of the refs, it returns a [*LockedError]. It
// ends stale locks, so that their holders learn of the loss. If the reply is lost
// and Update can't find out whether the refs were moved, the error wraps
// [ErrOutcomeUnknown].
func (db *DB) Update(ctx context.Context, project string, updates []Update, opts ...UpdateOption) error {
	r, err := db.newUpdateRequest(project, updates, opts)
	if err != nil {
		return fmt.Errorf("updating refs: %w", err)
	}
	return db.update(ctx, r, nil)
}

// CompareAndPut moves one ref from old to new, and reports whether it did:
// false, without an error, if the ref does not hold old. It is Update for one
// ref, with the signature of Gerrit's GlobalRefDatabase.
func (db *DB) CompareAndPut(ctx context.Context, project, ref string, old, new Value, opts ...UpdateOption) (bool, error) {
	err := db.Update(ctx, project, []Update{{Ref: ref, Old: old, New: new}}, opts...)
	if errors.Is(err, ErrMismatch) {
		return false, nil
	}
	return err == nil, err
}

// Put sets a ref, whatever it holds, and returns what it held. A zero ID, such as
// [Deleted], deletes it; [Unknown] is refused. Locks are heeded as by Update.
func (db *DB) Put(ctx context.Context, project, ref string, v Value) (old Value, err error) {
	if err := engine.CheckNew(v); err != nil {
		return Unknown, fmt.Errorf("putting ref %q of %s: %w", ref, project, err)
	}
	old, err = db.Get(ctx, project, ref)
	for err == nil {
		err = db.Update(ctx, project, []Update{{Ref: ref, Old: old, New: v}})
		var mismatch *MismatchError
		if !errors.As(err, &mismatch) {
			return old, err
		}
		// Another writer was first: replace its value.
		old, err = mismatch.Mismatches[0].Have, ctx.Err()
	}
	return old, err
}

// newUpdateRequest validates updates and makes the request that drivers expect.
func (db *DB) newUpdateRequest(project string, updates []Update, opts []UpdateOption) (driver.UpdateRequest, error) {
	sorted, err := engine.SortedUpdates(project, updates)
	if err != nil {
		return driver.UpdateRequest{}, err
	}
	r := driver.UpdateRequest{Project: project, Origin: db.engine.Origin(), Updates: sorted}
	for _, o := range opts {
		o(&r)
	}
	if err := engine.CheckBy(r.By); err != nil {
		return driver.UpdateRequest{}, err
	}
	if r.GitNames {
		if r.Adopt {
			return driver.UpdateRequest{}, fmt.Errorf("%w update: GitNames needs to know which refs are created, and Adopt leaves that open", ErrInvalid)
		}
		if err := engine.CheckGitNames(project, r.Updates); err != nil {
			return driver.UpdateRequest{}, err
		}
	}
	switch {
	case r.Fence == nil && r.AnyRef:
		return driver.UpdateRequest{}, fmt.Errorf("%w update of any ref without a fence: make it through a lock, or with Under", ErrInvalid)
	case r.Fence == nil:
		return r, nil
	}
	refs, err := engine.CheckRefs(project, r.Fence.Refs, MaxLockRefs)
	if err != nil {
		return driver.UpdateRequest{}, err
	}
	if err := engine.CheckOwner(r.Fence.Owner); err != nil {
		return driver.UpdateRequest{}, err
	}
	r.Fence.Refs = refs
	for _, u := range r.Updates {
		if err := covered(project, refs, u.Ref); err != nil && !r.AnyRef {
			return driver.UpdateRequest{}, err
		}
	}
	return r, nil
}

// covers reports whether the fence's lock is on all refs of the update.
func covers(r driver.UpdateRequest) bool {
	return !slices.ContainsFunc(r.Updates, func(u Update) bool {
		_, covered := slices.BinarySearch(r.Fence.Refs, u.Ref)
		return !covered
	})
}

// update carries r out, resolves a lost reply, and reports an event. lock, unless
// nil, is the lock that fences r.
func (db *DB) update(ctx context.Context, r driver.UpdateRequest, lock *Lock) (err error) {
	start := time.Now()
	defer func() {
		e := Event{Op: driver.OpUpdate, Refs: len(r.Updates)}
		if lock != nil && r.Fence.Release && err == nil {
			e.Held = lock.age()
		}
		db.engine.Observed(e, start, err)
	}()
	w := engine.Write{Project: r.Project, ID: r.ID, Updates: r.Updates}
	w.Send = func() error {
		_, err := engine.Retry(ctx, db.engine, func(d Driver) (struct{}, error) { return struct{}{}, d.Update(ctx, r) })
		return err
	}
	// Nobody else writes refs that are locked.
	w.Repeatable = func() bool {
		return lock != nil && covers(r) && r.Locks == driver.MandatoryLocks && lock.Err() == nil
	}
	sequence := db.engine.Sequence()
	err = db.engine.Write(ctx, w)
	if err == nil {
		err = db.engine.NoteWritten(ctx, sequence, engine.KnownChanges(r.Project, r.Origin, r.Updates, time.Now()))
	}
	if err != nil {
		return fmt.Errorf("updating refs of %s: %w", r.Project, err)
	}
	return nil
}
