package linearizability

import (
	"slices"
	"strings"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
)

// A partition is the history of one project, with what the rules need to know
// of it as a whole. Updates couple a project's refs, nothing couples projects.
type partition struct {
	project string
	refs    []string
	index   map[string]int // in refs and in states
	leases  map[lockID]*lease
	enders  map[string][]int64 // by ref: calls of which nobody knows whether they ended a stale lock on it
	stepped int64              // when the database's clock was set
	owners  []string
	events  []event
	unknown int // calls whose outcome is
}

// A lockID names an acquisition by one of its refs.
type lockID struct {
	ref   string
	token refdb.Token
}

// A lease is what is known about a lock beyond the state of its row.
type lease struct {
	owner      string
	staleAfter time.Duration
	since      int64 // the call that acquired it: its heartbeat is not older
	beats      []span
	// unreported: its caller never got it. The DB gives it back at some time, or it goes stale.
	unreported bool
	// open: a request to release it may have been carried out.
	open bool
}

// A span is a time within which something happened.
type span struct{ call, ret int64 }

// An event is something that happened at one moment within its span, in one of several ways.
type event struct {
	span
	line int // of a picture
	text string
	ways []rule
}

// A rule says whether something can happen in a state, and changes the state.
type rule func(state) bool

// split makes a partition of each project.
func split(ops []Op) []*partition {
	byProject := make(map[string][]Op)
	var beats []Op
	stepped := int64(Never)
	for _, op := range ops {
		switch op.Input.Kind {
		case Step:
			stepped = min(stepped, op.Call)
		case Beat:
			beats = append(beats, op)
		default:
			byProject[op.Input.Project] = append(byProject[op.Input.Project], op)
		}
	}
	var all []*partition
	for project, ops := range byProject {
		p := &partition{
			project: project, stepped: stepped,
			index: make(map[string]int), leases: make(map[lockID]*lease), enders: make(map[string][]int64),
		}
		p.learn(ops)
		rows := p.beaten(beats)
		p.addUnreported(ops, rows)
		p.addBeats(rows)
		for _, op := range settle(ops) {
			p.add(op)
		}
		all = append(all, p)
	}
	slices.SortFunc(all, func(a, b *partition) int { return strings.Compare(a.project, b.project) })
	return all
}

// learn notes the refs, the locks, and what may have ended locks.
func (p *partition) learn(ops []Op) {
	for _, op := range ops {
		in, out := op.Input, op.Output
		for _, ref := range touched(in) {
			if _, ok := p.index[ref]; !ok {
				p.index[ref] = len(p.refs)
				p.refs = append(p.refs, ref)
			}
		}
		if out.Result == Unknown {
			p.unknown++
		}
		switch {
		case in.Kind == Acquire && out.Result == Done:
			for _, ref := range in.Refs {
				p.leases[lockID{ref, out.Token}] = &lease{owner: op.Owner, staleAfter: in.StaleAfter, since: op.Call}
			}
		case in.Kind == Update && out.Result == Unknown && !in.Advisory:
			for _, u := range in.Updates {
				if !slices.Contains(in.Refs, u.Ref) {
					p.enders[u.Ref] = append(p.enders[u.Ref], op.Call)
				}
			}
		}
		if in.Kind == Acquire && unresolved(out) {
			for _, ref := range in.Refs {
				p.enders[ref] = append(p.enders[ref], op.Call)
			}
		}
	}
	for _, op := range ops {
		if (op.Input.Kind == Release || op.Input.Release) && op.Output.Result == Unknown {
			for _, ref := range op.Input.Refs {
				if l := p.leases[lockID{ref, op.Input.Token}]; l != nil {
					l.open = true
				}
			}
		}
	}
}

// A beaten row is a row of the project that a request beat.
type beaten struct {
	Row
	span
	owner string
}

func (p *partition) beaten(beats []Op) (all []beaten) {
	for _, op := range beats {
		for _, row := range op.Output.Beats {
			if row.Project == p.project {
				all = append(all, beaten{row, span{op.Call, op.Return}, op.Owner})
			}
		}
	}
	return all
}

func (p *partition) addBeats(rows []beaten) {
	for _, b := range rows {
		if l := p.leases[lockID{b.Ref, b.Token}]; l != nil && b.Result == driver.BeatRenewed {
			l.beats = append(l.beats, b.span)
		}
		p.events = append(p.events, event{b.span, p.line(b.owner), b.String(), []rule{p.beat(b)}})
	}
}

// touched returns the refs that a call is about.
func touched(in Input) []string {
	refs := slices.Clone(in.Refs)
	for _, u := range in.Updates {
		refs = append(refs, u.Ref)
	}
	return refs
}

// unresolved reports whether a call may have had effects that its answer does not report.
func unresolved(out Output) bool { return out.Unresolved || out.Result == Unknown }

// at returns the state of a ref.
func (p *partition) at(s state, ref string) *refState { return &s[p.index[ref]] }

// slack is how much clocks may differ within a stale-after, because their speeds and
// their resolutions differ.
const slack = 10 * time.Millisecond

// oldest returns the greatest age that a lock can have had within a span, counted
// from the call of the last beat that had succeeded before the span.
func (p *partition) oldest(id lockID, at span) time.Duration {
	l := p.leases[id]
	if at.ret >= p.stepped || at.ret == Never {
		return Never
	}
	since := l.since
	for _, b := range l.beats {
		if b.ret < at.call {
			since = max(since, b.call)
		}
	}
	return time.Duration(at.ret-since) + slack
}

func (p *partition) mayBeStale(id lockID, at span) bool {
	return p.oldest(id, at) > p.leases[id].staleAfter
}

// mayBeGone reports whether the lock on a ref may have ended in a way that no
// answer reports: a request of unknown outcome may have released it or, if it was
// stale, taken it over or ended it.
func (p *partition) mayBeGone(s state, ref string, at span) bool {
	r := p.at(s, ref)
	id := lockID{ref, r.lock}
	if r.leaving || p.leases[id].unreported {
		return true
	}
	return p.mayBeStale(id, at) && slices.ContainsFunc(p.enders[ref], func(call int64) bool { return call < at.ret })
}

// gone reports whether a ref can be without a lock, and if so removes the lock.
func (p *partition) gone(s state, ref string, at span) bool {
	r := p.at(s, ref)
	if r.lock != 0 && !p.mayBeGone(s, ref, at) {
		return false
	}
	r.free()
	return true
}
