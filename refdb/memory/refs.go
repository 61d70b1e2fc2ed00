package memory

import (
	"context"
	"slices"
	"strings"

	"github.com/globalrefdb/globalrefdb/refdb"
)

func (d *driver) Get(ctx context.Context, project string, refs []string) (rows []refdb.Ref, err error) {
	err = d.transact(ctx, "read refs", func(t *tx) error {
		rows = t.rows(project, refs)
		return nil
	})
	return rows, err
}

// rows returns the rows of those refs that have one.
func (t *tx) rows(project string, refs []string) (rows []refdb.Ref) {
	for _, ref := range refs {
		if row, ok := t.refs[key{project, ref}]; ok {
			rows = append(rows, row)
		}
	}
	return rows
}

func (d *driver) List(ctx context.Context, q refdb.RefQuery) (p refdb.RefPage, err error) {
	err = d.transact(ctx, "list refs", func(t *tx) error {
		for _, k := range sorted(t.refs) {
			row := t.refs[k]
			if k.Project == q.Project && k.Ref > q.After && strings.HasPrefix(k.Ref, q.Prefix) &&
				(q.Deleted || !row.Value.IsDeleted()) && len(p.Refs) < q.Limit {
				p.Refs = append(p.Refs, row)
			}
		}
		if n := len(p.Refs); n == q.Limit {
			p.Next = p.Refs[n-1].Name
		}
		return nil
	})
	return p, err
}

func (d *driver) States(ctx context.Context, project string, refs []string) (states []refdb.State, err error) {
	err = d.transact(ctx, "read refs and locks", func(t *tx) error {
		for _, ref := range refs {
			row, known := t.refs[key{project, ref}]
			s := refdb.State{Ref: ref, Value: row.Value}
			for _, l := range t.locksOn(project, []string{ref}) {
				s.Lock = &l
			}
			if known || s.Lock != nil {
				states = append(states, s)
			}
		}
		return nil
	})
	return states, err
}

func (d *driver) Update(ctx context.Context, r refdb.UpdateRequest) error {
	return d.transact(ctx, "update refs", func(t *tx) error {
		var fence refdb.Fence // of nothing
		if r.Fence != nil {
			fence = *r.Fence
		}
		if lost := t.missing(r.Project, fence.Refs, fence.Owner, fence.Token); lost != nil {
			return &refdb.LostError{Project: r.Project, Refs: lost, Reason: "gone, or another's"}
		}
		others := t.locksOn(r.Project, without(refsOf(r.Updates), fence.Refs))
		if err := refusal(others, r.Locks); err != nil {
			return err
		}
		if err := t.mismatch(r.Project, r.Updates, r.Adopt); err != nil {
			return err
		}
		if r.Locks == refdb.MandatoryLocks { // the others are stale
			t.unlock(others)
		}
		t.write(r.Project, r.Updates, r.ID)
		if fence.Release {
			t.end(r.Project, fence.Refs, fence.Next)
		}
		return nil
	})
}

// mismatch returns a *refdb.MismatchError unless the refs hold what the updates expect.
func (t *tx) mismatch(project string, updates []refdb.Update, adopt bool) error {
	var all []refdb.Mismatch
	for _, u := range updates {
		row, known := t.refs[key{project, u.Ref}]
		if !fits(u.Old, row.Value) && (known || !adopt) {
			all = append(all, refdb.Mismatch{Ref: u.Ref, Want: u.Old, Have: row.Value})
		}
	}
	if all == nil {
		return nil
	}
	return &refdb.MismatchError{Project: project, Mismatches: all}
}

// fits reports whether a ref holds what is expected. Unknown and deleted are the same.
func fits(want, have refdb.Value) bool {
	return want == have || want.IsAbsent() && have.IsAbsent()
}

func (t *tx) write(project string, updates []refdb.Update, op string) {
	for _, u := range updates {
		t.refs[key{project, u.Ref}] = refdb.Ref{Name: u.Ref, Value: u.New, Time: t.now, Op: op}
	}
}

func (d *driver) Remove(ctx context.Context, r refdb.RemoveRequest) (removed int, err error) {
	err = d.transact(ctx, "remove a project", func(t *tx) error {
		locks := t.locksWhere(func(l refdb.LockInfo) bool { return l.Project == r.Project })
		if err := refusal(locks, r.Locks); err != nil {
			return err
		}
		var whole bool
		removed, whole = t.remove(r.Project, r.Limit, func(refdb.Ref) bool { return true })
		if whole {
			t.unlock(locks)
		}
		return nil
	})
	return removed, err
}

func (d *driver) PurgeTombstones(ctx context.Context, r refdb.TombstoneRequest) (purged int, err error) {
	err = d.transact(ctx, "purge tombstones", func(t *tx) error {
		purged, _ = t.remove(r.Project, r.Limit, func(row refdb.Ref) bool {
			return row.Value.IsDeleted() && t.now.Sub(row.Time) >= r.OlderThan
		})
		return nil
	})
	return purged, err
}

// remove deletes those of a project's rows that are unwanted, and reports whether that is all of them.
func (t *tx) remove(project string, limit int, unwanted func(refdb.Ref) bool) (n int, all bool) {
	for _, k := range sorted(t.refs) {
		switch {
		case k.Project != project || !unwanted(t.refs[k]):
		case n == limit:
			return n, false
		default:
			delete(t.refs, k)
			n++
		}
	}
	return n, true
}

func refsOf(updates []refdb.Update) []string {
	refs := make([]string, len(updates))
	for i, u := range updates {
		refs[i] = u.Ref
	}
	return refs
}

// without returns those of refs that are not among others, which are sorted.
func without(refs, others []string) []string {
	return slices.DeleteFunc(slices.Clone(refs), func(ref string) bool {
		_, found := slices.BinarySearch(others, ref)
		return found
	})
}
