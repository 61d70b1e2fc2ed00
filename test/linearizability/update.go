package linearizability

import (
	"slices"
	"strings"

	"github.com/globalrefdb/globalrefdb/refdb"
)

// update is an update with an answer.
func (p *partition) update(op Op, at span) rule {
	in, out := op.Input, op.Output
	others := unfenced(in)
	return func(s state) bool {
		if out.Result == Lost {
			return p.fenceBroken(s, op, at)
		}
		if !p.holds(s, in.Refs, in.Owner, in.Token) {
			return false
		}
		switch out.Result {
		case Locked:
			return p.refused(s, others, out.Holders, at)
		case Mismatch:
			return p.unlocked(s, others, at) && slices.Equal(p.differences(s, in), out.Mismatches)
		}
		if !p.unlocked(s, others, at) || len(p.differences(s, in)) > 0 {
			return false
		}
		for _, ref := range others {
			p.at(s, ref).free()
		}
		p.write(s, in)
		return true
	}
}

// late is an update that was carried out at an unknown time. So it is unknown, too,
// which locks were stale then.
func (p *partition) late(op Op) rule {
	return func(s state) bool {
		if !p.holds(s, op.Input.Refs, op.Input.Owner, op.Input.Token) || len(p.differences(s, op.Input)) > 0 {
			return false
		}
		p.write(s, op.Input)
		return true
	}
}

func (p *partition) write(s state, in Input) {
	for _, u := range in.Updates {
		p.at(s, u.Ref).value = stored(u)
	}
	if in.Release {
		for _, ref := range in.Refs {
			p.at(s, ref).free()
		}
	}
}

// stored returns what an update leaves in the row.
func stored(u refdb.Update) refdb.Value {
	switch {
	case !u.New.IsDeleted() || !u.Old.IsObjectID():
		return u.New
	case len(u.Old) == len(refdb.Deleted256):
		return refdb.Deleted256
	}
	return refdb.Deleted
}

// unfenced returns the refs whose locks an update heeds.
func unfenced(in Input) (refs []string) {
	if in.Advisory {
		return nil
	}
	for _, u := range in.Updates {
		if !slices.Contains(in.Refs, u.Ref) {
			refs = append(refs, u.Ref)
		}
	}
	return refs
}

// unlocked reports whether there can be no fresh lock on any of the refs.
func (p *partition) unlocked(s state, refs []string, at span) bool {
	return !slices.ContainsFunc(refs, func(ref string) bool {
		token := p.at(s, ref).lock
		return token != 0 && !p.mayBeStale(lockID{ref, token}, at) && !p.gone(s, ref, at)
	})
}

// fenceBroken reports whether exactly the refs that the answer names can be lost.
func (p *partition) fenceBroken(s state, op Op, at span) bool {
	in := op.Input
	for _, ref := range in.Refs {
		switch named := slices.Contains(op.Output.Lost, ref); {
		case named && !p.lost(s, ref, in.Owner, in.Token, at):
			return false
		case !named && !p.stands(s, ref, in.Owner, in.Token):
			return false
		}
	}
	return len(op.Output.Lost) > 0
}

// differences returns the mismatches that an update finds, in the order of their refs.
func (p *partition) differences(s state, in Input) (all []refdb.Mismatch) {
	for _, u := range in.Updates {
		have := p.at(s, u.Ref).value
		switch {
		case have == u.Old:
		case have.IsAbsent() && u.Old.IsAbsent():
		case have == refdb.Unknown && in.Adopt:
		default:
			all = append(all, refdb.Mismatch{Ref: u.Ref, Want: u.Old, Have: have})
		}
	}
	slices.SortFunc(all, func(a, b refdb.Mismatch) int { return strings.Compare(a.Ref, b.Ref) })
	return all
}
