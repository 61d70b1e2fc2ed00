package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
)

const readersCheck = "readers that come and go get each change once"

// Readers read the changes of a database from the first on, each with a query of its own. They end again and again, and go on
// later with what they have kept of their cursors.
type readers struct {
	open    func(context.Context) (*refdb.DB, error)
	all     []*reader
	cancel  context.CancelFunc
	running sync.WaitGroup
}

// A reader is a query, and what it has got.
type reader struct {
	name   string
	query  refdb.ChangeQuery
	random *rand.Rand

	mu     sync.Mutex
	got    []refdb.Change
	cursor string
	read   refdb.Position
	err    error // why it can't go on
}

// startReaders starts readers. One of them is a registered follower.
func startReaders(ctx context.Context, open func(context.Context) (*refdb.DB, error), seed uint64, queries map[string]refdb.ChangeQuery) *readers {
	rs := &readers{open: open}
	ctx, rs.cancel = context.WithCancel(ctx)
	for name, q := range queries {
		r := &reader{name: name, query: q, random: rand.New(rand.NewPCG(seed, uint64(len(rs.all))))}
		rs.all = append(rs.all, r)
		rs.running.Go(func() {
			for ctx.Err() == nil && r.failure() == nil {
				r.readOn(ctx, open)
				sleep(ctx, randomDuration(r.random, 0, 200*time.Millisecond))
			}
		})
	}
	return rs
}

func (r *reader) failure() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err
}

// readOn reads for a while, like a process that is started and ends.
func (r *reader) readOn(ctx context.Context, open func(context.Context) (*refdb.DB, error)) {
	db, err := open(ctx)
	if err != nil {
		return // the database is down
	}
	defer db.Close()
	ctx, cancel := context.WithTimeout(ctx, randomDuration(r.random, 50*time.Millisecond, 3*time.Second))
	defer cancel()
	q := r.query
	if q.After, err = refdb.ParseCursor(r.cursor); err != nil {
		r.fail(err)
		return
	}
	var at refdb.Cursor
	for page, err := range db.Changes(ctx, q) {
		if err != nil {
			if ctx.Err() == nil {
				r.fail(err)
			}
			break
		}
		at = page.Cursor
		r.mu.Lock()
		r.got = append(r.got, page.Changes...)
		r.cursor, r.read = at.String(), at.Position()
		r.mu.Unlock()
	}
	if at != (refdb.Cursor{}) && r.query == (refdb.ChangeQuery{}) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = db.Followers().Put(ctx, "chaos "+r.name, at) // the next time, if the database is down
	}
}

func (r *reader) fail(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.err = err
}

// positions returns up to where the readers have read, the least and the most.
func (rs *readers) positions() (least, most refdb.Position) {
	for i, r := range rs.all {
		r.mu.Lock()
		if i == 0 || r.read < least {
			least = r.read
		}
		most = max(most, r.read)
		r.mu.Unlock()
	}
	return least, most
}

// check waits until the readers have all there is, ends them, and compares what they got with the history. Nobody writes
// any more.
func (rs *readers) check(ctx context.Context) (looked int, found []violation, err error) {
	defer rs.end()
	db, err := rs.open(ctx)
	if err != nil {
		return 0, nil, err
	}
	defer db.Close()
	ctx, cancel := context.WithTimeout(ctx, followLimit)
	defer cancel()
	var all []refdb.Change
	var end refdb.Position
	for page, err := range db.Changes(ctx, refdb.ChangeQuery{}) {
		if err != nil {
			return 0, nil, err
		}
		all, end = append(all, page.Changes...), page.Cursor.Position()
		if len(page.Changes) == 0 {
			break
		}
	}
	late := await(ctx, "the end of what readers read", func() error {
		least, _ := rs.positions()
		if least < end && !slices.ContainsFunc(rs.all, func(r *reader) bool { return r.failure() != nil }) {
			return fmt.Errorf("one has read up to %d of %d", least, end)
		}
		return nil
	})
	if errors.Is(late, context.Canceled) {
		return 0, nil, late
	}
	rs.end()
	found = violationOf(late)
	for _, r := range rs.all {
		looked += len(r.got)
		if r.err != nil {
			found = append(found, violation{Text: fmt.Sprintf("a reader of %s, which had read up to %d: %v", r.name, r.read, r.err)})
			continue
		}
		want := slices.DeleteFunc(slices.Clone(all), func(c refdb.Change) bool { return r.query.Project != "" && c.Project != r.query.Project })
		if slices.Equal(r.got, want) {
			continue
		}
		v := violation{Text: fmt.Sprintf("a reader of %s got %d changes, the history has %d", r.name, len(r.got), len(want))}
		for _, c := range want {
			if !slices.Contains(r.got, c) && len(v.Evidence) < 20 {
				v.Evidence = append(v.Evidence, fmt.Sprintf("missed: %+v", c))
			}
		}
		found = append(found, v)
	}
	return looked, found, nil
}

// end ends the readers.
func (rs *readers) end() {
	rs.cancel()
	rs.running.Wait()
}
