package modes

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/site/client"
	"github.com/globalrefdb/globalrefdb/site/refusal"
	"github.com/globalrefdb/globalrefdb/site/wire"
)

const (
	// loggedLimit bounds the refs that the database has yet to follow. It does not follow more: `site check` finds
	// them.
	loggedLimit = 100_000
	// loggedWait is how long to wait for the end of a transaction that no hook reports.
	loggedWait = 10 * time.Second
	// recentRefusals is how many refusals are kept of each project.
	recentRefusals = 10
)

// Logged are the moves that were let through in mode log although the database did not agree.
type Logged struct {
	mu       sync.Mutex
	projects map[string]*loggedProject
	refs     int
	Changed  chan struct{} // holds an item when some have ended
}

type loggedProject struct {
	refusals uint64 // transactions
	recent   []client.WouldRefuse
	refs     map[string]loggedMove
}

// A loggedMove is one of them, of a ref.
type loggedMove struct {
	ref   string
	to    refdb.Value // what the ref holds in the end, if it was moved
	by    string      // who pushed, if that is known
	since time.Time
	over  bool // the transaction has ended
}

// NewLogged returns none.
func NewLogged() Logged {
	return Logged{projects: map[string]*loggedProject{}, Changed: make(chan struct{}, 1)}
}

// Add records a transaction of somebody that err would have refused.
func (s *Logged) Add(project, by string, lines []wire.Line, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.project(project)
	p.refusals++
	why := append(refusal.LinesOf(err), string(refusal.ReasonOf(err)))[0]
	p.recent = append(p.recent, client.WouldRefuse{Time: time.Now().UTC(), Reason: why})
	if len(p.recent) > recentRefusals {
		p.recent = slices.Delete(p.recent, 0, 1)
	}
	for _, l := range lines {
		s.put(p, loggedMove{ref: l.Ref, to: refdb.Value(l.New), by: by, since: time.Now()})
	}
}

// AddEnded records a ref that the database has to follow at once. Who pushed its value is known only if that push
// was recorded.
func (s *Logged) AddEnded(project, ref string, local refdb.Value) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.project(project)
	one := loggedMove{ref: ref, to: local, since: time.Now(), over: true}
	if last := p.refs[ref]; last.to.Equivalent(local) {
		one.by = last.by
	}
	s.put(p, one)
}

// project returns a project, new or known. s.mu is held, as for put.
func (s *Logged) project(name string) *loggedProject {
	p := s.projects[name]
	if p == nil {
		p = &loggedProject{refs: map[string]loggedMove{}}
		s.projects[name] = p
	}
	return p
}

func (s *Logged) put(p *loggedProject, one loggedMove) {
	if _, ok := p.refs[one.ref]; !ok {
		if s.refs == loggedLimit {
			return
		}
		s.refs++
	}
	p.refs[one.ref] = one
}

// Over records that a transaction has ended.
func (s *Logged) Over(project string, lines []wire.Line) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.projects[project]
	if p == nil {
		return
	}
	for _, l := range lines {
		if one, ok := p.refs[l.Ref]; ok {
			one.over = true
			p.refs[l.Ref] = one
			select {
			case s.Changed <- struct{}{}:
			default:
			}
		}
	}
}

// A pushedBy names who pushed to a project.
type pushedBy struct{ project, by string }

// ended returns the refs whose transactions have ended.
func (s *Logged) ended() map[pushedBy][]loggedMove {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := map[pushedBy][]loggedMove{}
	for project, p := range s.projects {
		for _, one := range p.refs {
			if one.over || time.Since(one.since) > loggedWait {
				k := pushedBy{project, one.by}
				all[k] = append(all[k], one)
			}
		}
	}
	return all
}

// forget removes refs, except those that were let through again since.
func (s *Logged) forget(project string, refs []loggedMove) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.projects[project]
	for _, one := range refs {
		if now, ok := p.refs[one.ref]; ok && now.since.Equal(one.since) {
			delete(p.refs, one.ref)
			s.refs--
		}
	}
}

// Of returns what the status says about a project.
func (s *Logged) Of(project string) client.Unguarded {
	s.mu.Lock()
	defer s.mu.Unlock()
	u := client.Unguarded{Project: project, Recent: []client.WouldRefuse{}}
	if p := s.projects[project]; p != nil {
		u.Refusals, u.Recent = p.refusals, slices.Clone(p.recent)
	}
	return u
}

// Total counts the transactions of all projects.
func (s *Logged) Total() (n uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for p := range maps.Values(s.projects) {
		n += p.refusals
	}
	return n
}
