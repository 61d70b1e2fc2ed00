package hooks

import (
	"context"
	"errors"

	"github.com/globalrefdb/globalrefdb/site/maintenance"
	"github.com/globalrefdb/globalrefdb/site/pusher"
	"github.com/globalrefdb/globalrefdb/site/refusal"
	"github.com/globalrefdb/globalrefdb/site/wire"
)

// A share is a repository that a push shares until its process has ended.
type share struct {
	release func()
	// stale says that the repository may have been pruned since the process began: objects that
	// git found there may be gone.
	stale bool
}

// protect keeps the repository of a hook from being pruned until the process that runs the hook has
// ended. The process may rely on objects that it found earlier and that no ref reaches by now. If
// the repository was pruned since the process began, protect therefore checks that everything the
// new values reach is still there.
//
// If the process can't be identified, whoever decides about guarded refs refuses the hook.
func (h *Hooks) protect(ctx context.Context, hook pusher.Hook, q wire.Request) error {
	c := h.State.Config()
	r, err := c.Find(q.Dir)
	if err != nil {
		return nil
	}
	a, err := hook.Agent(c.GitPrograms, q.Process, h.State.Boot)
	if err != nil {
		return nil
	}
	p, err := h.track(h.State.Work, a)
	if err != nil {
		return nil
	}
	stale, err := h.sharePush(ctx, p, r.Path)
	if err != nil {
		return refusal.Because(refusal.Pruning, errors.New(wire.BeingPruned))
	}
	if !stale || q.State == wire.StatePreReceive { // the new objects are in quarantine then
		return nil
	}
	lines, err := wire.ParseLines(q.Body)
	if err != nil {
		return err
	}
	return maintenance.WholeNew(ctx, r.Path, lines)
}

// sharePush makes a push share a repository, and reports whether the repository may have been
// pruned since the process began.
func (h *Hooks) sharePush(ctx context.Context, p *push, path string) (stale bool, err error) {
	p.mu.Lock()
	known := p.shares[path]
	p.mu.Unlock()
	if known != nil {
		return known.stale, nil
	}
	if err := h.Pruning.AwaitInherited(ctx, path); err != nil {
		return false, err
	}
	release, err := h.Pruning.Share(ctx, path)
	if err != nil {
		return false, err
	}
	pruned, ever := h.Pruning.LastPruned(path)
	stale = ever && !p.agent.StartedAfter(pruned)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended || p.shares[path] != nil {
		release()
		return stale, nil
	}
	if p.shares == nil {
		p.shares = map[string]*share{}
	}
	p.shares[path] = &share{release, stale}
	return stale, nil
}

// endShares is called when the process has ended and what it left is settled.
func (h *Hooks) endShares(p *push) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended = true
	for _, s := range p.shares {
		s.release()
	}
}
