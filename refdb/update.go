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
	// New is what it holds then. [Unknown] and the zero IDs delete it, which
	// leaves a tombstone.
	New Value
}

// An UpdateOption changes what an update demands.
type UpdateOption func(*Transaction)

// Adopt lets any Old match a ref that is unknown to the database. It is how
// Gerrit brings existing repositories in: the first update of a ref decides.
func Adopt() UpdateOption { return func(t *Transaction) { t.Adopt = true } }

// Advisory makes the update heed no locks, as Gerrit's refdb plugins do. Beside
// such writers a holder's own update may happen twice: if its reply is lost, and one of
// them puts the old value back before it is sent again.
func Advisory() UpdateOption { return func(t *Transaction) { t.Advisory = true } }

// Under lets the update through only if the lock of that token still stands on
// refs, in the same transaction: else it writes nothing and the error wraps
// [ErrLockLost]. It fences a write on behalf of a [Lock] that another process
// holds, such as the parent of this one; a Lock's own methods need no option.
func Under(token Token, refs ...string) UpdateOption {
	return func(t *Transaction) { t.Fence = &Fence{Refs: refs, Token: token} }
}

// Update moves refs of a project, at most [MaxUpdateRefs], all or none, in one
// transaction. Unless all hold their Old it writes nothing and returns a
// [*MismatchError] that names every one that doesn't. While somebody holds a
// fresh lock on one of them, this process included, it returns a
// [*LockedError]; stale locks it ends, so that their holders learn. If the
// reply is lost and it can't be told whether it happened, the error is
// [ErrOutcomeUnknown].
func (db *DB) Update(ctx context.Context, project string, updates []Update, opts ...UpdateOption) error {
	t, err := newTransaction(project, updates, opts)
	if err != nil {
		return fmt.Errorf("updating refs: %w", err)
	}
	return db.update(ctx, t, nil)
}

// CompareAndPut moves one ref from old to new, and reports whether it did:
// false, without an error, if the ref does not hold old. It is Update for one
// ref, in the shape that Gerrit's GlobalRefDatabase has.
func (db *DB) CompareAndPut(ctx context.Context, project, ref string, old, new Value, opts ...UpdateOption) (bool, error) {
	err := db.Update(ctx, project, []Update{{Ref: ref, Old: old, New: new}}, opts...)
	if errors.Is(err, ErrMismatch) {
		return false, nil
	}
	return err == nil, err
}

// Put sets a ref, whatever it holds, and returns what it held. Locks are
// heeded as by Update.
func (db *DB) Put(ctx context.Context, project, ref string, v Value) (old Value, err error) {
	old, err = db.Get(ctx, project, ref)
	for err == nil {
		err = db.Update(ctx, project, []Update{{Ref: ref, Old: old, New: v}})
		var mismatch *MismatchError
		if !errors.As(err, &mismatch) {
			return old, err
		}
		// Somebody else was first: that is the value we replace.
		old, err = mismatch.Mismatches[0].Have, ctx.Err()
	}
	return old, err
}

// newTransaction validates updates and puts them in the form that drivers expect.
func newTransaction(project string, updates []Update, opts []UpdateOption) (Transaction, error) {
	names := make([]string, len(updates))
	for i, u := range updates {
		names[i] = u.Ref
	}
	if _, err := checkRefs(project, names, MaxUpdateRefs); err != nil {
		return Transaction{}, err
	}
	t := Transaction{Project: project, ID: rand.Text(), Updates: slices.Clone(updates)}
	for i, u := range t.Updates {
		for _, v := range []Value{u.Old, u.New} {
			if err := CheckValue(v); err != nil {
				return Transaction{}, fmt.Errorf("ref %q: %w", u.Ref, err)
			}
		}
		t.Updates[i].New = u.New.tombstone(u.Old)
	}
	slices.SortFunc(t.Updates, func(a, b Update) int { return strings.Compare(a.Ref, b.Ref) })
	for _, o := range opts {
		o(&t)
	}
	if t.Fence != nil {
		refs, err := checkRefs(project, t.Fence.Refs, MaxLockRefs)
		if err != nil {
			return Transaction{}, err
		}
		t.Fence.Refs = refs
	}
	return t, nil
}

// update carries t out, resolves a lost reply, and tells of it. lock, unless
// nil, is the one that t is fenced by.
func (db *DB) update(ctx context.Context, t Transaction, lock *Lock) (err error) {
	start := time.Now()
	defer func() {
		e := Event{Op: OpUpdate, Refs: len(t.Updates)}
		if t.Release && lock != nil && err == nil {
			e.Held = lock.age()
		}
		db.observe(e, start, err)
	}()
	send := func() error {
		_, err := retry(ctx, db, func() (struct{}, error) { return struct{}{}, db.driver.Update(ctx, t) })
		return err
	}
	if err = send(); errors.Is(err, ErrOutcomeUnknown) {
		err = db.settle(ctx, t, lock, send, err)
	}
	if err != nil {
		return fmt.Errorf("updating refs of %s: %w", t.Project, err)
	}
	return nil
}

// settle finds out what became of t, whose reply was lost.
//
// A row that carries t's ID proves that it happened: the ID is written by it
// alone, and it is all or nothing. That none does proves nothing in general:
// it may have happened and been overwritten, or may be about to happen. But
// under a lock that covers all of the refs nobody else writes them. There t can
// be sent again: its compare-and-put lets only one of the two through.
func (db *DB) settle(ctx context.Context, t Transaction, lock *Lock, send func() error, unknown error) error {
	if errors.Is(unknown, ErrUnconfirmed) {
		return unknown
	}
	if done, err := db.carriedOut(ctx, t); done || err != nil {
		return joinUnknown(unknown, err)
	}
	// Intents end with the update: there is nothing left for a second one to do.
	intents := t.Fence != nil && t.Fence.Intents
	held := lock != nil && lock.covers(t.Updates) && !t.Advisory && lock.Err() == nil
	if !intents && !held || ctx.Err() != nil {
		return unknown
	}
	err := send()
	if err == nil || errors.Is(err, ErrOutcomeUnknown) {
		return err
	}
	// The first may have come through meanwhile, and be why the second was
	// refused. That there is no trace of it doesn't say that it did not: the lease may
	// have ended since, and a writer that heeds no locks may have been there.
	if done, lookErr := db.carriedOut(ctx, t); done || lookErr != nil {
		return joinUnknown(unknown, lookErr)
	}
	return errors.Join(unknown, err)
}

// carriedOut reports whether any row still carries t's ID.
func (db *DB) carriedOut(ctx context.Context, t Transaction) (bool, error) {
	ctx, cancel := detached(ctx)
	defer cancel()
	names := make([]string, len(t.Updates))
	for i, u := range t.Updates {
		names[i] = u.Ref
	}
	rows, err := retry(ctx, db, func() ([]Ref, error) { return db.driver.Get(ctx, t.Project, names) })
	return slices.ContainsFunc(rows, func(r Ref) bool { return r.Op == t.ID }), err
}

// joinUnknown is nil if looking succeeded, else both errors.
func joinUnknown(unknown, look error) error {
	if look == nil {
		return nil
	}
	return errors.Join(unknown, look)
}
