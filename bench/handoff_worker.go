package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

// work lets the process's workers take the lock in turns until the window ends.
func work(ctx context.Context, task handOffTask, window handOffWindow, b *board, m *mutexes) (handOffCount, error) {
	ctx, cancel := context.WithTimeout(ctx, window.End-monotonic())
	defer cancel()
	all := handOffCount{Acquired: make([]int, len(m.workers))}
	var mu sync.Mutex
	var workers errgroup.Group
	for i, mutex := range m.workers {
		workers.Go(func() error {
			w := handOffWorker{mutex: mutex, board: b, hold: task.Hold, window: window}
			for ctx.Err() == nil {
				if err := w.turn(ctx); err != nil {
					if errors.Is(ctx.Err(), context.DeadlineExceeded) {
						break // the window has ended
					}
					return fmt.Errorf("worker %d: %w", task.First+i, err)
				}
			}
			mu.Lock()
			defer mu.Unlock()
			all.Acquired[i] = len(w.latencies)
			all.Latencies = append(all.Latencies, w.latencies...)
			all.Longest = max(all.Longest, w.longest)
			return nil
		})
	}
	err := workers.Wait()
	if m.tally != nil {
		all.Attempts, all.Granted = m.tally.attempts.Load(), m.tally.granted.Load()
	}
	return all, err
}

// A handOffWorker takes the lock, holds it, releases it, and steps back until
// another has it.
type handOffWorker struct {
	mutex  mutex
	board  *board
	hold   time.Duration
	window handOffWindow

	latencies []time.Duration
	longest   time.Duration
}

func (w *handOffWorker) turn(ctx context.Context) error {
	asked := monotonic()
	if err := w.mutex.lock(ctx); err != nil {
		return err
	}
	got := monotonic()
	released, turn, err := w.board.acquired()
	if err != nil {
		return err
	}
	if got >= w.window.Begin && got < w.window.End {
		w.latencies = append(w.latencies, got-released)
		w.longest = max(w.longest, got-asked)
	}
	if w.hold > 0 {
		time.Sleep(w.hold)
	}
	w.board.releasing()
	if err := w.mutex.unlock(context.WithoutCancel(ctx)); err != nil {
		return err
	}
	return w.stepBack(ctx, turn)
}

// stepBack waits until somebody has acquired the lock after our turn. It looks
// again after a tenth of a millisecond, and less often if that takes long: a
// hand-off takes several, so the looking costs next to nothing.
func (w *handOffWorker) stepBack(ctx context.Context, turn uint64) error {
	for pause := 100 * time.Microsecond; w.board.turn() == turn; pause = min(2*pause, 2*time.Millisecond) {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		time.Sleep(pause)
	}
	return nil
}
