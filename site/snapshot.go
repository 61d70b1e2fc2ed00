package site

import (
	"context"
	"slices"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/site/wire"
)

const (
	// snapshotRefs bounds the refs in the snapshots of all pushes together.
	snapshotRefs = 100_000
	snapshotPage = 1000 // refs per request
	snapshotFor  = time.Minute
)

// A snapshot is what the database had of a push's refs when the push began. It
// answers the update hook, which promises nothing: prepared finds what has
// changed since.
type snapshot struct {
	project string
	taken   time.Time
	values  map[string]refdb.Value // of the refs that were not locked
}

func (s *snapshot) old() bool { return time.Since(s.taken) > snapshotFor }

// allows reports whether the snapshot lets u go on. If not, the database is to be asked.
func (s *snapshot) allows(project string, u refdb.Update) bool {
	if s == nil || s.project != project || s.old() {
		return false
	}
	value, read := s.values[u.Ref]
	return read && same(value, u.Old)
}

// preReceive reads what the database has of all refs of a push, before git runs
// the update hook for each of them. If that fails it refuses the push, as update
// would each of its refs; unless some refs are not guarded: those are to go on.
func (d *Daemon) preReceive(ctx context.Context, hook peer, q wire.Request) error {
	c := d.config.Load()
	r, err := c.Find(q.Dir)
	if err != nil {
		return err
	}
	lines, err := wire.ParseLines(q.Body)
	if err != nil {
		return err
	}
	var refs []string
	for _, l := range lines {
		if c.Guards(r.Project, l.Ref) && unfit(r.Project, l) == "" {
			refs = append(refs, l.Ref)
		}
	}
	if len(refs) == 0 || q.Replica {
		return nil
	}
	mixed := len(refs) < len(lines)
	slices.Sort(refs)
	if err := d.prefetch(ctx, c, hook, q.Process, r.Project, slices.Compact(refs)); err != nil && !mixed {
		return err
	}
	return nil
}

// prefetch takes a snapshot of refs for the push that runs the hook.
func (d *Daemon) prefetch(ctx context.Context, c *Config, hook peer, said *wire.Process, project string, refs []string) error {
	if err := d.serving(ctx); err != nil {
		return err
	}
	p, err := d.pushing(c, hook, said)
	if err != nil {
		return err
	}
	s := &snapshot{project: project, taken: time.Now(), values: map[string]refdb.Value{}}
	// What can't be read in time, update asks for.
	enough := s.taken.Add(c.Timeout / 2)
	for page := range slices.Chunk(refs[:min(len(refs), snapshotRefs)], snapshotPage) {
		if time.Now().After(enough) {
			break
		}
		states, err := d.states(ctx, c, project, page)
		if err != nil {
			return p.remember(err)
		}
		for _, state := range states {
			if state.Lock == nil || state.Lock.Stale() {
				s.values[state.Ref] = state.Value
			}
		}
	}
	d.pushes.remember(p, s)
	return nil
}
