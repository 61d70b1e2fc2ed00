package config

import (
	"context"
	"sync"
)

// InParallel calls do for each repository, for at most limit of them at a time. It calls done with
// each result, one call at a time and in the order of the repositories. Once ctx has ended it
// starts no more calls of do; it waits for those that run, and calls done for these, too.
func InParallel[T any](ctx context.Context, repositories []Repository, limit int, do func(context.Context, Repository) T, done func(Repository, T)) {
	results := make([]chan T, len(repositories))
	for i := range results {
		results[i] = make(chan T, 1)
	}
	slots := make(chan struct{}, limit)
	var workers sync.WaitGroup
	workers.Go(func() {
		for i, r := range repositories {
			slots <- struct{}{}
			if ctx.Err() != nil {
				for _, never := range results[i:] {
					close(never)
				}
				return
			}
			workers.Go(func() {
				defer func() { <-slots }()
				results[i] <- do(ctx, r)
			})
		}
	})
	defer workers.Wait()
	for i, r := range repositories {
		result, ok := <-results[i]
		if !ok {
			return
		}
		done(r, result)
	}
}
