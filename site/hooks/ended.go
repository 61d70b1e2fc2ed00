package hooks

import (
	"context"
	"slices"
	"strings"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/head"
	"github.com/globalrefdb/globalrefdb/site/moving"
	"github.com/globalrefdb/globalrefdb/site/packs"
	"github.com/globalrefdb/globalrefdb/site/pusher"
	"github.com/globalrefdb/globalrefdb/site/wire"
)

// transactionEnded handles git's report that it has committed or aborted a transaction. It reads
// the refs' values from the repository: the lines only name the refs. A line without values ends
// nothing, because git's inner transactions report like that while the ref still exists.
//
// Only faults of the request are errors: reconcile retries whatever can't be recorded now.
func (h *Hooks) transactionEnded(ctx context.Context, hook pusher.Hook, q wire.Request) error {
	c := h.State.Config()
	r, err := c.Find(q.Dir)
	if err != nil {
		return err
	}
	lines, err := wire.ParseLines(q.Body)
	if err != nil {
		return err
	}
	h.Marks.Raise(r.Path)
	h.lookAtHead(r, q, lines)
	defer h.Logged.Over(r.Project, lines)
	var moves []*moving.Move
	defer func() { h.listUnannounced(r.Path, q, lines, moves) }()
	select {
	case <-h.State.Started():
	case <-ctx.Done():
		return nil
	}
	a, err := hook.Agent(c.GitPrograms, q.Process, h.State.Boot)
	if err != nil {
		return nil // the end of the process resolves
	}
	p := h.pushes.get(a)
	if p == nil || p.pending.Enter(ctx) != nil {
		return nil
	}
	defer p.pending.Leave()
	if hook.RunBy(a) != nil {
		// Git waits for its hooks. This one is no longer waited for, and git may have announced
		// the same moves again.
		return nil
	}
	for _, l := range lines {
		m := p.pending.Find(r.Project, l.Ref)
		if m == nil || l.OldZero() && l.NewZero() || !m.New.Equivalent(refdb.Value(l.New)) || !l.OldZero() && m.Old != refdb.Value(l.Old) {
			continue
		}
		moves = append(moves, m)
	}
	if q.State == wire.StateCommitted && len(moves) > 0 && renames(a) {
		p.renames = true
		return nil // the end of the process resolves
	}
	h.Moving.End(ctx, p.pending, moves)
	return nil
}

// listUnannounced lists the moves of a git transaction that have no intent: nobody finds these
// moves later.
func (h *Hooks) listUnannounced(path string, q wire.Request, lines []wire.Line, announced []*moving.Move) {
	if q.State != wire.StateCommitted {
		return
	}
	known := make(map[string]bool, len(announced))
	for _, m := range announced {
		known[m.Ref] = true
	}
	var refs []string
	for _, l := range lines {
		// Git's inner transactions have lines without values. A push to the branch that HEAD points
		// to has one of HEAD.
		moved := strings.HasPrefix(l.Ref, "refs/") && !(l.OldZero() && l.NewZero()) || l.Ref == "HEAD" && l.Symbolic()
		if moved && !known[l.Ref] {
			refs = append(refs, l.Ref)
		}
	}
	h.List.Moved("", path, refs...)
}

// lookAtHead has the follower check HEAD of a repository if git has moved it.
func (h *Hooks) lookAtHead(r config.Repository, q wire.Request, lines []wire.Line) {
	moved := slices.ContainsFunc(lines, func(l wire.Line) bool { return l.Ref == head.Ref && l.Symbolic() })
	if !moved || q.State != wire.StateCommitted {
		return
	}
	if p, ok := h.Projects.Get(r.Project); ok && packs.Stored(p.Project) {
		h.Follower.Look(r.Project, head.Ref)
	}
}
