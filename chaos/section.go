package main

import (
	"context"
	"errors"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
)

const (
	// sectionsFile is written only inside critical sections, by all sites.
	sectionsFile = "sections.journal"
	// checkEvery is how often a holder checks that the lock is not lost.
	checkEvery = 10 * time.Millisecond
)

// A section is a critical section under a lock.
type section struct {
	*worker
	lock   *refdb.Lock
	id     string
	values map[string]refdb.Value
	left   bool
}

// section locks refs, works under the lock for about that long, and releases the lock.
func (w *worker) section(ctx context.Context, refs []string, wait bool, length time.Duration) {
	s, watched := w.enter(ctx, refs, wait)
	if s == nil {
		return
	}
	defer func() { <-watched }()
	defer s.release(ctx)
	s.stay(length)
	if w.random.IntN(2) == 0 {
		s.fenced(ctx, s.lock.Update)
	} else if w.random.IntN(2) == 0 {
		s.leave()
		s.fenced(ctx, s.lock.UpdateAndRelease)
	}
}

// holdLong holds a slow ref for up to five seconds, and moves it again and again.
func (w *worker) holdLong(ctx context.Context) {
	entering, cancel := context.WithTimeout(ctx, opLimit)
	defer cancel()
	s, watched := w.enter(entering, []string{slowRef(w.random.IntN(slowRefs))}, true)
	if s == nil {
		return
	}
	defer func() { <-watched }()
	defer s.release(ctx)
	for end := now().add(w.upTo(5 * time.Second)); now() < end && ctx.Err() == nil && !w.pausing.Load(); {
		if !s.stay(w.upTo(200 * time.Millisecond)) {
			return
		}
		updating, cancel := context.WithTimeout(ctx, opLimit)
		ok := s.fenced(updating, s.lock.Update)
		cancel()
		if !ok {
			return
		}
	}
}

// enter locks refs and returns the section, or nil if it did not get the lock.
// watched is closed after the lock's end.
func (w *worker) enter(ctx context.Context, refs []string, wait bool) (_ *section, watched <-chan struct{}) {
	from := now()
	take := w.db.TryLock
	if wait {
		take = w.db.Lock
	}
	lock, err := take(ctx, project, refs...)
	if err != nil {
		return nil, nil
	}
	s := &section{worker: w, lock: lock, id: w.id(), values: make(map[string]refdb.Value)}
	for _, ref := range refs {
		if s.values[ref], err = lock.Value(ref); err != nil {
			panic(err) // a lock has the refs that it was asked for
		}
		w.read(from, ref, s.values[ref])
	}
	done := make(chan struct{})
	guarded := lock.Context()
	go func() { // its owner waits for watched
		defer close(done)
		<-guarded.Done()
		if at := now(); errors.Is(context.Cause(guarded), refdb.ErrLockLost) {
			w.journal.write(entry{Kind: noticed, T: at, ID: s.id, Error: context.Cause(guarded).Error()})
		}
	}()
	// The section is entered at t, after the acquisition, and the lock was not lost
	// at a later moment.
	t := now()
	if lock.Err() == nil {
		w.sections.write(entry{Kind: entered, T: t, From: from, ID: s.id, Refs: refs, Token: int64(lock.Token())})
		w.ops.Add(1)
	}
	return s, done
}

// stay works in the section for d, and reports whether the lock was kept.
func (s *section) stay(d time.Duration) bool {
	for end := now().add(d); ; {
		t := now()
		if s.lock.Err() != nil {
			return false
		}
		s.sections.write(entry{Kind: held, T: t, ID: s.id})
		if t >= end {
			return true
		}
		sleep(s.lock.Context(), min(checkEvery, end.sub(t)))
	}
}

// fenced moves the section's refs with one of its lock's methods.
func (s *section) fenced(ctx context.Context, update func(context.Context, []refdb.Update, ...refdb.UpdateOption) error) bool {
	return s.update(s.lock.Refs(), s.values, s.lock.Token(), func(u []refdb.Update) error { return update(ctx, u) })
}

// leave notes the section's end, before the lock is released. It does so once:
// after a release whose reply was lost nobody knows whether the lock still stands.
func (s *section) leave() {
	if t := now(); !s.left && s.lock.Err() == nil {
		s.sections.write(entry{Kind: left, T: t, ID: s.id})
	}
	s.left = true
}

func (s *section) release(ctx context.Context) {
	s.leave()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), opLimit)
	defer cancel()
	// An error needs no handling: the lock has ended, or goes stale.
	_ = s.lock.Release(ctx)
}
