package driver

import (
	"context"
	"strings"
)

// A Journal keeps what this process knows the database to hold. After the database's server was
// replaced, Compare of package recovery looks whether it is still there. Its methods may be called
// concurrently.
//
// The default is in memory, keeps the last writes and is lost with the process. A site daemon's is
// on disk.
type Journal interface {
	// Note adds what the database acknowledged to this process, or showed it. A change ends the
	// noted intent whose Op is its own, or its own up to the last "-". An intent is noted before
	// its preparation returns: if that fails, the preparation does.
	Note(known []Known) error
	// End forgets intents of one operation: they end without a change. It is called before the
	// database ends them: what only the journal has is lost. It returns those of them that were
	// pending.
	End(project string, refs []string, op string) (ended []Known, err error)
	// Pending returns the intents that were noted and have not ended.
	Pending() ([]Known, error)
	// Newest returns at most limit changes, newest first, after the first skip ones.
	Newest(skip, limit int) ([]Known, error)
	// Settle says of intents that the database lost what became of their moves. While it
	// can't say so of some, because their processes go on, it reports open.
	Settle(ctx context.Context, lost []Known) (settled []Known, open bool, err error)
	// Marks returns what was last given to SetMarks.
	Marks() ([]WitnessMark, error)
	SetMarks([]WitnessMark) error
	// Policy returns what was last given to SetPolicy.
	Policy() (PolicyMark, error)
	SetPolicy(PolicyMark) error
	// Testimonies returns what was last given to SetTestimonies.
	Testimonies() ([]Testimony, error)
	// SetTestimonies syncs the testimonies, and everything that was noted before, to the disk: a crash
	// of the machine loses neither.
	SetTestimonies([]Testimony) error
}

// IntentOp returns the operation that recorded the intent which a change with the ID op may
// have ended: see intents.Preparation.Op.
func IntentOp(op string) string {
	if i := strings.LastIndexByte(op, '-'); i > 0 {
		return op[:i]
	}
	return op
}
