package site

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/pusher"
	"github.com/globalrefdb/globalrefdb/site/refusal"
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
	moves   []refdb.Update         // that git was asked for, in the order of the refs
	refs    []string               // of the moves, in the order in which git runs the update hook
	read    time.Time              // the last time
	reread  bool                   // it is not the first
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

// note records what the database has of refs now.
func (s *snapshot) note(states []refdb.State) {
	for _, state := range states {
		if state.Lock == nil || state.Lock.Stale() {
			s.values[state.Ref] = state.Value
		} else {
			delete(s.values, state.Ref)
		}
	}
}

// snapshotFor returns the snapshot from which the update of a ref is answered; nil if there is none. When it is not fresh any more, as behind slow hooks
// of the repository's own, the refs that are left are read again, in one request: what prepared refuses later a pusher does not
// read as the refusal of a ref, but, over HTTP, as a disconnect.
func (d *Daemon) snapshotFor(ctx context.Context, c *config.Config, p *push, project, ref string) (*snapshot, error) {
	s := d.pushes.snapshot(p.agent)
	if s == nil || s.project != project || s.old() {
		return s, nil
	}
	fresh := d.limits.fresh
	if s.reread {
		fresh = d.limits.reread
	}
	at := slices.Index(s.refs, ref)
	if at < 0 || time.Since(s.read) < fresh {
		return s, nil
	}
	again := *s
	again.reread, again.read, again.values = true, time.Now(), maps.Clone(s.values)
	states, err := d.states(ctx, c, project, s.refs[at:min(at+snapshotPage, len(s.refs))])
	if err != nil {
		return nil, err
	}
	again.note(states)
	d.pushes.remember(p, &again)
	return &again, nil
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
	if len(moves) == 0 {
		return nil
	}
	mixed := len(moves) < len(lines)
	seen := make(map[string]bool, len(moves))
	refs := make([]string, 0, len(moves))
	for _, m := range moves {
		if !seen[m.Ref] {
			seen[m.Ref], refs = true, append(refs, m.Ref)
		}
	}
	slices.SortStableFunc(moves, func(a, b refdb.Update) int { return strings.Compare(a.Ref, b.Ref) })
	moves = slices.CompactFunc(moves, func(a, b refdb.Update) bool { return a.Ref == b.Ref })
	if err := d.prefetch(ctx, c, hook, q.Process, r.Project, moves, refs); err != nil && !mixed {
		return err
	}
	return nil
}

// prefetch takes a snapshot of the moves' refs, which come in git's order, for the push that runs the hook.
func (d *Daemon) prefetch(ctx context.Context, c *config.Config, hook pusher.Hook, said *wire.Process, project string, moves []refdb.Update, refs []string) error {
	if err := d.awaitServing(ctx); err != nil {
		return err
	}
	p, err := d.pushOf(c, hook, said)
	if err != nil {
		return err
	}
	now := time.Now()
	s := &snapshot{
		project: project, taken: now, read: now, lasts: d.limits.snapshot,
		values: map[string]refdb.Value{}, moves: moves[:min(len(moves), snapshotRefs)], refs: refs[:min(len(refs), snapshotRefs)],
	}
	// Update asks for what can't be read in time.
	enough := s.taken.Add(c.Timeout / 2)
	for page := range slices.Chunk(s.refs, snapshotPage) {
		if time.Now().After(enough) {
			break
		}
		states, err := d.states(ctx, c, project, page)
		if err != nil {
			return p.remember(err)
		}
		s.note(states)
	}
	d.pushes.remember(p, s)
	return nil
}

// states asks the database for values and locks.
func (d *Daemon) states(ctx context.Context, c *config.Config, project string, refs []string) ([]refdb.State, error) {
	var states []refdb.State
	err := d.retryLocked(ctx, c, func(ctx context.Context) (err error) {
		states, err = d.db.States(ctx, project, refs)
		return err
	})
	if err != nil {
		return nil, refusal.DatabaseFailed(err)
	}
	return states, nil
}
