package main

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
)

// A Claim is a target that this process has the lock of.
type Claim struct {
	Name     string
	Frontier string      // the note of its last checkpoint; "" at first
	Token    refdb.Token // for resources outside the database: a later claim has a larger one
}

// A Step does the next piece of a target's work, makes it durable, and only then returns how far the
// work has come: with Active it is called again. After a crash it is called again with the frontier
// that it has had before, and must find what it did. It ends when ctx does: then the lock is lost.
//
// Only its verdict parks a target. An error does not: it is treated by its [refdb.Class] as those of
// the database are.
type Step func(ctx context.Context, c Claim) (Progress, error)

// Run works on the active targets, on several at once, until none is left or ctx ends. Targets that
// others hold are waited for, as those others may die.
func (q *Queue) Run(ctx context.Context, workers int, step Step) error {
	for {
		targets, err := q.active(ctx)
		switch {
		case refdb.ClassOf(err) == refdb.Retryable:
			q.Log.Warn("the targets can't be listed")
		case err != nil || len(targets) == 0:
			return err
		default:
			claimed, err := q.pass(ctx, targets, workers, step)
			if err != nil {
				return err
			}
			if claimed > 0 {
				continue
			}
		}
		if err := pause(ctx, idleWait); err != nil {
			return err
		}
	}
}

// pass goes through the targets once, and returns how many it got. An error ends all of the workers
// once they have ended their steps.
func (q *Queue) pass(ctx context.Context, targets []string, workers int, step Step) (int, error) {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	var next, claimed atomic.Int64
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < len(targets) && ctx.Err() == nil; i = int(next.Add(1)) - 1 {
				lock, err := q.DB.TryLock(ctx, q.Project, targets[i])
				if err == nil {
					claimed.Add(1)
					err = q.work(ctx, lock, targets[i], step)
				}
				if refdb.ClassOf(err) == refdb.Permanent {
					end(err)
				}
			}
		})
	}
	wg.Wait()
	return int(claimed.Load()), context.Cause(ctx)
}

// work does a target's steps, and leaves it active if one fails.
func (q *Queue) work(ctx context.Context, lock *refdb.Lock, ref string, step Step) error {
	defer lock.Release(ctx) // if it fails it goes on in the background
	value, err := lock.Value(ref)
	if err != nil {
		return err
	}
	log := q.Log.With("target", driver.Digest(q.Key, q.Project, ref))
	for was := parse(value); was.State == Active && ctx.Err() == nil; {
		claim := Claim{strings.TrimPrefix(ref, prefix), was.Note, lock.Token()}
		var is Progress
		err := within(lock, func(ctx context.Context) (err error) {
			is, err = step(ctx, claim)
			return err
		})
		if err == nil {
			err = q.save(lock, ref, was, is)
		}
		if err != nil {
			log.Warn("stopped", "class", refdb.ClassOf(err))
			return err
		}
		if is.State != Active {
			log.Info("ended", "state", is.State)
		}
		was = is
	}
	return nil
}

// save records progress under the lock, and gives the lock up with the last.
func (q *Queue) save(lock *refdb.Lock, ref string, was, is Progress) error {
	oldValue, err := was.value()
	if err != nil {
		return err
	}
	newValue, err := is.value()
	if err != nil {
		return err
	}
	update := lock.UpdateAndRelease
	if is.State == Active {
		update = lock.Update
	}
	return within(lock, func(ctx context.Context) error {
		return update(ctx, []refdb.Update{{Ref: ref, Old: oldValue, New: newValue}})
	})
}

// within repeats an act while it fails in a way that may pass, as long as the lock stands.
func within(lock *refdb.Lock, act func(context.Context) error) error {
	ctx := lock.Context()
	for {
		err := act(ctx)
		if refdb.ClassOf(err) != refdb.Retryable {
			return err
		}
		if err := pause(ctx, retryWait); err != nil {
			return err
		}
	}
}
