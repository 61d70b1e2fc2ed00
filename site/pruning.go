package site

import (
	"context"
	"sync"
)

// pruning keeps maintenance, which prunes objects that no ref reaches, apart from what brings such objects and is about to
// make refs reach them: pushes and the follower share a repository, maintenance has it alone.
//
// It is in memory: a hook pays nothing, and a daemon that died keeps nobody out.
type pruning struct {
	mu    sync.Mutex
	repos map[string]*sharedRepo
}

// A sharedRepo is a repository that somebody shares, has alone, or waits for.
type sharedRepo struct {
	sharers int
	alone   bool
	waiting int           // for it alone: new sharers wait, too
	freed   chan struct{} // closed, and replaced, when one of these changes
}

// share waits until nobody has the repository alone.
func (p *pruning) share(ctx context.Context, path string) (release func(), err error) {
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

// alone waits until nobody else shares the repository.
func (p *pruning) alone(ctx context.Context, path string) (release func(), err error) {
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

// wait waits until take has succeeded.
func (p *pruning) wait(ctx context.Context, path string, take func(*sharedRepo) bool) error {
	for {
		p.mu.Lock()
		r := p.of(path)
		if take(r) {
			p.mu.Unlock()
			return nil
		}
		freed := r.freed
		p.mu.Unlock()
		select {
		case <-freed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (p *pruning) change(path string, change func(*sharedRepo)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := p.of(path)
	change(r)
	close(r.freed)
	r.freed = make(chan struct{})
	if *r == (sharedRepo{freed: r.freed}) {
		delete(p.repos, path)
	}
}

func (p *pruning) of(path string) *sharedRepo {
	if p.repos == nil {
		p.repos = map[string]*sharedRepo{}
	}
	r := p.repos[path]
	if r == nil {
		r = &sharedRepo{freed: make(chan struct{})}
		p.repos[path] = r
	}
	return r
}
