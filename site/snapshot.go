package site

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/pusher"
	"github.com/globalrefdb/globalrefdb/site/wire"
)

const (
	// snapshotRefs bounds the refs in the snapshots of all pushes together.
	snapshotRefs = 100_000
	snapshotPage = 1000 // refs per request
)

// A snapshot has the database's values of a push's refs from when the push began. The update hook is
// answered from it. That answer promises nothing: prepared finds what has changed since.
type snapshot struct {
	project string
	taken   time.Time
	lasts   time.Duration          // from then on
	values  map[string]refdb.Value // of the refs that were not locked
	moves   []refdb.Update         // that git was asked for
}

func (s *snapshot) old() bool { return time.Since(s.taken) > s.lasts }

// allows reports whether u may go on according to the snapshot. If not, the database must be asked.
func (s *snapshot) allows(project string, u refdb.Update) bool {
	if s == nil || s.project != project || s.old() {
		return false
	}
	value, read := s.values[u.Ref]
	return read && value.Equivalent(u.Old)
}

// others returns the moves of the push, beside these, that may go on according to the snapshot.
func (s *snapshot) others(project string, these []refdb.Update) (others []refdb.Update) {
	if s == nil {
		return nil
	}
	for _, m := range s.moves {
		if s.allows(project, m) && !slices.ContainsFunc(these, func(u refdb.Update) bool { return u.Ref == m.Ref }) {
			others = append(others, m)
		}
	}
	return others
}

// preReceive reads the database's values of all refs of a push, before git runs the update hook for
// each ref. If that fails, it refuses the push, as update would refuse each ref. If some refs are
// not guarded, it lets the push go on: update refuses the others.
func (d *Daemon) preReceive(ctx context.Context, hook pusher.Hook, q wire.Request) error {
	c := d.config.Load()
	r, err := c.Find(q.Dir)
	if err != nil {
		return err
	}
	lines, err := wire.ParseLines(q.Body)
	if err != nil {
		return err
	}
	free := slices.ContainsFunc(lines, func(l wire.Line) bool { return !config.Guardable(l.Ref) })
	if !slices.ContainsFunc(lines, func(l wire.Line) bool { return config.Guardable(l.Ref) }) {
		return nil
	}
	if c, err = d.ruled(ctx, c, r); err != nil && free {
		return nil
	} else if err != nil {
		return err
	}
	var moves []refdb.Update
	for _, l := range lines {
		if c.Guards(r.Project, l.Ref) && unfit(r.Project, l) == "" {
			moves = append(moves, refdb.Update{Ref: l.Ref, Old: refdb.Value(l.Old), New: refdb.Value(l.New)})
		}
	}
	if len(moves) == 0 || q.Replica {
		return nil
	}
	mixed := len(moves) < len(lines)
	slices.SortStableFunc(moves, func(a, b refdb.Update) int { return strings.Compare(a.Ref, b.Ref) })
	moves = slices.CompactFunc(moves, func(a, b refdb.Update) bool { return a.Ref == b.Ref })
	if err := d.prefetch(ctx, c, hook, q.Process, r.Project, moves); err != nil && !mixed {
		return err
	}
	return nil
}

// prefetch takes a snapshot of the moves' refs for the push that runs the hook.
func (d *Daemon) prefetch(ctx context.Context, c *config.Config, hook pusher.Hook, said *wire.Process, project string, moves []refdb.Update) error {
	if err := d.awaitServing(ctx); err != nil {
		return err
	}
	p, err := d.pushOf(c, hook, said)
	if err != nil {
		return err
	}
	s := &snapshot{project: project, taken: time.Now(), lasts: d.limits.snapshot, values: map[string]refdb.Value{}, moves: moves[:min(len(moves), snapshotRefs)]}
	refs := make([]string, len(moves))
	for i, m := range moves {
		refs[i] = m.Ref
	}
	// Update asks for what can't be read in time.
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
