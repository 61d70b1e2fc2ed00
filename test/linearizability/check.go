package linearizability

import (
	"fmt"
	"hash/maphash"
	"io"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

// A Verdict is the result of a check.
type Verdict string

const (
	OK       Verdict = "linearizable"
	Illegal  Verdict = "not linearizable"
	TimedOut Verdict = "not decided in time"
)

// A Report is the result of the check of a history.
type Report struct {
	Verdict  Verdict // the worst of its projects'
	Projects []Project
}

// A Project is the result of the check of one project.
type Project struct {
	Name    string
	Verdict Verdict
	Calls   int // including rows beaten
	Unknown int // calls of unknown outcome
	Took    time.Duration
	Fault   string // of an Illegal project: where every order fails, for people

	model porcupine.Model
	info  porcupine.LinearizationInfo
}

// Check looks, project by project, for an order of the calls in which each
// one's answer is right. It gives up after timeout.
func Check(ops []Op, timeout time.Duration) Report {
	r := Report{Verdict: OK}
	end := time.Now().Add(timeout)
	for _, p := range split(ops) {
		project := p.check(time.Until(end))
		r.Projects = append(r.Projects, project)
		if project.Verdict == Illegal || r.Verdict == OK {
			r.Verdict = project.Verdict
		}
	}
	return r
}

// Err returns nil for a Report that is OK; else what is wrong, project by project.
func (r Report) Err() error {
	if r.Verdict == OK {
		return nil
	}
	var text strings.Builder
	for _, p := range r.Projects {
		if p.Verdict != OK {
			fmt.Fprintf(&text, "\n%s: %s (%d calls, %d unknown)\n%s", p.Name, p.Verdict, p.Calls, p.Unknown, p.Fault)
		}
	}
	return fmt.Errorf("the history is %s:%s", r.Verdict, text.String())
}

// Visualize writes an HTML page that shows the calls of an Illegal project, and
// how far orders of them go.
func (p Project) Visualize(w io.Writer) error {
	return porcupine.Visualize(p.model, p.info, w)
}

func (p *partition) check(timeout time.Duration) Project {
	start := time.Now()
	r := Project{Name: p.project, Verdict: TimedOut, Calls: len(p.events), Unknown: p.unknown}
	if timeout > 0 {
		model, history := p.model(), p.history()
		switch porcupine.CheckOperationsTimeout(model, history, timeout) {
		case porcupine.Ok:
			r.Verdict = OK
		case porcupine.Illegal:
			r.Verdict = Illegal
			r.model = model
			// Again, to find out where.
			_, r.info = porcupine.CheckOperationsVerbose(model, history, timeout)
			r.Fault = p.fault(r.info)
		}
	}
	r.Took = time.Since(start)
	return r
}

// history returns the events in the checker's form. Each owner gets a line of its own in a picture.
func (p *partition) history() []porcupine.Operation {
	ops := make([]porcupine.Operation, len(p.events))
	for i := range p.events {
		e := &p.events[i]
		ops[i] = porcupine.Operation{ClientId: e.line, Input: e, Call: e.call, Return: e.ret}
	}
	return ops
}

func (p *partition) model() porcupine.Model {
	seed := maphash.MakeSeed()
	m := porcupine.NondeterministicModel{
		Init:              func() []any { return []any{make(state, len(p.refs))} },
		Step:              func(s, input, _ any) []any { return input.(*event).next(s.(state)) },
		Equal:             func(a, b any) bool { return a.(state).equal(b.(state)) },
		Hash:              func(s any) uint64 { return s.(state).hash(seed) },
		DescribeOperation: func(input, _ any) string { return input.(*event).text },
		DescribeState:     func(s any) string { return s.(state).describe(p.refs) },
	}
	return m.ToModel()
}

// next returns the states that an event can lead to.
func (e *event) next(s state) (all []any) {
	for _, way := range e.ways {
		if next := s.clone(); way(next) {
			all = append(all, next)
		}
	}
	return all
}
