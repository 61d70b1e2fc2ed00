package refusal

import (
	"errors"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/site/wire"
)

// heldLong is how long a ref may be held before a retry is not worth it. A move takes milliseconds, and a daemon that has been silent for
// this long counts as gone.
const heldLong = refdb.DefaultStaleAfter

// NotPrepared turns an error of the database into the refusal that a pusher of the site reads.
func NotPrepared(site string, err error) error {
	var why Lines
	cause := Locked
	var mismatch *refdb.MismatchError
	var locked *refdb.LockedError
	var excluded *refdb.NameConflictError
	var frozen *refdb.FrozenError
	switch {
	case errors.As(err, &frozen):
		return FrozenBy(frozen.Freeze)
	case errors.As(err, &locked):
		for _, l := range locked.Holders {
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
	case errors.As(err, &excluded):
		for _, c := range excluded.Conflicts {
			why = append(why, wire.Excluded(c.Ref, c.With))
			cause = Excluded
		}
	}
	if len(why) == 0 {
		return DatabaseFailed(err)
	}
	return Because(cause, why.OrNil())
}

// FrozenBy returns the refusal of a push to a project with that freeze.
func FrozenBy(f refdb.Freeze) error {
	return Because(Frozen, Lines{wire.Frozen(f.String())})
}
