package spanner

import (
	"context"
	"slices"

	"github.com/globalrefdb/globalrefdb/refdb"
)

// Update writes all of t's updates, or nothing.
func (d *Driver) Update(ctx context.Context, t refdb.Transaction) error {
	keys := updateKeys(&t)
	var refused error
	_, err := d.transact(ctx, request{tag: "refdb.update", what: "update refs"}, func(ctx context.Context, txn *transaction) error {
		states, err := txn.states(ctx, t.Project, keys)
		if err != nil {
			return err
		}
		var b *batch
		b, refused = plan(&t, states)
		return txn.write(b)
	})
	if err == nil && refused != nil {
		err = failed("update refs", refused)
	}
	return err
}

// updateKeys are the keys of the rows that decide about t.
func updateKeys(t *refdb.Transaction) []key {
	keys := make([]key, 0, len(t.Updates))
	fence := make(map[string]bool)
	if t.Fence != nil {
		for _, ref := range t.Fence.Refs {
			fence[ref] = true
		}
	}
	for _, u := range t.Updates {
		k := key{Ref: u.Ref, Value: some(u.Ref)}
		switch {
		case fence[u.Ref]:
			k.Fence = some(u.Ref)
			delete(fence, u.Ref)
		default:
			k.Lock = some(u.Ref)
		}
		keys = append(keys, k)
	}
	for ref := range fence {
		keys = append(keys, key{Ref: ref, Fence: some(ref)})
	}
	return keys
}

// plan says what t writes in view of what it found, or why it is refused.
func plan(t *refdb.Transaction, states []state) (*batch, error) {
	found := make(map[string]state, len(states))
	for _, s := range states {
		if s.value != nil && t.ID != "" && s.value.Op == t.ID {
			// An earlier request for the same update has happened, all of it,
			// whatever became of the other refs since.
			return &batch{}, nil
		}
		found[s.ref] = s
	}
	b := &batch{}
	if t.Fence != nil {
		if lost := lostRefs(t.Fence, found); len(lost) > 0 {
			return b, &refdb.LostError{Project: t.Project, Refs: lost, Reason: "the lock was released, or taken over by another"}
		}
	}
	standing := holders(t, found)
	if slices.ContainsFunc(standing, fresh) {
		return b, &refdb.LockedError{Holders: standing}
	}
	if m := mismatches(t, found); len(m) > 0 {
		return b, &refdb.MismatchError{Project: t.Project, Mismatches: m}
	}
	for _, l := range standing {
		b.deleteLock(l.Project, l.Ref) // stale: its holder has to learn
	}
	for _, u := range t.Updates {
		b.putRef(t.Project, u.Ref, u.New, t.ID)
	}
	if t.Fence != nil && t.Release {
		for _, ref := range t.Fence.Refs {
			b.deleteLock(t.Project, ref)
			if t.Fence.Intents {
				b.deleteIntent(t.Project, ref, t.Fence.Token)
			}
		}
	}
	return b, nil
}

// lostRefs returns the refs of a fence that no longer stands.
func lostRefs(f *refdb.Fence, found map[string]state) (lost []string) {
	for _, ref := range f.Refs {
		if row := found[ref].fence; row == nil || row.token != f.Token || row.intended && !f.Intents {
			lost = append(lost, ref)
		}
	}
	return lost
}

// holders returns the locks that t heeds among those found on the refs to
// update. The fence is none of them.
func holders(t *refdb.Transaction, found map[string]state) (all []refdb.LockInfo) {
	for _, u := range t.Updates {
		if l := found[u.Ref].lock; l != nil && (!t.Advisory || l.Intended()) {
			all = append(all, l.LockInfo)
		}
	}
	return all
}

func fresh(l refdb.LockInfo) bool { return !l.Stale() }

func mismatches(t *refdb.Transaction, found map[string]state) (all []refdb.Mismatch) {
	for _, u := range t.Updates {
		if row := found[u.Ref].value; row != nil || !t.Adopt {
			all = mismatch(all, u, row)
		}
	}
	return all
}

// mismatch adds to all what u finds instead of what it expects, if it does. row
// is nil if there is none.
func mismatch(all []refdb.Mismatch, u refdb.Update, row *refdb.Ref) []refdb.Mismatch {
	var have refdb.Value
	if row != nil {
		have = row.Value
	}
	if u.Old == have || u.Old.IsAbsent() && have.IsAbsent() {
		return all
	}
	return append(all, refdb.Mismatch{Ref: u.Ref, Want: u.Old, Have: have})
}
