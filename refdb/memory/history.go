package memory

import (
	"context"
	"crypto/rand"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
)

// A history has all changes of refs, by their keys.
type history struct {
	changes   []driver.Change
	position  driver.Position // of the last transaction that changed a ref
	pruned    driver.Position
	prunedAt  time.Time
	epochs    []driver.Epoch
	followers map[string]driver.Follower
}

func newHistory() history {
	return history{pruned: 1, epochs: []driver.Epoch{{ID: rand.Text(), First: 1, Began: now()}}, followers: make(map[string]driver.Follower)}
}

// change gives a ref a value. It records that.
func (t *tx) change(k key, to driver.Value, by driver.Origin) {
	t.noteChange(k, t.refs[k].Value, to, by)
	t.refs[k] = driver.Ref{Name: k.Ref, Value: to, Time: t.now, Op: by.ID}
}

func (t *tx) noteChange(k key, from, to driver.Value, by driver.Origin) {
	if !t.changed {
		t.changed = true
		t.history.position++
	}
	t.history.changes = append(t.history.changes, driver.Change{
		Project: k.Project, Ref: k.Ref, Old: from, New: to, Position: t.history.position, Time: t.now, Op: by.ID, Owner: by.Owner, By: by.By,
	})
}

func (t *tx) historyState() driver.HistoryState {
	return driver.HistoryState{
		Upto: t.history.position, Ended: t.history.position, Begun: t.history.position, Pruned: t.history.pruned, PrunedTime: t.history.prunedAt, Epochs: slices.Clone(t.history.epochs),
		Admitted: t.admission.server == t.admission.admitted,
	}
}

// sorted returns the changes in the order of their keys.
func (h *history) sorted() []driver.Change {
	return slices.SortedFunc(slices.Values(h.changes), func(a, b driver.Change) int { return a.Key().Compare(b.Key()) })
}

func (d *connection) HistoryState(ctx context.Context) (driver.HistoryState, error) {
	return transact(ctx, d, "read the history", func(t *tx) (driver.HistoryState, error) { return t.historyState(), nil })
}

func (d *connection) Newest(ctx context.Context) (c driver.Change, s driver.HistoryState, err error) {
	err = d.transact(ctx, "find the newest change", func(t *tx) error {
		c, s = driver.Change{}, t.historyState()
		if all := t.history.sorted(); len(all) > 0 && all[len(all)-1].Position >= s.Pruned {
			c = all[len(all)-1]
		}
		return nil
	})
	return c, s, err
}

func (d *connection) Tip(ctx context.Context, project string) (driver.Tip, error) {
	return transact(ctx, d, "find the tip of a project", func(t *tx) (tip driver.Tip, _ error) {
		tip = driver.Tip{Revision: t.projects[project].Revision, Server: t.admission.server, State: t.historyState()}
		for _, c := range t.history.changes {
			if c.Project == project {
				tip.Newest = max(tip.Newest, c.Position)
			}
		}
		for k, i := range t.intents {
			tip.Pending = tip.Pending || k.Project == project && i.Decision == driver.Pending
		}
		return tip, nil
	})
}

func (d *connection) Changes(ctx context.Context, r driver.ChangesRequest) (driver.ChangesPage, error) {
	return transact(ctx, d, "read changes", func(t *tx) (p driver.ChangesPage, _ error) {
		p.State = t.historyState()
		p.Next = driver.ChangeKey{Position: p.State.Upto + 1}
		for _, c := range t.history.sorted() {
			if c.Key() == r.Last && r.Last.Ref != "" {
				p.LastOp, p.LastFound = c.Op, true
			}
			if c.Key().Compare(r.After) <= 0 || c.Position < p.State.Pruned || r.Project != "" && (c.Project != r.Project || !strings.HasPrefix(c.Ref, r.Prefix)) {
				continue
			}
			if len(p.Changes) == r.Limit {
				p.Next = p.Changes[r.Limit-1].Key()
				break
			}
			p.Changes = append(p.Changes, c)
		}
		return p, nil
	})
}

func (d *connection) Log(ctx context.Context, r driver.LogRequest) (driver.LogPage, error) {
	return transact(ctx, d, "read a log", func(t *tx) (p driver.LogPage, _ error) {
		p.State = t.historyState()
		for _, c := range slices.Backward(t.history.sorted()) {
			if c.Project != r.Project || r.Ref != "" && c.Ref != r.Ref || r.Before != (driver.ChangeKey{}) && c.Key().Compare(r.Before) >= 0 {
				continue
			}
			if len(p.Changes) == r.Limit {
				p.Next = p.Changes[r.Limit-1].Key()
				break
			}
			p.Changes = append(p.Changes, c)
		}
		return p, nil
	})
}

