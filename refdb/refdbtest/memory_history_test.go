package refdbtest_test

import (
	"context"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
)

// history has all changes of refs.
type history struct {
	changes   []driver.Change // as they were made
	position  driver.Position
	state     driver.HistoryState
	followers map[string]driver.Follower
}

func newHistory() history {
	return history{
		state:     driver.HistoryState{Pruned: 1, Epochs: []driver.Epoch{{ID: "epoch", First: 1, Began: now()}}},
		followers: make(map[string]driver.Follower),
	}
}

// put writes rows of refs, in one transaction, and records the changes.
func (d *connection) put(project string, rows []driver.Ref, by driver.Origin) {
	if len(rows) > 0 {
		d.position++
	}
	for i, row := range rows {
		k := key{project, row.Name}
		if i > 0 && d.bug == "a position per ref" {
			d.position++
		}
		d.record(k, d.refs[k].Value, row.Value, by)
		d.refs[k] = row
	}
}

func (d *connection) record(k key, from, to driver.Value, by driver.Origin) {
	switch d.bug {
	case "records nothing":
		return
	case "records no deletions":
		if to.IsDeleted() {
			return
		}
	case "records by nobody":
		by.By = ""
	case "records without the owner":
		by.Owner = ""
	case "a deleted ref is unknown":
		if from.IsDeleted() {
			from = driver.Unknown
		}
	}
	position := d.position
	if d.bug == "positions before their turn" {
		// Another transaction takes the next position, and is recorded first.
		d.pause(d.bug)
	}
	d.changes = append(d.changes, driver.Change{
		Project: k.project, Ref: k.ref, Old: from, New: to, Position: position, Time: now(), Op: by.ID, Owner: by.Owner, By: by.By,
	})
}

func (d *connection) sortedChanges() []driver.Change {
	return slices.SortedFunc(slices.Values(d.changes), func(a, b driver.Change) int { return a.Key().Compare(b.Key()) })
}

func (d *connection) stateOfHistory() driver.HistoryState {
	s := d.state
	s.Upto, s.Ended, s.Begun, s.Admitted = d.position, d.position, d.position, d.server == d.admitted || d.bug == "readers are always let through"
	if d.bug == "what has ended is complete" {
		s.Upto, s.Ended, s.Begun = s.Upto+1, s.Ended+1, s.Begun+1
	}
	s.Epochs = slices.Clone(s.Epochs)
	if d.bug == "the history begins later" {
		s.Epochs = []driver.Epoch{{ID: "epoch", First: d.position + 1, Began: now()}}
	}
	return s
}

func (d *connection) HistoryState(ctx context.Context) (s driver.HistoryState, err error) {
	end, err := d.begin(ctx)
	if err != nil {
		return s, err
	}
	defer end()
	return d.stateOfHistory(), nil
}

func (d *connection) Newest(ctx context.Context) (c driver.Change, s driver.HistoryState, err error) {
	end, err := d.begin(ctx)
	if err != nil {
		return c, s, err
	}
	defer end()
	s = d.stateOfHistory()
	for _, next := range d.sortedChanges() {
		switch {
		case next.Position < s.Pruned:
		case d.bug == "the newest by position" && next.Position == c.Position:
		case d.bug == "the newest by name" && c.Ref != "" && next.Ref < c.Ref:
		default:
			c = next
		}
	}
	return c, s, nil
}

func (d *connection) Tip(ctx context.Context, project string) (t driver.Tip, err error) {
	end, err := d.begin(ctx)
	if err != nil {
		return t, err
	}
	defer end()
	t = driver.Tip{Revision: d.projects[project].Revision, Server: d.server, State: d.stateOfHistory()}
	switch d.bug {
	case "tips without a revision":
		t.Revision = 0
	case "the admitted server is the tip's":
		t.Server = d.admitted
	}
	for _, c := range d.sortedChanges() {
		switch {
		case c.Project != project && !(d.bug == "tips of all projects") && !(d.bug == "tips by prefix" && strings.HasPrefix(c.Project, project)):
		case d.bug == "the tip is the first change" && t.Newest > 0:
		case d.bug == "deletions have no tip" && c.New.IsAbsent():
		default:
			t.Newest = c.Position
		}
	}
	d.pause("tips in two looks")
	for k, i := range d.intents {
		of := k.project == project || d.bug == "intents of all projects" || d.bug == "intents by prefix" && strings.HasPrefix(k.project, project)
		pending := i.Decision == driver.Pending && d.bug != "nothing is pending" || i.Decision != driver.Pending && d.bug == "the decided are pending"
		t.Pending = t.Pending || of && pending
	}
	return t, nil
}

