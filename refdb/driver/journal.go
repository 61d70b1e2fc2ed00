package driver

import (
	"context"
	"strings"
)

// A Journal records the changes and intents that this process knows to be in the database. After
// the database's server was replaced, Compare of package recovery checks whether they are still
// there. The methods may be called concurrently.
//
// The default journal is in memory, keeps the last writes, and is lost with the process. The
// journal of a site daemon is on disk.
type Journal interface {
	// Note adds changes and intents that the database acknowledged to this process, or showed to
	// it. A change ends the noted intent whose Op equals the change's Op, or the change's Op up to
	// the last "-". An intent is noted before its preparation returns: if Note fails, so does the
	// preparation.
	Note(known []Known) error
	// End forgets intents of one operation, which end without a change. It is called before the
	// database ends them, because an intent that only the journal has counts as lost. End returns
	// those of the intents that were pending.
	End(project string, refs []string, op string) (ended []Known, err error)
	// Pending returns the intents that were noted and have not ended.
	Pending() ([]Known, error)
	// Newest returns at most limit changes, newest first, after the first skip ones.
	Newest(skip, limit int) ([]Known, error)
	// Settle determines the outcome of the moves of intents that the database lost. If the outcome
	// of a move is not known yet because its process is still running, open is true.
	Settle(ctx context.Context, lost []Known) (settled []Known, open bool, err error)
	// Marks returns the argument of the last SetMarks.
	Marks() ([]WitnessMark, error)
	SetMarks([]WitnessMark) error
	// Policy returns the argument of the last SetPolicy.
	Policy() (PolicyMark, error)
	SetPolicy(PolicyMark) error
	// Testimonies returns the argument of the last SetTestimonies.
	Testimonies() ([]Testimony, error)
	// SetTestimonies syncs the testimonies, and everything that was noted before, to the disk, so
	// that a crash of the machine loses neither.
	SetTestimonies([]Testimony) error
}

// IntentOp returns the operation that recorded the intent that a change with the operation op may
// have ended: see intents.Preparation.Op.
func IntentOp(op string) string {
	if i := strings.LastIndexByte(op, '-'); i > 0 {
		return op[:i]
	}
	return op
}
