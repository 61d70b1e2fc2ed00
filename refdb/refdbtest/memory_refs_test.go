package refdbtest_test

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/internal/queue"
)

func (d *connection) Get(ctx context.Context, project string, refs []string) ([]driver.Ref, error) {
	end, err := d.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	return d.rows(project, refs), nil
}

func (d *connection) rows(project string, refs []string) []driver.Ref {
	var rows []driver.Ref
	for _, ref := range refs {
		if r, ok := d.refs[key{project, ref}]; ok && !(d.bug == "no tombstones" && r.Value.IsDeleted()) {
			rows = append(rows, r)
		}
		d.pause("reads row by row")
	}
	return rows
}

func (d *connection) List(ctx context.Context, q driver.RefQuery) (driver.RefPage, error) {
	end, err := d.begin(ctx)
	if err != nil {
		return driver.RefPage{}, err
	}
	defer end()
	var page driver.RefPage
	keys := slices.SortedFunc(maps.Keys(d.refs), key.compare)
	if d.bug == "order of a language" {
		slices.SortStableFunc(keys, func(a, b key) int { return strings.Compare(strings.ToLower(a.ref), strings.ToLower(b.ref)) })
	}
	limit := q.Limit
	for _, k := range keys {
		r := d.refs[k]
		in := k.project == q.Project || d.bug == "projects by prefix" && strings.HasPrefix(k.project, q.Project)
		in = in && d.hasPrefix(r.Name, q.Prefix)
		in = in && (r.Name > q.After || d.bug == "page starts with the last" && r.Name == q.After)
		if d.bug == "page before tombstones" && len(page.Refs) < limit && in && r.Value.IsDeleted() && !q.Deleted {
			limit--
		}
		if in && (q.Deleted || !r.Value.IsDeleted()) && len(page.Refs) < limit {
			page.Refs = append(page.Refs, r)
		}
	}
	if r, ok := lastOf(d.bug, page.Refs, q.Limit); ok {
		page.Next = r.Name
	} else if d.bug == "endless pages" {
		page.Next = cmp.Or(q.After, "x")
	}
	return page, nil
}

func (d *connection) Summaries(ctx context.Context, q driver.SummaryQuery) (page driver.SummaryPage, err error) {
	end, err := d.begin(ctx)
	if err != nil {
		return page, err
	}
	defer end()
	all := make(map[string]driver.ProjectSummary)
	for k, r := range d.refs {
		p := all[k.project]
		if r.Value.IsDeleted() && d.bug != "tombstones are refs" {
			p.Deleted++
		} else {
			p.Refs++
		}
		if r.Time.After(p.Changed) != (d.bug == "first change") || p.Changed.IsZero() {
			p.Changed = r.Time
		}
		all[k.project] = p
	}
	for k := range d.locks {
		p, known := all[k.project]
		if strings.HasPrefix(k.project, driver.ReclaimPrefix) && d.bug != "markers are locks" || !known && d.bug == "locks are no projects" {
			continue
		}
		p.Locks++
		all[k.project] = p
	}
	names := slices.Sorted(maps.Keys(all))
	if d.bug == "order of a language" {
		slices.SortStableFunc(names, func(a, b string) int { return strings.Compare(strings.ToLower(a), strings.ToLower(b)) })
	}
	for _, name := range names {
		if (name > q.After || d.bug == "page starts with the last" && name == q.After) && len(page.Summaries) < q.Limit {
			p := all[name]
			p.Name = name
			page.Summaries = append(page.Summaries, p)
		}
	}
	if p, ok := lastOf(d.bug, page.Summaries, q.Limit); ok {
		page.Next = p.Name
	}
	return page, nil
}

// lastOf returns the row whose place is a page's Next.
func lastOf[T any](bug string, page []T, limit int) (row T, ok bool) {
	switch {
	case len(page) < limit || bug == "pages without Next":
		return row, false
	case bug == "Next of the first row":
		return page[0], true
	case bug == "Next of the row before" && limit > 1:
		return page[limit-2], true
	default:
		return page[limit-1], true
	}
}