func (d *connection) Past(ctx context.Context, r driver.PastRequest) (driver.PastPage, error) {
	return transact(ctx, d, "read refs of the past", func(t *tx) (p driver.PastPage, _ error) {
		p.State = t.historyState()
		past := make(map[string]driver.Ref)
		for k, row := range t.refs {
			if k.Project == r.Project {
				past[k.Ref] = driver.Ref{Name: k.Ref, Value: row.Value, Time: row.Time, Op: row.Op}
			}
		}
		for _, c := range slices.Backward(t.history.sorted()) { // undo what came after
			if c.Project == r.Project && c.Position > r.At {
				past[c.Ref] = driver.Ref{Name: c.Ref, Value: c.Old}
			}
		}
		for _, c := range t.history.sorted() {
			if c.Project == r.Project && c.Position <= r.At {
				past[c.Ref] = driver.Ref{Name: c.Ref, Value: c.New, Time: c.Time, Op: c.Op}
			}
		}
		for _, name := range slices.Sorted(maps.Keys(past)) {
			row := past[name]
			if name <= r.After || !strings.HasPrefix(name, r.Prefix) || row.Value == driver.Unknown || row.Value.IsDeleted() && !r.Deleted || len(p.Refs) == r.Limit {
				continue
			}
			p.Refs = append(p.Refs, row)
		}
		if n := len(p.Refs); n == r.Limit {
			p.Next = p.Refs[n-1].Name
		}
		return p, nil
	})
}

func (d *connection) PositionAt(ctx context.Context, at time.Time) (p driver.Position, s driver.HistoryState, err error) {
	err = d.transact(ctx, "find a position", func(t *tx) error {
		s = t.historyState()
		p = s.Upto
		for _, c := range t.history.changes {
			if c.Time.After(at) {
				p = min(p, c.Position-1)
			}
		}
		return nil
	})
	return p, s, err
}

func (d *connection) Prune(ctx context.Context, r driver.PruneRequest) (driver.Pruned, error) {
	return write(ctx, d, "prune the history", func(t *tx) (p driver.Pruned, _ error) {
		unread := r.Upto
		for _, f := range t.history.followers {
			unread = min(unread, f.Read)
		}
		newer := make(map[key]int)
		gone := make(map[driver.ChangeKey]bool)
		all := t.history.sorted()
		for _, c := range slices.Backward(all) {
			k := key{c.Project, c.Ref}
			gone[c.Key()] = newer[k] >= r.Keep && c.Position <= max(unread, min(r.Upto, r.EvenUnread))
			newer[k]++
		}
		looked := 0
		for _, c := range all {
			if c.Key().Compare(r.After) <= 0 || c.Position > r.Upto {
				continue
			}
			if looked == r.Limit {
				break
			}
			looked++
			p.Next = c.Key()
			if gone[c.Key()] {
				p.Deleted++
				t.history.pruned = max(t.history.pruned, c.Position+1)
				if c.Time.After(t.history.prunedAt) {
					t.history.prunedAt = c.Time
				}
				t.history.changes = slices.DeleteFunc(t.history.changes, func(o driver.Change) bool { return o.Key() == c.Key() })
			}
		}
		if looked < r.Limit {
			p.Next = driver.ChangeKey{}
		}
		return p, nil
	})
}

func (d *connection) Followers(ctx context.Context) ([]driver.Follower, error) {
	return transact(ctx, d, "list followers", func(t *tx) (all []driver.Follower, _ error) {
		for _, name := range slices.Sorted(maps.Keys(t.history.followers)) {
			f := t.history.followers[name]
			f.Age = t.now.Sub(f.Seen)
			all = append(all, f)
		}
		return all, nil
	})
}

func (d *connection) PutFollower(ctx context.Context, f driver.Follower) error {
	return d.transact(ctx, "write a follower", func(t *tx) error {
		f.Seen, f.Age = t.now, 0
		t.history.followers[f.Name] = f
		return nil
	})
}

func (d *connection) RemoveFollower(ctx context.Context, name string) (bool, error) {
	return transact(ctx, d, "remove a follower", func(t *tx) (found bool, _ error) {
		_, found = t.history.followers[name]
		delete(t.history.followers, name)
		return found, nil
	})
}
