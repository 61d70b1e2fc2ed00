package engine

import (
	"context"
	"slices"
	"sync"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
)

// recentKnown is the number of changes that a journal in memory keeps. It always keeps all changes
// of the last operation.
const recentKnown = 10_000

// recent is the journal in memory.
type recent struct {
	mu          sync.Mutex
	changes     []driver.Known // oldest first
	intents     map[intentName]driver.Known
	marks       []driver.WitnessMark
	policy      driver.PolicyMark
	testimonies []driver.Testimony
}

type intentName struct{ project, ref, op string }

func (r *recent) Note(known []driver.Known) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, k := range known {
		name := intentName{k.Project, k.Ref, driver.IntentOp(k.Op)}
		if k.Token != 0 {
			if r.intents == nil {
				r.intents = map[intentName]driver.Known{}
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

func (r *recent) End(project string, refs []string, op string) (ended []driver.Known, err error) {
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

func (r *recent) Pending() (all []driver.Known, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, k := range r.intents {
		all = append(all, k)
	}
	return all, nil
}

func (r *recent) Newest(skip, limit int) ([]driver.Known, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	end := max(0, len(r.changes)-skip)
	found := slices.Clone(r.changes[max(0, end-limit):end])
	slices.Reverse(found)
	return found, nil
}

// Settle determines no outcome: only the process that prepared an intent knows the outcome of its
// move.
func (r *recent) Settle(_ context.Context, lost []driver.Known) ([]driver.Known, bool, error) {
	return lost, false, nil
}

func (r *recent) Marks() ([]driver.WitnessMark, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.marks, nil
}

func (r *recent) SetMarks(marks []driver.WitnessMark) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.marks = marks
	return nil
}

func (r *recent) Policy() (driver.PolicyMark, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.policy, nil
}

func (r *recent) SetPolicy(p driver.PolicyMark) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.policy = p
	return nil
}

func (r *recent) Testimonies() ([]driver.Testimony, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.testimonies, nil
}

func (r *recent) SetTestimonies(all []driver.Testimony) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.testimonies = all
	return nil
}
