// Package background runs the background tasks of a daemon, and knows the state of each.
package background

import (
	"context"
	"sync"
	"time"
)

// A Task runs until its context ends. It calls failed with the error of each attempt, or nil.
type Task struct {
	Name string
	Run  func(ctx context.Context, failed func(error))
}

// A State describes a task that was started.
type State struct {
	Name    string
	Running bool
	Since   time.Time // when it started or, unless it is running, ended
	Err     error     // of its last attempt
}

// Tasks are the tasks that were started. The zero value is ready to use.
type Tasks struct {
	mu  sync.Mutex
	all []*State
}

// Run runs a task until it ends.
func (t *Tasks) Run(ctx context.Context, task Task) {
	s := &State{Name: task.Name, Running: true, Since: time.Now()}
	t.change(func() { t.all = append(t.all, s) })
	defer t.change(func() { s.Running, s.Since = false, time.Now() })
	task.Run(ctx, func(err error) {
		if ctx.Err() == nil {
			t.change(func() { s.Err = err })
		}
	})
}

func (t *Tasks) change(how func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	how()
}

// States returns the states of all tasks that were started, in the order of their starts.
func (t *Tasks) States() []State {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := make([]State, len(t.all))
	for i, s := range t.all {
		all[i] = *s
	}
	return all
}
