package refdb

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// An Update moves one ref from Old to New.
type Update struct {
	Ref string
	// Old is what the ref must hold. [Unknown] and the zero IDs all match a
	// ref that is unknown or deleted.
	Old Value
	// New is what the ref holds afterwards. A zero ID, such as [Deleted], deletes it and
	// leaves a tombstone: a zero ID, as long as Old if Old is an object ID. [Unknown] is
	// refused.
	New Value
}

// An UpdateOption changes what an update demands.
type UpdateOption func(*UpdateRequest)

// Adopt lets any Old match a ref that is unknown to the database. Gerrit brings
// existing repositories in this way: the first update of a ref decides.
func Adopt() UpdateOption { return func(r *UpdateRequest) { r.Adopt = true } }

// GitNames makes the update create only refs that git repositories can hold beside what the
// project has, as [DB.Prepare] does: for refs that will be placed in repositories. A part of a
// new name that is too long is refused with [ErrInvalid]. A new name that [Excludes] one that
// holds a value is refused with a [*NameConflictError], and with a [*LockedError] while an intent
// on that one is pending. Refs that exist are not judged. With [Adopt], which does not say whether it
// creates a ref, it is refused with ErrInvalid.
func GitNames() UpdateOption { return func(r *UpdateRequest) { r.GitNames = true } }

// Advisory makes the update ignore locks, as Gerrit's refdb plugins do. Such
// writers can make a holder's own update happen twice: if its reply is lost, and
// one of them puts the old value back before the update is sent again.
func Advisory() UpdateOption { return func(r *UpdateRequest) { r.Locks = AdvisoryLocks } }

// By records in the history who asked for the update, at most 200 bytes, instead of
// [Options].By.
func By(name string) UpdateOption { return func(r *UpdateRequest) { r.By = name } }

// origin is that of a new operation of this DB.
func (db *DB) origin() Origin { return Origin{ID: rand.Text(), Owner: db.owner, By: db.opts.By} }

// Under fences the update: the same transaction checks that the lock of that owner
// and token still stands on refs; if not, it writes nothing and the error wraps
// [ErrLockLost]. It is for a write on behalf of a [Lock] that another process
// holds, such as the parent of this one; a Lock's own methods need no option. The
// updated refs must be among refs: any other is refused with [ErrInvalid], unless the
// update is made with [AnyRef].
func Under(owner string, token Token, refs ...string) UpdateOption {
	return fencedBy(Fence{Refs: refs, Owner: owner, Token: token})
}

// AnyRef lets a fenced update, [Lock.Update] or one with [Under], move refs that its lock is
// not on. The fence is the same: nothing is written unless the lock still stands. But the lock
// does not keep others from those refs: the locks of others on them stand in the way, and an
// update whose reply is lost is not sent again. Without a fence it is refused with [ErrInvalid].
func AnyRef() UpdateOption { return func(r *UpdateRequest) { r.anyRef = true } }

func fencedBy(f Fence) UpdateOption { return func(r *UpdateRequest) { r.Fence = &f } }

// creates reports whether u creates its ref, if that holds what u expects.
func (u Update) creates() bool { return u.Old.IsAbsent() && !u.New.IsAbsent() }

// checkGitNames refuses names that git can't place, and sorted updates of which git could not hold
// the results together.
func checkGitNames(project string, updates []Update) error {
	creates := make(map[string]bool, len(updates)) // refs that will hold a value: are they new?
	for _, u := range updates {
		if u.New.IsAbsent() {
			continue
		}
		creates[u.Ref] = u.creates()
		if u.creates() {
			if err := CheckPlaceable(u.Ref); err != nil {
				return err
			}
		}
	}
	e := &NameConflictError{Project: project}
	for _, u := range updates {
		if u.New.IsAbsent() {
			continue
		}
		for above := range RefsAbove(u.Ref) {
			switch aboveIsNew, holds := creates[above]; {
			case holds && u.creates():
				e.Conflicts = append(e.Conflicts, NameConflict{Ref: u.Ref, With: above})
			case holds && aboveIsNew:
				e.Conflicts = append(e.Conflicts, NameConflict{Ref: above, With: u.Ref})
			}
		}
	}
	if len(e.Conflicts) > 0 {
		return e
	}
	return nil
}

