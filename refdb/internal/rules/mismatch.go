package rules

import "github.com/globalrefdb/globalrefdb/refdb"

// Compare returns a *refdb.MismatchError unless every ref holds what r.Updates expect of it. The
// rows are those of the updates, in their order. Unknown and deleted refs, with zero IDs of either
// length, are the same: absent. With r.Adopt any old value matches an unknown ref.
func Compare(r refdb.UpdateRequest, rows []Row) error {
	var all []refdb.Mismatch
	for i, u := range r.Updates {
		have := refdb.Unknown
		if ref := rows[i].Ref; ref != nil {
			have = ref.Value
		}
		switch {
		case have.Equivalent(u.Old):
		case rows[i].Ref == nil && r.Adopt:
		default:
			all = append(all, refdb.Mismatch{Ref: u.Ref, Want: u.Old, Have: have})
		}
	}
	if all == nil {
		return nil
	}
	return &refdb.MismatchError{Project: r.Project, Mismatches: all}
}
