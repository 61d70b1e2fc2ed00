package site

import (
	"context"
	"errors"
	"path/filepath"

	"github.com/globalrefdb/globalrefdb/site/maintenance"
	"github.com/globalrefdb/globalrefdb/site/pusher"
	"github.com/globalrefdb/globalrefdb/site/refusal"
	"github.com/globalrefdb/globalrefdb/site/wire"
)

// A share is a repository that a push shares until its process has ended.
type share struct {
	release func()
	// stale says that the repository may have been pruned since the process began: what git found there then may be gone.
	stale bool
}

// share keeps a repository from being pruned until release is called.
func (d *Daemon) share(ctx context.Context, path string) (release func(), err error) {
	path = filepath.Clean(path)
	if err := d.pruning.AwaitInherited(ctx, path); err != nil {
		return nil, err
	}
	return d.pruning.Share(ctx, path)
}

// protect keeps the repository of a hook from being pruned until the process that runs the hook has ended. The process may rely on
// objects that it found before, and that no ref reaches by now: if the repository was pruned since it began, protect looks
// whether all that the new values reach is still there.
//
// A process that can't be told is left to those who decide about guarded refs.
func (d *Daemon) protect(ctx context.Context, hook pusher.Hook, q wire.Request) error {
	c := d.config.Load()
	r, err := c.Find(q.Dir)
	if err != nil {
		return nil
	}
	a, err := hook.Agent(c.GitPrograms, q.Process, d.boot)
	if err != nil {
		return nil
	}
	p, err := d.track(d.work, a)
	if err != nil {
		return nil
	}
	stale, err := d.sharePush(ctx, p, r.Path)
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

// sharePush lets a push share a repository, and reports whether that may have been pruned since the process began.
func (d *Daemon) sharePush(ctx context.Context, p *push, path string) (stale bool, err error) {
	p.mu.Lock()
	known := p.shares[path]
	p.mu.Unlock()
	if known != nil {
		return known.stale, nil
	}
	if err := d.pruning.AwaitInherited(ctx, path); err != nil {
		return false, err
	}
	release, err := d.pruning.Share(ctx, path)
	if err != nil {
		return false, err
	}
	pruned, ever := d.pruning.LastPruned(path)
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

// endShares is called when the process has ended, and what it left is dealt with.
func (d *Daemon) endShares(p *push) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended = true
	for _, s := range p.shares {
		s.release()
	}
}