// hasPrefix compares bytes or, with the bug, like SQL's LIKE.
func (d *connection) hasPrefix(s, prefix string) bool {
	if d.bug == "prefix by like" {
		return like(s, prefix+"%")
	}
	return strings.HasPrefix(s, prefix)
}

func like(s, pattern string) bool {
	switch {
	case pattern == "":
		return s == ""
	case pattern[0] == '%':
		return like(s, pattern[1:]) || s != "" && like(s[1:], pattern)
	default:
		return s != "" && (pattern[0] == '_' || strings.EqualFold(s[:1], pattern[:1])) && like(s[1:], pattern[1:])
	}
}

func (d *connection) States(ctx context.Context, project string, refs []string) ([]driver.State, error) {
	end, err := d.beginWrite(ctx, "States")
	if err != nil {
		return nil, err
	}
	defer end()
	var states []driver.State
	for _, ref := range refs {
		k := key{project, ref}
		row, known := d.refs[k]
		d.pause("states in two looks")
		lock, locked := d.standing(k)
		if !known && (!locked || d.bug == "states of rows only") {
			continue
		}
		s := driver.State{Ref: ref, Value: row.Value}
		if locked && !(d.bug == "states without stale locks" && lock.Stale()) {
			s.Lock = &lock.LockInfo
		}
		states = append(states, s)
	}
	return states, nil
}

func (d *connection) Update(ctx context.Context, r driver.UpdateRequest) error {
	end, err := d.beginWrite(ctx, "Update")
	if err != nil {
		return err
	}
	defer end()
	if d.bug == "names ignore case" {
		for i := range r.Updates {
			r.Updates[i].Ref = strings.ToLower(r.Updates[i].Ref)
		}
	}
	own := make(map[key]bool)
	if d.bug == "a freeze comes before a lost lock" {
		if err := d.frozen(r.Project); err != nil {
			return err
		}
	}
	if f := r.Fence; f != nil {
		var lost []string
		for _, ref := range f.Refs {
			own[key{r.Project, ref}] = true
			if !d.stands(r.Project, ref, f) {
				lost = append(lost, ref)
			}
			if d.bug == "fence looks at one row" {
				break
			}
		}
		if len(lost) > 0 {
			return fmt.Errorf("updating: %w", &driver.LostError{Project: r.Project, Refs: lost})
		}
		d.pause("fence before transaction")
	}
	if d.bug != "a freeze comes after locks" && d.bug != "freezes no updates" {
		if err := d.frozen(r.Project); err != nil {
			return err
		}
		d.pause("looks at freezes before transaction")
	}
	var holders []driver.LockInfo
	for _, u := range r.Updates {
		row, ok := d.standing(key{r.Project, u.Ref})
		heeded := r.Locks == driver.MandatoryLocks || row.Intended() && d.bug != "advisory passes intents"
		if ok && heeded && !own[key{r.Project, u.Ref}] && !(d.bug == "fence passes all" && r.Fence != nil) {
			holders = append(holders, row.LockInfo)
		}
	}
	var conflicts []driver.NameConflict
	if r.GitNames && d.bug != "updates are not judged" || d.bug == "all updates are judged" {
		var intents []driver.LockInfo
		intents, conflicts = d.excluding(r.Project, r.Updates)
		holders = slices.SortedFunc(slices.Values(slices.Concat(holders, intents)), func(a, b driver.LockInfo) int { return strings.Compare(a.Ref, b.Ref) })
		d.pause("looks at names before transaction")
	}
	locked := anyFresh(holders) && d.bug != "no mandatory locks"
	if locked && d.bug != "mismatch before lock" {
		return fmt.Errorf("updating: %w", &driver.LockedError{Holders: d.refusing(holders)})
	}
	if d.bug == "a freeze comes after locks" {
		if err := d.frozen(r.Project); err != nil {
			return err
		}
	}
	if d.bug == "stale ended though refused" {
		d.endStale(holders)
	}
	d.pause("locks before transaction")

	mismatches := d.mismatches(r)
	d.pause("compares before transaction")
	if r.Fence != nil && r.Fence.Release && (len(mismatches) == 0 && len(conflicts) == 0 && !locked || d.bug == "released though refused") {
		for _, ref := range r.Fence.Refs {
			d.end(key{r.Project, ref}, r.Fence.Next)
		}
	}
	if len(mismatches) > 0 {
		return fmt.Errorf("updating: %w", &driver.MismatchError{Project: r.Project, Mismatches: mismatches})
	}
	if locked {
		return fmt.Errorf("updating: %w", &driver.LockedError{Holders: d.refusing(holders)})
	}
	if len(conflicts) > 0 {
		return fmt.Errorf("updating: %w", &driver.NameConflictError{Project: r.Project, Conflicts: conflicts})
	}
	if d.bug != "stale locks stay" {
		d.endStale(holders)
	}
	d.write(r)
	return nil
}

