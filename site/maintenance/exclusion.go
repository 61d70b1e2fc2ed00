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

// PruneWait is how long a prune waits for exclusive access to a repository. New pushes wait
// meanwhile.
const PruneWait = 30 * time.Second

// A Pruning keeps two kinds of work on a repository apart: prunes, which remove objects that no ref
// reaches, and processes that bring such objects and are about to make refs reach them. Pushes and
// the follower share a repository; a prune has it exclusively.
//
// The state is in memory: it costs a hook nothing, and the state of a daemon that died excludes no
// process. See [Pruning.AwaitInherited] for a prune that outlives its daemon, and [Share] and
// [Exclusive] for other processes.
type Pruning struct {
	mu    sync.Mutex
	repos map[string]*sharedRepo
	ended map[string]time.Duration // the machine's uptime when the last prune ended, by path

	// noInheritedPrune has the paths of repositories in which no prune of an earlier daemon runs any
	// more.
	noInheritedPrune sync.Map
}

// A sharedRepo is the state of a repository that is shared, used exclusively, or waited for.
type sharedRepo struct {
	sharers   int
	exclusive bool
	waiting   int                 // callers of Exclusive that wait; new callers of Share wait for them
	changed   broadcast.Broadcast // sent when one of the other fields changes
}

// Protect keeps the repository at path from being pruned until release is called. It first waits
// for the end of a prune, even of one that an earlier daemon began.
func (p *Pruning) Protect(ctx context.Context, path string) (release func(), err error) {
	path = filepath.Clean(path)
	if err := p.AwaitInherited(ctx, path); err != nil {
		return nil, err
	}
	return p.Share(ctx, path)
}

// Share waits until no caller uses the repository exclusively, or waits to do so. The repository is
// then shared until release is called.
func (p *Pruning) Share(ctx context.Context, path string) (release func(), err error) {
	err = p.wait(ctx, path, func(r *sharedRepo) bool {
		if r.exclusive || r.waiting > 0 {
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

// Exclusive waits until no other caller shares the repository or uses it exclusively. New callers
// of [Pruning.Share] wait meanwhile, and until release is called.
func (p *Pruning) Exclusive(ctx context.Context, path string) (release func(), err error) {
	p.change(path, func(r *sharedRepo) { r.waiting++ })
	err = p.wait(ctx, path, func(r *sharedRepo) bool {
		if r.exclusive || r.sharers > 0 {
			return false
		}
		r.exclusive = true
		return true
	})
	p.change(path, func(r *sharedRepo) { r.waiting-- })
	if err != nil {
		return nil, err
	}
	return sync.OnceFunc(func() { p.change(path, func(r *sharedRepo) { r.exclusive = false }) }), nil
}

// Pruned records that a prune has ended. It must be called before the repository is released.
func (p *Pruning) Pruned(path string) {
	now, err := projects.Uptime()
	if err != nil {
		now = math.MaxInt64 // no process is known to have started later
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended == nil {
		p.ended = map[string]time.Duration{}
	}
	p.ended[path] = now
}

// LastPruned returns the machine's uptime when this daemon's last prune of the repository ended,
// and false if there was none.
func (p *Pruning) LastPruned(path string) (time.Duration, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	at, ok := p.ended[path]
	return at, ok
}

// wait waits until take returns true.
func (p *Pruning) wait(ctx context.Context, path string, take func(*sharedRepo) bool) error {
	for {
		p.mu.Lock()
		r := p.of(path)
		if take(r) {
			p.mu.Unlock()
			return nil
		}
		changed := r.changed.Wait()
		p.mu.Unlock()
		select {
		case <-changed:
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
	r.changed.Send()
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

// MayHave reports whether the repository at path may have been pruned since the guard began, by
// this daemon or an earlier one. Then objects that the guard has found there may be gone.
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

// AwaitInherited waits for the end of a prune that has outlived the daemon that began it.
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

// Awaited reports whether a caller of [Pruning.Exclusive] waits for the repository.
func (p *Pruning) Awaited(path string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.of(path).waiting > 0
}
