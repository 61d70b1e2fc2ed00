package rules

import (
	"github.com/globalrefdb/globalrefdb/refdb/driver"
)

// Compare returns a *driver.MismatchError unless every ref holds the value that r.Updates expect.
// The rows are those of the updates, in their order. Unknown and deleted refs, with zero IDs of
// either length, are equivalent: absent. With r.Adopt any old value matches an unknown ref.
func Compare(r driver.UpdateRequest, rows []Row) error {
	var all []driver.Mismatch
	for i, u := range r.Updates {
		have := driver.Unknown
		if ref := rows[i].Ref; ref != nil {
			have = ref.Value
		}
		switch {
		case have.Equivalent(u.Old):
		case rows[i].Ref == nil && r.Adopt:
		default:
			all = append(all, driver.Mismatch{Ref: u.Ref, Want: u.Old, Have: have})
		}
	}
	if all == nil {
		return nil
	}
	return &driver.MismatchError{Project: r.Project, Mismatches: all}
}
