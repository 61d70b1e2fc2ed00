package follow

import (
	"maps"
	"slices"

	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/internal/workqueue"
)

// work is what is to be looked at in one repository.
type work struct {
	all    bool
	refs   map[string]bool
	reason string // why refs are left
	// missing: the last attempt lacked objects of some.
	missing bool
	// unplaced is how many refs git refused to move in the last attempt.
	unplaced int
	// held: the last attempt met a lock file that every move in the repository needs.
	held bool
}

func (w work) empty() bool { return !w.all && len(w.refs) == 0 }

func (w *work) add(ref, reason string) {
	if w.refs == nil {
		w.refs = map[string]bool{}
	}
	w.refs[ref] = true
	w.reason = reason
}

// merge returns w and other work in the same repository.
func merge(w, other work) work {
	w.all, w.missing, w.held = w.all || other.all, w.missing || other.missing, w.held || other.held
	for ref := range other.refs {
		w.add(ref, other.reason)
	}
	if len(w.refs) > maxRefs {
		w.all, w.refs = true, nil
	}
	return w
}

// maxRefs bounds the refs of a repository that are looked at one by one. If more change, all are
// compared.
const maxRefs = 10_000

// guarded returns those of the refs that c guards, in order.
func (w work) guarded(c *config.Config, project string) []string {
	refs := slices.Sorted(maps.Keys(w.refs))
	return slices.DeleteFunc(refs, func(ref string) bool { return !c.Guards(project, ref) })
}

// A queue has the projects whose repositories are to be looked at.
type queue struct{ *workqueue.Queue[work] }

func newQueue() *queue { return &queue{workqueue.New(merge, retryFirst, retryNew)} }

func (q *queue) add(project string, refs ...string) {
	w := work{}
	for _, ref := range refs {
		w.add(ref, "")
	}
	q.Put(project, w)
}

func (q *queue) addAll(project string) { q.Put(project, work{all: true}) }

// done ends the work on a project that the queue has handed out. What is left is tried again.
func (q *queue) done(project string, again work) {
	switch {
	case again.empty():
		q.Done(project)
	case again.held: // each attempt waits for the lock file itself
		q.Again(project, again, retryNew)
	default:
		q.Again(project, again, retryLast)
	}
}
