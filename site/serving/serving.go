// Package serving holds the state that all parts of a running daemon share: its configuration, its
// lifetime, whether it may decide about pushes, and whether the database answers.
package serving

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/presence"
	"github.com/globalrefdb/globalrefdb/site/refusal"
	"github.com/globalrefdb/globalrefdb/site/wire"
)

// DefaultOutage is how long requests wait for a database that is away: a restart is over by then.
const DefaultOutage = 5 * time.Second

// State is what the parts of a daemon share. The daemon sets the exported fields before it starts
// any part; they don't change afterwards.
type State struct {
	// Boot identifies the boot of the machine.
	Boot string
	// Locked is the machine's uptime at the time at which the daemon locked its state directory.
	// Since then it has been the site's only daemon.
	Locked time.Duration
	// Work ends when the daemon abandons everything. A graceful stop waits for work in progress.
	Work context.Context
	// Upkeep ends as soon as the daemon begins to stop: pushes must not wait for a repack.
	Upkeep context.Context
	// DigestKey keys the digests that stand for names in logs.
	DigestKey []byte
	// Outage is how long requests wait for a database that is away.
	Outage time.Duration

	Presence  *presence.Presence
	Counts    *Counts
	Reconcile Requests
	// Tasks are the goroutines that the daemon waits for before it ends.
	Tasks sync.WaitGroup

	config    atomic.Pointer[config.Config]
	started   chan struct{}
	stopping  atomic.Bool
	finished  atomic.Bool
	inherited atomic.Bool
	health    health
}

// New returns the state of a daemon that has not started.
func New(c *config.Config, p *presence.Presence) *State {
	s := &State{
		Outage: DefaultOutage, Presence: p, Counts: newCounts(), Reconcile: newRequests(), started: make(chan struct{}),
	}
	s.config.Store(c)
	s.health.err = errors.New("it has not answered yet")
	return s
}

// Config returns the current configuration.
func (s *State) Config() *config.Config { return s.config.Load() }

// SetConfig replaces the configuration.
func (s *State) SetConfig(c *config.Config) { s.config.Store(c) }

// Digest returns the digest that stands for a ref of a project in logs.
func (s *State) Digest(project, ref string) string { return driver.Digest(s.DigestKey, project, ref) }

// Go runs f in a goroutine that the daemon waits for before it ends.
func (s *State) Go(f func(work context.Context)) { s.Tasks.Go(func() { f(s.Work) }) }

// Start records that the daemon has tried to find out what its predecessor left.
func (s *State) Start() { close(s.started) }

// Started is closed by [State.Start].
func (s *State) Started() <-chan struct{} { return s.started }

// Stop records that the daemon begins to stop: it admits nothing new.
func (s *State) Stop() { s.stopping.Store(true) }

// Stopping reports whether the daemon has begun to stop.
func (s *State) Stopping() bool { return s.stopping.Load() }

// Finish records that the stopping daemon makes no more decisions.
func (s *State) Finish() { s.finished.Store(true) }

// Inherit records that the daemon knows which intents its predecessors left.
func (s *State) Inherit() { s.inherited.Store(true) }

// Inherited reports whether the daemon knows which intents its predecessors left.
func (s *State) Inherited() bool { return s.inherited.Load() }

// AwaitInheritance waits until the daemon knows which intents its predecessors left, at most until
// ctx ends. No guarded ref may move here before.
func (s *State) AwaitInheritance(ctx context.Context) error {
	select {
	case <-s.started:
	case <-ctx.Done():
		return refusal.Because(refusal.Starting, errors.New(wire.DaemonStarting))
	}
	if !s.Inherited() {
		// The intents could not be read, for this reason.
		if err := s.Presence.Lost(); errors.Is(err, refdb.ErrLostChanges) || errors.Is(err, refdb.ErrNotAdmitted) {
			return refusal.NotServed(err)
		}
		return refusal.Because(refusal.Starting, errors.New(wire.DaemonWaiting))
	}
	return nil
}

// AwaitServing waits until the daemon can decide about moves and admits new ones, at most until ctx
// ends.
func (s *State) AwaitServing(ctx context.Context) error {
	if err := s.AwaitInheritance(ctx); err != nil {
		return err
	}
	if s.Stopping() {
		return refusal.Stops()
	}
	return s.AwaitDeciding(ctx)
}

// AwaitDeciding waits until the daemon can decide about moves, at most until ctx ends. Git may hold
// locks for such a move, and the push of which it is a part may have begun before the daemon was told
// to stop. So a daemon that stops goes on to decide, until [State.Finish].
func (s *State) AwaitDeciding(ctx context.Context) error {
	if err := s.AwaitInheritance(ctx); err != nil {
		return err
	}
	if s.finished.Load() {
		return refusal.Stops()
	}
	if err := s.Presence.Lost(); err != nil {
		return refusal.NotServed(err)
	}
	return nil
}