// covered returns an error wrapping ErrInvalid unless ref is one of locked, which is sorted.
func covered(project string, locked []string, ref string) error {
	if _, ok := slices.BinarySearch(locked, ref); ok {
		return nil
	}
	return fmt.Errorf("%w ref %q of %s: the lock is not on this ref, only on %s", ErrInvalid, ref, project, enumerate("these", locked))
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
	if err := checkNew(v); err != nil {
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
func (db *DB) newUpdateRequest(project string, updates []Update, opts []UpdateOption) (UpdateRequest, error) {
	names := make([]string, len(updates))
	for i, u := range updates {
		names[i] = u.Ref
	}
	if _, err := checkRefs(project, names, MaxUpdateRefs); err != nil {
		return UpdateRequest{}, err
	}
	r := UpdateRequest{Project: project, Origin: db.origin(), Updates: slices.Clone(updates)}
	for i, u := range r.Updates {
		if err := errors.Join(CheckValue(u.Old), checkNew(u.New)); err != nil {
			return UpdateRequest{}, fmt.Errorf("ref %q: %w", u.Ref, err)
		}
		r.Updates[i].New = u.New.tombstone(u.Old)
	}
	slices.SortFunc(r.Updates, func(a, b Update) int { return strings.Compare(a.Ref, b.Ref) })
	for _, o := range opts {
		o(&r)
	}
	if err := checkBy(r.By); err != nil {
		return UpdateRequest{}, err
	}
	if r.GitNames {
		if r.Adopt {
			return UpdateRequest{}, fmt.Errorf("%w update: GitNames needs to know which refs are created, and Adopt leaves that open", ErrInvalid)
		}
		if err := checkGitNames(project, r.Updates); err != nil {
			return UpdateRequest{}, err
		}
	}
	switch {
	case r.Fence == nil && r.anyRef:
		return UpdateRequest{}, fmt.Errorf("%w update of any ref without a fence: make it through a lock, or with Under", ErrInvalid)
	case r.Fence == nil:
		return r, nil
	}
	refs, err := checkRefs(project, r.Fence.Refs, MaxLockRefs)
	if err != nil {
		return UpdateRequest{}, err
	}
	if fault := textFault(r.Fence.Owner); fault != "" {
		return UpdateRequest{}, fmt.Errorf("%w owner %q of the lock: %s", ErrInvalid, r.Fence.Owner, fault)
	}
	r.Fence.Refs = refs
	for _, u := range r.Updates {
		if err := covered(project, refs, u.Ref); err != nil && !r.anyRef {
			return UpdateRequest{}, err
		}
	}
	return r, nil
}

// covers reports whether the fence's lock is on all refs of the update.
func (r UpdateRequest) covers() bool {
	return !slices.ContainsFunc(r.Updates, func(u Update) bool {
		_, covered := slices.BinarySearch(r.Fence.Refs, u.Ref)
		return !covered
	})
}

// update carries r out, resolves a lost reply, and reports an event. lock, unless
// nil, is the lock that fences r.
func (db *DB) update(ctx context.Context, r UpdateRequest, lock *Lock) (err error) {
	start := time.Now()
	defer func() {
		e := Event{Op: OpUpdate, Refs: len(r.Updates)}
		if lock != nil && r.Fence.Release && err == nil {
			e.Held = lock.age()
		}
		db.observe(e, start, err)
	}()
	w := write{project: r.Project, id: r.ID, updates: r.Updates}
	w.send = func() error {
		_, err := retry(ctx, db, func(d Driver) (struct{}, error) { return struct{}{}, d.Update(ctx, r) })
		return err
	}
	// Nobody else writes refs that are locked.
	w.repeatable = func() bool {
		return lock != nil && r.covers() && r.Locks == MandatoryLocks && lock.Err() == nil
	}
	sequence := db.comparisons.sequence.Load()
	err = db.write(ctx, w)
	if err == nil {
		err = db.noteWritten(ctx, sequence, knownChanges(r.Project, r.Origin, r.Updates, time.Now()))
	}
	if err != nil {
		return fmt.Errorf("updating refs of %s: %w", r.Project, err)
	}
	return nil
}

// A write changes refs, all or none, and leaves its ID in their rows.
type write struct {
	project, id string
	updates     []Update
	send        func() error
	// repeatable reports whether sending the request twice is safe: compare-and-put
	// then lets only one of the two through.
	repeatable func() bool
}

// write sends w and, if the reply is lost, finds out what became of it.
//
// A row that carries w's ID proves that w happened: only w writes that ID, and it
// writes all its rows or none. No such row proves nothing: w may have been
// overwritten, or may be about to happen. If w is repeatable it is sent again.
func (db *DB) write(ctx context.Context, w write) error {
	if err := db.schemaError(); err != nil {
		return err
	}
	defer db.feeds.hint()
	unknown := w.send()
	if !errors.Is(unknown, ErrOutcomeUnknown) || errors.Is(unknown, ErrUnconfirmed) || len(w.updates) == 0 {
		return unknown
	}
	if done, err := db.carriedOut(ctx, w); done || err != nil {
		return joinUnknown(unknown, err)
	}
	if !w.repeatable() || ctx.Err() != nil {
		return unknown
	}
	err := w.send()
	if err == nil || errors.Is(err, ErrOutcomeUnknown) {
		return err
	}
	// The first request may have been carried out meanwhile, and be the reason why the
	// second was refused. Even if no row carries its ID it may have been: the lease may
	// have ended since, and a writer that ignores locks may have overwritten the rows.
	if done, lookErr := db.carriedOut(ctx, w); done || lookErr != nil {
		return joinUnknown(unknown, lookErr)
	}
	return errors.Join(unknown, err)
}

// carriedOut reports whether any row still carries w's ID.
func (db *DB) carriedOut(ctx context.Context, w write) (bool, error) {
	ctx, cancel := withGrace(ctx)
	defer cancel()
	names := make([]string, len(w.updates))
	for i, u := range w.updates {
		names[i] = u.Ref
	}
	rows, err := retry(ctx, db, func(d Driver) ([]Ref, error) { return d.Get(ctx, w.project, names) })
	return slices.ContainsFunc(rows, func(r Ref) bool { return r.Op == w.id }), err
}

// joinUnknown returns nil if look is nil, else both errors.
func joinUnknown(unknown, look error) error {
	if look == nil {
		return nil
	}
	return errors.Join(unknown, look)
}