// stands reports whether the lock on a ref is the fence's.
func (d *connection) stands(project, ref string, f *driver.Fence) bool {
	row, ok := d.locks[key{project, ref}]
	same := row.Token == f.Token && (row.Owner == f.Owner || d.bug == "owner ignored by fences")
	return ok && (same || d.bug == "fence by name") &&
		(!row.Intended() || d.bug == "fence passes intents") &&
		!(d.bug == "fence by age" && now().Sub(row.Heartbeat) > row.StaleAfter) &&
		d.remembers(driver.LockID{Project: project, Ref: ref, Owner: f.Owner, Token: f.Token})
}

func (d *connection) mismatches(r driver.UpdateRequest) (mismatches []driver.Mismatch) {
	for _, u := range r.Updates {
		row, known := d.refs[key{r.Project, u.Ref}]
		ok := row.Value == u.Old || row.Value.IsAbsent() && u.Old.IsAbsent() || !known && r.Adopt
		switch d.bug {
		case "zero is not unknown":
			ok = row.Value == u.Old || !known && r.Adopt
		case "unknown matches all":
			ok = ok || !known
		case "adopts tombstones":
			ok = ok || r.Adopt && row.Value.IsDeleted()
		case "values ignore case":
			ok = ok || strings.EqualFold(string(row.Value), string(u.Old))
		}
		if !ok {
			mismatches = append(mismatches, driver.Mismatch{Ref: u.Ref, Want: u.Old, Have: row.Value})
			if d.bug == "first mismatch only" {
				return mismatches
			}
		} else if d.bug == "not all or nothing" {
			d.put(r.Project, []driver.Ref{{Name: u.Ref, Value: u.New, Time: now(), Op: r.ID}}, r.Origin)
		}
	}
	return mismatches
}

func (d *connection) write(r driver.UpdateRequest) {
	var rows []driver.Ref
	for _, u := range r.Updates {
		row := driver.Ref{Name: u.Ref, Value: u.New, Time: now(), Op: r.ID}
		if d.bug == "op of the first" {
			if old, ok := d.refs[key{r.Project, u.Ref}]; ok {
				row.Op = old.Op
			}
		}
		if d.bug == "deletes rows" && u.New.IsDeleted() {
			delete(d.refs, key{r.Project, u.Ref})
			continue
		}
		if d.bug == "writes row by row" {
			d.put(r.Project, []driver.Ref{row}, r.Origin)
			d.pause(d.bug)
			continue
		}
		rows = append(rows, row)
		if d.bug == "records what was expected" {
			d.refs[key{r.Project, u.Ref}] = driver.Ref{Name: u.Ref, Value: u.Old}
		}
	}
	d.put(r.Project, rows, r.Origin)
}