func (d *connection) Changes(ctx context.Context, r driver.ChangesRequest) (p driver.ChangesPage, err error) {
	end, err := d.begin(ctx)
	if err != nil {
		return p, err
	}
	defer end()
	p.State = d.stateOfHistory()
	p.Next = driver.ChangeKey{Position: p.State.Upto + 1}
	for _, c := range d.sortedChanges() {
		if c.Key() == r.Last || d.bug == "looks up by position" && c.Position == r.Last.Position {
			p.LastOp, p.LastFound = c.Op, true
		}
		behind := c.Key().Compare(r.After) <= 0
		if d.bug == "begins with the last" {
			behind = c.Key().Compare(r.After) < 0
		}
		of := c.Project == r.Project || d.bug == "changes by prefix of the project" && strings.HasPrefix(c.Project, r.Project)
		if behind || c.Position < p.State.Pruned && d.bug != "reads what is left below the mark" || r.Project != "" && (!of || !d.hasPrefix(c.Ref, r.Prefix)) {
			continue
		}
		if len(p.Changes) == r.Limit {
			p.Next = p.Changes[r.Limit-1].Key()
			if d.bug == "a page ends a position" {
				p.Next = driver.ChangeKey{Position: p.Next.Position + 1}
			}
			break
		}
		p.Changes = append(p.Changes, c)
	}
	if d.bug == "an empty page is not the last" && len(p.Changes) == 0 {
		p.Next = driver.ChangeKey{Position: p.State.Upto}
	}
	if d.bug == "looks up nothing" {
		p.LastOp, p.LastFound = "", false
	}
	return p, nil
}

func (d *connection) Log(ctx context.Context, r driver.LogRequest) (p driver.LogPage, err error) {
	end, err := d.begin(ctx)
	if err != nil {
		return p, err
	}
	defer end()
	p.State = d.stateOfHistory()
	for _, c := range slices.Backward(d.sortedChanges()) {
		of := c.Project == r.Project || d.bug == "a log by prefix" && strings.HasPrefix(c.Project, r.Project)
		if !of || r.Ref != "" && c.Ref != r.Ref || r.Before != (driver.ChangeKey{}) && c.Key().Compare(r.Before) >= 0 {
			continue
		}
		if len(p.Changes) == r.Limit {
			p.Next = p.Changes[r.Limit-1].Key()
			if d.bug == "a page of a log ends a position" {
				p.Next = driver.ChangeKey{Position: p.Next.Position}
			}
			break
		}
		p.Changes = append(p.Changes, c)
	}
	return p, nil
}

func (d *connection) Past(ctx context.Context, r driver.PastRequest) (p driver.PastPage, err error) {
	end, err := d.begin(ctx)
	if err != nil {
		return p, err
	}
	defer end()
	p.State = d.stateOfHistory()
	past := make(map[string]driver.Ref)
	for k, row := range d.refs {
		if k.project == r.Project {
			past[k.ref] = row
		}
	}
	after := func(c driver.Change) bool { return c.Position > r.At }
	if d.bug == "the past before a position" {
		after = func(c driver.Change) bool { return c.Position >= r.At }
	}
	all := d.sortedChanges()
	for _, c := range slices.Backward(all) {
		if _, stands := past[c.Ref]; c.Project == r.Project && after(c) && d.bug != "the past is the present" && (stands || d.bug != "the past of standing refs") {
			past[c.Ref] = driver.Ref{Name: c.Ref, Value: c.Old}
		}
	}
	for _, c := range all {
		if _, stands := d.refs[key{c.Project, c.Ref}]; c.Project == r.Project && !after(c) && d.bug != "a past without operations" && (stands || d.bug != "the past of standing refs") {
			past[c.Ref] = driver.Ref{Name: c.Ref, Value: c.New, Time: c.Time, Op: c.Op}
		}
	}
	names := slices.Sorted(maps.Keys(past))
	names = slices.DeleteFunc(names, func(name string) bool { return name <= r.After || !d.hasPrefix(name, r.Prefix) })
	if len(names) > r.Limit {
		names = names[:r.Limit]
		if p.Next = names[r.Limit-1]; d.bug == "one page of the past" {
			p.Next = ""
		}
	}
	for _, name := range names {
		row := past[name]
		if row.Value == driver.Unknown && d.bug != "the unknown are listed" || row.Value.IsDeleted() && !r.Deleted && d.bug != "the deleted are listed" {
			continue
		}
		p.Refs = append(p.Refs, row)
	}
	return p, nil
}

