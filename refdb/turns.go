package refdb

import (
	"context"
	"sync"
)

// readTurns bound how many readers of changes read by themselves at a time.
type readTurns struct {
	all    chan struct{} // has an element for each of them
	mu     sync.Mutex
	groups map[string]*readGroup // that have a reader which reads, or waits for its turn
}

// A readGroup has one turn.
type readGroup struct {
	turn    chan struct{}
	readers int
}

func newReadTurns(n int) readTurns {
	return readTurns{all: make(chan struct{}, n), groups: map[string]*readGroup{}}
}

// begin waits for a turn of a reader of a group, and returns what ends the turn; or ctx's error.
func (t *readTurns) begin(ctx context.Context, group string) (end func(), err error) {
	leave := func() {}
	if group != "" {
		if leave, err = t.beginGroup(ctx, group); err != nil {
			return nil, err
		}
	}
	select {
	case t.all <- struct{}{}:
		return func() { <-t.all; leave() }, nil
	case <-ctx.Done():
		leave()
		return nil, ctx.Err()
	}
}

func (t *readTurns) beginGroup(ctx context.Context, name string) (end func(), err error) {
	t.mu.Lock()
	g := t.groups[name]
	if g == nil {
		g = &readGroup{turn: make(chan struct{}, 1)}
		t.groups[name] = g
	}
	g.readers++
	t.mu.Unlock()
	leave := func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if g.readers--; g.readers == 0 {
			delete(t.groups, name)
		}
	}
	select {
	case g.turn <- struct{}{}:
		return func() { <-g.turn; leave() }, nil
	case <-ctx.Done():
		leave()
		return nil, ctx.Err()
	}
}
