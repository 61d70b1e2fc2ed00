package hooks

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/policy"
	"github.com/globalrefdb/globalrefdb/site/pusher"
	"github.com/globalrefdb/globalrefdb/site/wire"
)

const (
	// snapshotRefs bounds the refs in the snapshots of all pushes together.
	snapshotRefs = 100_000
	snapshotPage = 1000 // refs per request
)

// A snapshot holds the database's values of a push's refs when the push began. The update hook is
// answered from it. That answer promises nothing: prepared finds whatever has changed since.
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
func (s *snapshot) note(states []driver.State) {
	for _, state := range states {
		if state.Lock == nil || state.Lock.Stale() {
			s.values[state.Ref] = state.Value
		} else {
			delete(s.values, state.Ref)
		}
	}
}

// snapshotFor returns the snapshot from which the update hook of a ref is answered; nil if there is
// none. If the snapshot is no longer fresh, for example behind slow hooks of the repository,
// snapshotFor reads the remaining refs again, in one request: a ref that only prepared refuses
// looks to a pusher over HTTP like a lost connection.
func (h *Hooks) snapshotFor(ctx context.Context, c *config.Config, p *push, project, ref string) (*snapshot, error) {
	s := h.pushes.snapshot(p.agent)
	if s == nil || s.project != project || s.old() {
		return s, nil
	}
	fresh := h.Limits.Fresh
	if s.reread {
		fresh = h.Limits.Reread
	}
	at := slices.Index(s.refs, ref)
	if at < 0 || time.Since(s.read) < fresh {
		return s, nil
	}
	again := *s
	again.reread, again.read, again.values = true, time.Now(), maps.Clone(s.values)
	states, err := h.Moving.States(ctx, c, project, s.refs[at:min(at+snapshotPage, len(s.refs))])
	if err != nil {
		return nil, err
	}
	again.note(states)
	h.pushes.remember(p, &again)
	return &again, nil
}

// preReceive reads the database's values of all refs of a push, before git runs the update hook for
// each ref. If that fails, the push is to be refused, as update would refuse each ref. If some refs
// are not guarded, free, the push goes on nevertheless, and update refuses the guarded ones.
func (h *Hooks) preReceive(ctx context.Context, hook pusher.Hook, q wire.Request) (free bool, err error) {
	c := h.State.Config()
	r, err := c.Find(q.Dir)
	if err != nil {
		return false, err
	}
	lines, err := wire.ParseLines(q.Body)
	if err != nil {
		return false, err
	}
	free = slices.ContainsFunc(lines, func(l wire.Line) bool { return !config.Guardable(l.Ref) })
	if !slices.ContainsFunc(lines, func(l wire.Line) bool { return config.Guardable(l.Ref) }) {
		return free, nil
	}
	if c, err = h.Policy.Ruled(ctx, c, r); err != nil {
		return free, err
	}
	var moves []refdb.Update
	for _, l := range lines {
		if c.Guards(r.Project, l.Ref) && policy.Unfit(r.Project, l) == "" {
			moves = append(moves, refdb.Update{Ref: l.Ref, Old: refdb.Value(l.Old), New: refdb.Value(l.New)})
		}
	}
	if len(moves) == 0 {
		return free, nil
	}
	free = len(moves) < len(lines)
	if err := h.Policy.RefuseFrozen(r.Project, moves); err != nil {
		return free, err
	}
	seen := make(map[string]bool, len(moves))
	refs := make([]string, 0, len(moves))
	for _, m := range moves {
		if !seen[m.Ref] {
			seen[m.Ref], refs = true, append(refs, m.Ref)
		}
	}
	slices.SortStableFunc(moves, func(a, b refdb.Update) int { return strings.Compare(a.Ref, b.Ref) })
	moves = slices.CompactFunc(moves, func(a, b refdb.Update) bool { return a.Ref == b.Ref })
	return free, h.prefetch(ctx, c, hook, q.Process, r.Project, moves, refs)
}

// prefetch takes a snapshot of the refs of moves for the push that runs the hook. Refs are in the
// order in which git runs the update hook.
func (h *Hooks) prefetch(ctx context.Context, c *config.Config, hook pusher.Hook, said *wire.Process, project string, moves []refdb.Update, refs []string) error {
	if err := h.State.AwaitServing(ctx); err != nil {
		return err
	}
	p, err := h.pushOf(c, hook, said)
	if err != nil {
		return err
	}
	now := time.Now()
	s := &snapshot{
		project: project, taken: now, read: now, lasts: h.Limits.Snapshot,
		values: map[string]refdb.Value{}, moves: moves[:min(len(moves), snapshotRefs)], refs: refs[:min(len(refs), snapshotRefs)],
	}
	// Update reads the refs that can't be read in time.
	enough := s.taken.Add(c.Timeout / 2)
	for page := range slices.Chunk(s.refs, snapshotPage) {
		if time.Now().After(enough) {
			break
		}
		states, err := h.Moving.States(ctx, c, project, page)
		if err != nil {
			return p.remember(err)
		}
		s.note(states)
	}
	h.pushes.remember(p, s)
	return nil
}
