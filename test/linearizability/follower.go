package linearizability

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/globalrefdb/globalrefdb/refdb"
)

// A Follower reads all changes of a database while others work on it.
type Follower struct {
	db     *refdb.DB
	cancel context.CancelFunc
	done   chan struct{}
	got    []refdb.Change
	read   chan refdb.Position // the last position that was read, as it grows
	err    error
}

// Follow starts to read the changes after a cursor. It ends with ctx, or with a Check.
func Follow(ctx context.Context, db *refdb.DB, after refdb.Cursor) *Follower {
	ctx, cancel := context.WithCancel(ctx)
	f := &Follower{db: db, cancel: cancel, done: make(chan struct{}), read: make(chan refdb.Position, 1)}
	go func() {
		defer close(f.done)
		for page, err := range db.Changes(ctx, refdb.ChangeQuery{After: after}) {
			if err != nil {
				f.err = err
				return
			}
			f.got = append(f.got, page.Changes...)
			select {
			case <-f.read: // nobody looked
			default:
			}
			f.read <- page.Cursor.Position()
		}
	}()
	return f
}

// Check waits until the follower has read all changes of some projects, and returns an error unless the history is
// whole: of each ref, the changes form one chain from an old value to a new one, which ends with what the ref holds; and the
// follower got exactly these changes, each once, in order. The projects were empty where it began, and nobody writes any
// more. It returns how many changes there are.
func (f *Follower) Check(ctx context.Context, projects []string) (n int, err error) {
	all := make(map[string][]refdb.Change)
	var last refdb.Position
	for _, p := range projects {
		if all[p], err = f.log(ctx, p); err != nil {
			return 0, err
		}
		for _, c := range all[p] {
			last = max(last, c.Position)
		}
		n += len(all[p])
	}
	for read := refdb.Position(-1); read < last; {
		select {
		case read = <-f.read:
		case <-f.done:
			return n, fmt.Errorf("the follower ended: %w", f.err)
		case <-ctx.Done():
			return n, fmt.Errorf("the follower has read up to %d, the last change is at %d: %w", read, last, ctx.Err())
		}
	}
	f.cancel()
	if <-f.done; !errors.Is(f.err, context.Canceled) {
		return n, fmt.Errorf("the follower ended: %w", f.err)
	}
	if !slices.IsSortedFunc(f.got, func(a, b refdb.Change) int { return a.Key().Compare(b.Key()) }) {
		return n, errors.New("the follower got changes out of order")
	}
	for _, p := range projects {
		got := slices.DeleteFunc(slices.Clone(f.got), func(c refdb.Change) bool { return c.Project != p })
		if !slices.Equal(got, all[p]) {
			return n, fmt.Errorf("%s: the follower got %d changes, the history has %d, or they differ", p, len(got), len(all[p]))
		}
	}
	return n, nil
}

// log returns a project's changes in order, if they form a chain for each ref.
func (f *Follower) log(ctx context.Context, project string) (all []refdb.Change, err error) {
	for c, err := range f.db.History(ctx, project, "") {
		if err != nil {
			return nil, err
		}
		all = append(all, c)
	}
	slices.Reverse(all)
	held := make(map[string]refdb.Value)
	for _, c := range all {
		if c.Old != held[c.Ref] {
			return nil, fmt.Errorf("%s %s: position %d found %q, the change before it left %q", project, c.Ref, c.Position, c.Old, held[c.Ref])
		}
		if held[c.Ref] = c.New; c.New == refdb.Unknown {
			delete(held, c.Ref)
		}
	}
	now := make(map[string]refdb.Value)
	for r, err := range f.db.Refs(ctx, project, "", refdb.IncludeDeleted()) {
		if err != nil {
			return nil, err
		}
		now[r.Name] = r.Value
	}
	if !maps.Equal(held, now) {
		return nil, fmt.Errorf("%s: by the history the refs hold %v, they hold %v", project, held, now)
	}
	return all, nil
}
