package maintenance

import (
	"context"
	"errors"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/globalrefdb/globalrefdb/site/internal/broadcast"
	"github.com/globalrefdb/globalrefdb/site/projects"
	"github.com/globalrefdb/globalrefdb/site/pusher"
)

// PruneWait is how long a prune waits for those that share the repository. New pushes wait meanwhile.
const PruneWait = 30 * time.Second

// Pruning keeps maintenance, which prunes objects that no ref reaches, apart from what brings such objects and is about to
// make refs reach them: pushes and the follower share a repository, maintenance has it alone.
//
// It is in memory: a hook pays nothing, and a daemon that died keeps nobody out. See [Pruning.AwaitInherited] for a prune that outlives
// its daemon, and [Share] and [Exclusive] for other processes.
type Pruning struct {
	mu    sync.Mutex
	repos map[string]*sharedRepo
	ended map[string]time.Duration // how long the machine was up when the last prune ended

	noInheritedPrune sync.Map // the repositories that no prune of an earlier daemon works on any more
}

// A sharedRepo is a repository that somebody shares, has alone, or waits for.
type sharedRepo struct {
	sharers int
	alone   bool
	waiting int                 // for it alone: new sharers wait, too
	freed   broadcast.Broadcast // when one of these changes
}

// Protect keeps the repository at path from being pruned until release is called. It waits for a prune
// that an earlier daemon began, too.
func (p *Pruning) Protect(ctx context.Context, path string) (release func(), err error) {
	path = filepath.Clean(path)
	if err := p.AwaitInherited(ctx, path); err != nil {
		return nil, err
	}
	return p.Share(ctx, path)
}

// Share waits until nobody has the repository alone, or waits for it.
func (p *Pruning) Share(ctx context.Context, path string) (release func(), err error) {
	err = p.wait(ctx, path, func(r *sharedRepo) bool {
		if r.alone || r.waiting > 0 {
			return false
		}
		r.sharers++
		return true
	})
	if err != nil {
		return nil, err
	}
	return sync.OnceFunc(func() { p.change(path, func(r *sharedRepo) { r.sharers-- }) }), nil
}

// Exclusive waits until nobody else shares the repository.
func (p *Pruning) Exclusive(ctx context.Context, path string) (release func(), err error) {
	p.change(path, func(r *sharedRepo) { r.waiting++ })
	err = p.wait(ctx, path, func(r *sharedRepo) bool {
		if r.alone || r.sharers > 0 {
			return false
		}
		r.alone = true
		return true
	})
	p.change(path, func(r *sharedRepo) { r.waiting-- })
	if err != nil {
		return nil, err
	}
	return sync.OnceFunc(func() { p.change(path, func(r *sharedRepo) { r.alone = false }) }), nil
}

// Pruned records that a prune has ended. It is called before the repository is released.
func (p *Pruning) Pruned(path string) {
	now, err := projects.Uptime()
	if err != nil {
		now = math.MaxInt64 // nobody is known to have started later
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended == nil {
		p.ended = map[string]time.Duration{}
	}
	p.ended[path] = now
}

// LastPruned returns how long the machine was up when the last prune of this daemon ended, and false if there was none.
func (p *Pruning) LastPruned(path string) (time.Duration, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	at, ok := p.ended[path]
	return at, ok
}

// wait waits until take has succeeded.
func (p *Pruning) wait(ctx context.Context, path string, take func(*sharedRepo) bool) error {
	for {
		p.mu.Lock()
		r := p.of(path)
		if take(r) {
			p.mu.Unlock()
			return nil
		}
		freed := r.freed.Wait()
		p.mu.Unlock()
		select {
		case <-freed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (p *Pruning) change(path string, change func(*sharedRepo)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := p.of(path)
	change(r)
	r.freed.Send()
	if *r == (sharedRepo{}) {
		delete(p.repos, path)
	}
}

func (p *Pruning) of(path string) *sharedRepo {
	if p.repos == nil {
		p.repos = map[string]*sharedRepo{}
	}
	r := p.repos[path]
	if r == nil {
		r = &sharedRepo{}
		p.repos[path] = r
	}
	return r
}

// MayHave reports whether the repository at path may have been pruned, by this daemon or an earlier one, since the guard began. The
// guard may rely on objects that it found before.
func (p *Pruning) MayHave(path string, guard pusher.Guard) bool {
	if pruned, ever := p.LastPruned(path); ever && !guard.StartedAfter(pruned) {
		return true
	}
	maintained, err := os.Stat(File(path))
	if err != nil {
		return !errors.Is(err, fs.ErrNotExist)
	}
	up, err := projects.Uptime()
	started, ok := guard.Started()
	return err != nil || !ok || !maintained.ModTime().Before(time.Now().Add(started-up-time.Second))
}

// AwaitInherited waits for a prune that an earlier daemon began and did not live to see the end of.
func (p *Pruning) AwaitInherited(ctx context.Context, path string) error {
	if _, none := p.noInheritedPrune.Load(path); none {
		return nil
	}
	release, err := Share(ctx, path)
	if err != nil {
		return err
	}
	release()
	p.noInheritedPrune.Store(path, true)
	return nil
}

// Awaited reports whether somebody waits to have the repository alone.
func (p *Pruning) Awaited(path string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.of(path).waiting > 0
}