func (d *connection) endStale(locks []driver.LockInfo) {
	for _, l := range locks {
		k := key{l.Project, l.Ref}
		row := d.rowOf(k, "", "")
		switch {
		case !l.Stale(), row.Lock == nil, l.Reserved() && d.bug == "passing updates leave turns that are over":
		case d.bug == "passing updates hand nothing on", l.Reserved() && d.bug == "passing updates end queues of reservations":
			delete(d.locks, k)
		default:
			d.leave(k, queue.Pass(row, now()))
		}
	}
}

func (d *connection) Remove(ctx context.Context, r driver.RemoveRequest) (int, error) {
	end, err := d.beginWrite(ctx, "Remove")
	if err != nil {
		return 0, err
	}
	defer end()
	var holders []driver.LockInfo
	for k := range d.locks {
		if row, _ := d.standing(k); d.removes(k.project, r.Project) {
			holders = append(holders, row.LockInfo)
		}
	}
	intended := slices.ContainsFunc(holders, driver.LockInfo.Intended) && d.bug != "force takes intents"
	fresh := anyFresh(holders) && r.Locks == driver.MandatoryLocks
	if (intended || fresh) && d.bug != "removes under locks" {
		return 0, fmt.Errorf("removing: %w", &driver.LockedError{Holders: d.refusing(holders)})
	}
	d.pause("removes after looking")
	d.position++
	n, left := d.delete(r.Project, r.Limit, r.Origin, func(driver.Ref) bool { return true })
	if left == 0 || d.bug == "locks go first" || d.bug == "force takes locks first" && r.Locks == driver.AdvisoryLocks {
		for _, l := range holders {
			k := key{l.Project, l.Ref}
			if d.bug != "removals wake nobody" {
				d.wake(k, d.locks[k].queue, 0)
			}
			delete(d.locks, k)
		}
	}
	return n, nil
}

func (d *connection) PurgeTombstones(ctx context.Context, r driver.TombstoneRequest) (int, error) {
	end, err := d.beginWrite(ctx, "PurgeTombstones")
	if err != nil {
		return 0, err
	}
	defer end()
	if d.bug == "tombstones heed locks" {
		for k := range d.locks {
			if row, _ := d.standing(k); k.project == r.Project && !row.Stale() {
				return 0, fmt.Errorf("purging: %w", &driver.LockedError{Holders: []driver.LockInfo{row.LockInfo}})
			}
		}
	}
	n, left := d.delete(r.Project, r.Limit, driver.Origin{}, func(ref driver.Ref) bool {
		return ref.Value.IsDeleted() && (now().Sub(ref.Time) >= r.OlderThan || d.bug == "purges young tombstones")
	})
	if d.bug == "tombstones take locks" && left == 0 {
		maps.DeleteFunc(d.locks, func(k key, _ lockRow) bool { return k.project == r.Project })
	}
	return n, nil
}

func (d *connection) removes(project, asked string) bool {
	return project == asked || d.bug == "removes by prefix" && strings.HasPrefix(project, asked)
}

// delete deletes at most limit refs of a project that match, and returns how many it deleted and
// how many are left.
func (d *connection) delete(project string, limit int, by driver.Origin, match func(driver.Ref) bool) (n, left int) {
	for _, k := range slices.SortedFunc(maps.Keys(d.refs), key.compare) {
		switch {
		case !d.removes(k.project, project) || !match(d.refs[k]):
		case n == limit && d.bug != "no limit":
			left++
		default:
			if old := d.refs[k].Value; (!old.IsDeleted() || d.bug == "purges are changes") && d.bug != "removals are no changes" {
				d.record(k, old, driver.Unknown, by)
			}
			delete(d.refs, k)
			n++
		}
	}
	return n, left
}

// refusing returns those of locks that a refusal names.
func (d *connection) refusing(locks []driver.LockInfo) []driver.LockInfo {
	if d.bug == "a refusal names what is kept for nobody" {
		return locks
	}
	return slices.DeleteFunc(slices.Clone(locks), driver.LockInfo.Idle)
}