func (d *connection) PositionAt(ctx context.Context, t time.Time) (p driver.Position, s driver.HistoryState, err error) {
	end, err := d.begin(ctx)
	if err != nil {
		return p, s, err
	}
	defer end()
	s = d.stateOfHistory()
	p = s.Upto
	for _, c := range d.changes {
		if c.Time.After(t) || d.bug == "a position before its time" && c.Time.Equal(t) {
			p = min(p, c.Position-1)
		}
	}
	switch d.bug {
	case "any time is now":
		p = s.Upto
	case "positions of the future":
		p++
	}
	return p, s, nil
}

func (d *connection) Prune(ctx context.Context, r driver.PruneRequest) (p driver.Pruned, err error) {
	end, err := d.beginWrite(ctx, "Prune")
	if err != nil {
		return p, err
	}
	defer end()
	if d.bug == "none is pruned unread" {
		r.EvenUnread = math.MinInt64
	}
	unread := r.Upto
	for _, f := range d.followers {
		if d.bug != "followers are ignored" {
			unread = min(unread, f.Read)
		}
	}
	all := d.sortedChanges()
	newer, gone := make(map[key]int), make(map[driver.ChangeKey]bool)
	for _, c := range slices.Backward(all) {
		k := key{c.Project, c.Ref}
		gone[c.Key()] = (newer[k] >= r.Keep || d.bug == "keeps none") && c.Position <= max(unread, min(r.Upto, r.EvenUnread))
		newer[k]++
	}
	looked := 0
	for _, c := range all {
		if c.Key().Compare(r.After) <= 0 || c.Position > r.Upto && d.bug != "prunes the young" || looked == r.Limit {
			continue
		}
		looked++
		p.Next = c.Key()
		if !gone[c.Key()] && d.bug != "prunes the young" {
			continue
		}
		p.Deleted++
		if d.bug != "the mark stays" {
			d.state.Pruned = max(d.state.Pruned, c.Position+1)
		}
		if c.Time.After(d.state.PrunedTime) && d.bug != "no time of the pruned" {
			d.state.PrunedTime = c.Time
		}
		d.changes = slices.DeleteFunc(d.changes, func(o driver.Change) bool { return o.Key() == c.Key() })
	}
	if looked < r.Limit || d.bug == "prunes one chunk" {
		p.Next = driver.ChangeKey{}
	}
	return p, nil
}

func (d *connection) Followers(ctx context.Context) (all []driver.Follower, err error) {
	end, err := d.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	names := slices.Sorted(maps.Keys(d.followers))
	if d.bug == "followers without order" {
		slices.Reverse(names)
	}
	for _, name := range names {
		f := d.followers[name]
		f.Age = now().Sub(f.Seen)
		all = append(all, f)
	}
	return all, nil
}

func (d *connection) PutFollower(ctx context.Context, f driver.Follower) error {
	end, err := d.begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	if _, known := d.followers[f.Name]; known && d.bug == "a cursor stays" {
		return nil
	}
	if f.Age = 0; d.bug != "a follower's own time" {
		f.Seen = now()
	}
	d.followers[f.Name] = f
	return nil
}

func (d *connection) RemoveFollower(ctx context.Context, name string) (bool, error) {
	end, err := d.begin(ctx)
	if err != nil {
		return false, err
	}
	defer end()
	_, found := d.followers[name]
	delete(d.followers, name)
	return found || d.bug == "every follower was there", nil
}
