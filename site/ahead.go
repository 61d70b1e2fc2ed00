package site

import (
	"context"
	"sync"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
)

const (
	aheadRefs  = 1000
	aheadFor   = time.Second
	aheadMost  = 100 // pushes
	aheadLocks = 1000
)

// aheads are what was read ahead for pushes of many refs, whose update hook
// asks about one after the other, mostly in the order of their names.
type aheads struct {
	mu      sync.Mutex
	byAgent map[agent]*ahead
}

// An ahead is what the database had of a range of a project's refs.
type ahead struct {
	project string
	at      time.Time
	// It is of the refs after the first of these names, up to the other; both are "" if
	// nothing was read yet.
	after, to string
	values    map[string]refdb.Value
	locked    map[string]bool
}

// get returns what was read for a, and whether a has asked before. It is read only.
func (as *aheads) get(a agent, project string) (*ahead, bool) {
	as.mu.Lock()
	defer as.mu.Unlock()
	h := as.byAgent[a]
	if h == nil || h.project != project {
		return nil, false
	}
	return h, true
}

func (as *aheads) put(a agent, h *ahead) {
	as.mu.Lock()
	defer as.mu.Unlock()
	for other, h := range as.byAgent {
		if time.Since(h.at) > aheadFor {
			delete(as.byAgent, other)
		}
	}
	if as.byAgent == nil {
		as.byAgent = map[agent]*ahead{}
	}
	if len(as.byAgent) < aheadMost {
		as.byAgent[a] = h
	}
}

func (h *ahead) covers(ref string) bool {
	return h.after < ref && ref <= h.to && time.Since(h.at) <= aheadFor
}

// allows reports whether what was read says that u can go on. If not, one has to ask.
func (h *ahead) allows(u refdb.Update) bool {
	return h.covers(u.Ref) && !h.locked[u.Ref] && same(h.values[u.Ref], u.Old)
}

// allowed reports whether the move may go on by what was read ahead. If the same
// process asked before, it reads ahead from here on.
func (d *Daemon) allowed(ctx context.Context, c *Config, a agent, project string, u refdb.Update) bool {
	h, before := d.aheads.get(a, project)
	switch {
	case before && h.allows(u):
		return true
	case !before:
		d.aheads.put(a, &ahead{project: project, at: time.Now()})
		return false
	case h.covers(u.Ref):
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	h, err := d.readAhead(ctx, project, u.Ref)
	d.heard(err)
	if err == nil {
		d.aheads.put(a, h)
	}
	return false
}

// readAhead reads the refs after the given one.
func (d *Daemon) readAhead(ctx context.Context, project, after string) (*ahead, error) {
	h := &ahead{
		project: project, at: time.Now(), after: after, to: "refs0", // which is after all of refs/
		values: map[string]refdb.Value{}, locked: map[string]bool{},
	}
	for l, err := range d.db.Locks(ctx, refdb.LockFilter{Project: project}) {
		if err != nil {
			return nil, err
		}
		if !l.Stale() {
			h.locked[l.Ref] = true
		}
		if len(h.locked) == aheadLocks {
			h.to = l.Ref
			break
		}
	}
	from := func(q *refdb.RefQuery) { q.After, q.Deleted = after, true }
	for ref, err := range d.db.Refs(ctx, project, "", from) {
		if err != nil {
			return nil, err
		}
		if ref.Name > h.to {
			break
		}
		h.values[ref.Name] = ref.Value
		if len(h.values) == aheadRefs {
			h.to = ref.Name
			break
		}
	}
	return h, nil
}
