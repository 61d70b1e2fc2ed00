package refusal

import (
	"errors"

	"github.com/globalrefdb/globalrefdb/refdb"
)

// heldLong is how long a ref may be held before a retry is not worth it. A move takes milliseconds, and a daemon that has been silent for
// this long counts as gone.
const heldLong = refdb.DefaultStaleAfter

// NotPrepared turns an error of the database into the refusal that a pusher of the site reads.
func NotPrepared(site string, err error) error {
	var why Lines
	cause := Locked
	var mismatch *refdb.MismatchError
	var conflict *refdb.LockedError
	switch {
	case errors.As(err, &conflict):
		for _, l := range conflict.Holders {
			if l.Stale() {
				continue
			}
			why = append(why, LockedBy(l, site))
			if l.HeldFor() > heldLong {
				cause = Held
			}
		}
	case errors.As(err, &mismatch):
		for _, m := range mismatch.Mismatches {
			why = append(why, Mismatch(m.Ref, m.Want, m.Have))
			cause = MismatchReason(m.Have)
		}
	}
	if len(why) == 0 {
		return DatabaseFailed(err)
	}
	return Because(cause, why.OrNil())
}
