package spanner

import (
	"context"
	"slices"

	"cloud.google.com/go/spanner"

	"github.com/globalrefdb/globalrefdb/refdb"
)

// Update writes all of r's updates, or nothing.
func (d *Driver) Update(ctx context.Context, r refdb.UpdateRequest) error {
	var fenced []string
	if r.Fence != nil {
		fenced = r.Fence.Refs
	}
	_, err := decide(ctx, d, request{tag: "refdb.update", what: "update refs"}, statesOf(stateStatement(r.Project), updateKeys(r.Updates, fenced)),
		func(b *batch, states []state) error { return planUpdate(b, &r, states) })
	return err
}

func refsOf(updates []refdb.Update) []string {
	refs := make([]string, len(updates))
	for i, u := range updates {
		refs[i] = u.Ref
	}
	return refs
}

// updateKeys are the keys of the rows that decide about updates under a fence on
// those refs.
func updateKeys(updates []refdb.Update, fenced []string) []key {
	refs := refsOf(updates)
	keys := stateKeys(refs)
	for _, ref := range fenced {
		if i, updated := slices.BinarySearch(refs, ref); updated {
			keys[i].Lock, keys[i].Fence = spanner.NullString{}, some(ref)
		} else {
			keys = append(keys, key{Ref: ref, Fence: some(ref)})
		}
	}
	return keys
}

// planUpdate says what r writes in view of what it found, or why it is refused.
func planUpdate(b *batch, r *refdb.UpdateRequest, states []state) error {
	if carriedOut(r.ID, states) {
		return nil
	}
	found := byRef(states)
	if f := r.Fence; f != nil {
		if lost := lost(r.Project, f.Refs, fence{f.Owner, f.Token, false}, found); lost != nil {
			return lost
		}
	}
	standing := standing(r, found)
	if slices.ContainsFunc(standing, fresh) {
		return &refdb.LockedError{Holders: standing}
	}
	if mismatch := compare(r.Project, r.Updates, r.Adopt, found); mismatch != nil {
		return mismatch
	}
	for _, l := range standing {
		b.deleteLock(l.Project, l.Ref) // stale: its holder has to learn
	}
	for _, u := range r.Updates {
		b.putRef(r.Project, u.Ref, u.New, r.ID)
	}
	if f := r.Fence; f != nil && f.Release {
		b.end(endingsOf(r.Project, f.Owner, f.Refs, found), f.Next)
	}
	return nil
}

// carriedOut reports whether an earlier request for the same update has
// happened: all of it, whatever became of the other refs since.
func carriedOut(id string, states []state) bool {
	return id != "" && slices.ContainsFunc(states, func(s state) bool { return s.value != nil && s.value.Op == id })
}

func byRef(states []state) map[string]state {
	found := make(map[string]state, len(states))
	for _, s := range states {
		found[s.ref] = s
	}
	return found
}

// lost returns a *refdb.LostError unless want stands on all of refs.
func lost(project string, refs []string, want fence, found map[string]state) error {
	refs = slices.DeleteFunc(slices.Clone(refs), func(ref string) bool {
		row := found[ref].fence
		return row != nil && *row == want
	})
	if len(refs) == 0 {
		return nil
	}
	reason := "the database has it gone, or another's"
	if want.intended {
		reason = "the intent was ended already"
	}
	return &refdb.LostError{Project: project, Refs: refs, Reason: reason}
}

// endingsOf are the locks on refs of the fence, or intents, of that owner.
func endingsOf(project, owner string, refs []string, found map[string]state) []ending {
	all := make([]ending, len(refs))
	for i, ref := range refs {
		all[i] = ending{refdb.LockInfo{Project: project, Ref: ref, Owner: owner}, found[ref].queue, found[ref].now}
	}
	return all
}

// standing returns the locks that r heeds among those found on the refs to
// update. The fence is none of them.
func standing(r *refdb.UpdateRequest, found map[string]state) (all []refdb.LockInfo) {
	for _, u := range r.Updates {
		if l := found[u.Ref].lock; l != nil && (r.Locks == refdb.MandatoryLocks || l.Intended()) {
			all = append(all, l.LockInfo)
		}
	}
	return all
}

func fresh(l refdb.LockInfo) bool { return !l.Stale() }

// compare returns a *refdb.MismatchError unless every ref holds what is
// expected, or is unknown and adopted.
func compare(project string, updates []refdb.Update, adopt bool, found map[string]state) error {
	var all []refdb.Mismatch
	for _, u := range updates {
		have := refdb.Unknown
		row := found[u.Ref].value
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
