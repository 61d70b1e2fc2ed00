package main

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
)

const (
	prefix    = "refs/work/"
	chunk     = 1000                   // targets submitted in one transaction
	retryWait = 200 * time.Millisecond // before a request is made again
	idleWait  = time.Second            // before targets that others hold are looked at again
)

// A Queue is the targets of a project: one ref each, whose value is the target's Progress.
type Queue struct {
	DB      *refdb.DB
	Project string
	Log     *slog.Logger // gets digests of targets, never names
	Key     []byte       // of the digests
}

// Submit creates the targets that don't exist yet, and leaves the others as they are. It may be
// repeated after an error: those that were created then exist.
func (q *Queue) Submit(ctx context.Context, names ...string) error {
	refs := make([]string, len(names))
	for i, name := range names {
		refs[i] = prefix + name
	}
	slices.Sort(refs)
	for part := range slices.Chunk(slices.Compact(refs), chunk) {
		for {
			err := q.create(ctx, part)
			if err == nil {
				break
			}
			if !errors.Is(err, refdb.ErrMismatch) && !errors.Is(err, refdb.ErrLocked) {
				return err
			}
			// Somebody submitted some of them at the same time.
			if err := pause(ctx, retryWait); err != nil {
				return err
			}
		}
	}
	return nil
}

// create creates those of refs that don't exist, all or none.
func (q *Queue) create(ctx context.Context, refs []string) error {
	rows, err := q.DB.GetAll(ctx, q.Project, refs...)
	if err != nil {
		return err
	}
	there := map[string]bool{}
	for _, row := range rows {
		there[row.Name] = !row.Value.IsAbsent()
	}
	var updates []refdb.Update
	for _, ref := range refs {
		if !there[ref] {
			updates = append(updates, refdb.Update{Ref: ref, New: refdb.Value(Active)})
		}
	}
	if len(updates) == 0 {
		return nil
	}
	return q.DB.Update(ctx, q.Project, updates)
}

// active returns the refs of all active targets, from a random one on: so that processes that start
// together seldom want the same.
func (q *Queue) active(ctx context.Context) (refs []string, err error) {
	for ref, err := range q.DB.Refs(ctx, q.Project, prefix) {
		if err != nil {
			return nil, err
		}
		if parse(ref.Value).State == Active {
			refs = append(refs, ref.Name)
		}
	}
	if len(refs) == 0 {
		return nil, nil
	}
	first := rand.IntN(len(refs))
	return slices.Concat(refs[first:], refs[:first]), nil
}

// pause waits. The error is ctx's.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}
