package refdb

import (
	"context"
	"slices"
	"strings"
	"sync"
)

// A Journal keeps what this process knows the database to hold. After the database's server was
// replaced [DB.Compare] looks whether it is still there. Its methods may be called concurrently.
//
// The default is in memory, keeps the last writes and is lost with the process. A site daemon's is on disk.
type Journal interface {
	// Note adds what the database acknowledged to this process, or showed it. A change ends the
	// noted intent whose Op is its own, or its own up to the last "-". An intent is noted before its
	// preparation returns: if that fails, the preparation does.
	Note(known []Known) error
	// End forgets intents of one operation: they end without a change. It is called before the database ends them: what
	// only the journal has is lost. It returns those of them that were pending.
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
}

// recentKnown is how many changes a journal in memory keeps. It also keeps all of the last operation.
const recentKnown = 10_000

// recent is the journal in memory.
type recent struct {
	mu      sync.Mutex
	changes []Known // oldest first
	intents map[intentName]Known
	marks   []WitnessMark
}

type intentName struct{ project, ref, op string }

// IntentOp returns the operation that recorded the intent which a change with the ID op may
// have ended: see [Preparation].Op.
func IntentOp(op string) string {
	if i := strings.LastIndexByte(op, '-'); i > 0 {
		return op[:i]
	}
	return op
}

func (r *recent) Note(known []Known) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, k := range known {
		name := intentName{k.Project, k.Ref, IntentOp(k.Op)}
		if k.Token != 0 {
			if r.intents == nil {
				r.intents = map[intentName]Known{}
			}
			r.intents[name] = k
			continue
		}
		delete(r.intents, name)
		r.changes = append(r.changes, k)
	}
	if n := len(r.changes) - max(recentKnown, len(known)); n > recentKnown/2 {
		r.changes = slices.Clone(r.changes[n:])
	}
	return nil
}

func (r *recent) End(project string, refs []string, op string) (ended []Known, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, ref := range refs {
		name := intentName{project, ref, op}
		if k, pending := r.intents[name]; pending {
			ended = append(ended, k)
			delete(r.intents, name)
		}
	}
	return ended, nil
}

func (r *recent) Pending() (all []Known, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, k := range r.intents {
		all = append(all, k)
	}
	return all, nil
}

func (r *recent) Newest(skip, limit int) ([]Known, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	end := max(0, len(r.changes)-skip)
	found := slices.Clone(r.changes[max(0, end-limit):end])
	slices.Reverse(found)
	return found, nil
}

// Settle can't say anything: what an intent announced is known to whoever prepared it.
func (r *recent) Settle(_ context.Context, lost []Known) ([]Known, bool, error) {
	return lost, false, nil
}

func (r *recent) Marks() ([]WitnessMark, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.marks, nil
}

func (r *recent) SetMarks(marks []WitnessMark) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.marks = marks
	return nil
}
