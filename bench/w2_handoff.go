package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
)

const (
	handOffProcesses = 4
	handOffWorkers   = 4 // per process

	fairness = "least_served"
	longest  = "longest_wait_ms"
	attempts = "attempts"
)

// handOffWorkload is W2: everybody wants the same lock.
func handOffWorkload(ctx context.Context, s *servers) (workload, error) {
	if err := errors.Join(s.needPostgres(ctx), s.needEtcd()); err != nil {
		return workload{}, err
	}
	w := workload{
		id:    "W2",
		title: fmt.Sprintf("one lock, %d workers in %d processes", handOffProcesses*handOffWorkers, handOffProcesses),
		setting: fmt.Sprintf("PostgreSQL %s: %seach measurement takes %s. etcd %s: one member in this program, default settings. "+
			"Who has released queues again only after another has acquired. Latency is from the call to release to the next holder's return from lock. "+
			"Least served: the worker with the fewest hand-offs, as a part of an equal share. Tries: how often the database was asked for the lock, per hand-off. "+
			"The bound: a session advisory lock as the queue in front of the floor's row.",
			s.postgres.version, postgresSetting, s.d, etcdVersion()),
		metrics: []metric{{perSecond, "hand-offs/s", 0}, {p50, "p50 ms", 2}, {p99, "p99 ms", 2},
			{fairness, "least served", 2}, {longest, "longest wait ms", 0}, {attempts, "tries", 2}},
	}
	for _, hold := range []time.Duration{0, 2 * time.Millisecond} {
		c := benchCase{name: fmt.Sprintf("held %d ms", hold.Milliseconds()), baseline: string(boundMutex)}
		for _, kind := range []mutexKind{boundMutex, refdbMutex, pollingMutex, etcdMutex, pglockMutex} {
			c.contestants = append(c.contestants, contestant{string(kind), func(ctx context.Context) (sample, error) {
				return s.handOffs(ctx, kind, hold, handOffProcesses, handOffWorkers, s.d)
			}})
		}
		w.cases = append(w.cases, c)
	}
	return w, nil
}

// A handOffTask tells a process of workers what to do.
type handOffTask struct {
	Mutex    mutexKind
	Database string // its URL
	Etcd     string // endpoint
	Prefix   string // of etcd's keys
	Board    string // the shared memory's file
	Hold     time.Duration
	First    int // number of its first worker
	Workers  int
}

// A handOffWindow is when hand-offs count, by [monotonic].
type handOffWindow struct {
	Begin, End time.Duration
}

// A handOffCount is what a process of workers reports about the window.
type handOffCount struct {
	Acquired  []int           // by worker
	Latencies []time.Duration // from release to acquisition
	Longest   time.Duration   // the longest wait
	Attempts  int64           // for the locks that were Granted, also outside of the window; 0: not known
	Granted   int64
}

// handOffs lets that many workers of each process hand a mutex around for d.
func (s *servers) handOffs(ctx context.Context, kind mutexKind, hold time.Duration, processes, workers int, d time.Duration) (sample, error) {
	template := emptyTemplate
	if kind == refdbMutex || kind == leaseMutex {
		template = migratedTemplate
	}
	return s.postgres.withDatabase(ctx, template, func(url string) (_ sample, err error) {
		if err := prepareMutex(ctx, kind, url); err != nil {
			return nil, err
		}
		board, err := createBoard(s.dir)
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, board.remove()) }()
		var children []*child
		defer func() {
			for _, c := range children {
				c.stop()
			}
		}()
		for n := range processes {
			task := handOffTask{
				Mutex: kind, Database: url, Prefix: fmt.Sprintf("/hand-off/%s", board.path),
				Board: board.path, Hold: hold, First: n * workers, Workers: workers,
			}
			if s.etcd != nil {
				task.Etcd = s.etcd.endpoint
			}
			c, err := startChild(ctx, handOffRole, task)
			if err != nil {
				return nil, err
			}
			children = append(children, c)
		}
		counts, err := runHandOffs(children, d)
		if err != nil {
			return nil, err
		}
		return summarizeHandOffs(counts, d), nil
	})
}

// runHandOffs waits until all children are ready, tells them when to count, and collects the counts.
func runHandOffs(children []*child, d time.Duration) ([]handOffCount, error) {
	for _, c := range children {
		var ready bool
		if err := c.receive(&ready); err != nil {
			return nil, err
		}
	}
	begin := monotonic() + d/5
	for _, c := range children {
		if err := c.send(handOffWindow{begin, begin + d}); err != nil {
			return nil, err
		}
	}
	counts := make([]handOffCount, len(children))
	for i, c := range children {
		if err := c.receive(&counts[i]); err != nil {
			return nil, err
		}
	}
	return counts, nil
}

func summarizeHandOffs(counts []handOffCount, d time.Duration) sample {
	var acquired []int
	var latencies []time.Duration
	var waited time.Duration
	total, tries, granted := 0, int64(0), int64(0)
	for _, c := range counts {
		acquired = append(acquired, c.Acquired...)
		latencies = append(latencies, c.Latencies...)
		waited = max(waited, c.Longest)
		tries, granted = tries+c.Attempts, granted+c.Granted
	}
	for _, n := range acquired {
		total += n
	}
	result := rates(latencies, d)
	result[perSecond] = float64(total) / d.Seconds()
	result[longest] = milliseconds(waited)
	if total > 0 {
		result[fairness] = float64(slices.Min(acquired)*len(acquired)) / float64(total)
	}
	if granted > 0 {
		result[attempts] = float64(tries) / float64(granted)
	}
	return result
}

// handOffChild is the main function of a process of workers.
func handOffChild(ctx context.Context, in *json.Decoder, out *json.Encoder) (err error) {
	var task handOffTask
	if err := in.Decode(&task); err != nil {
		return err
	}
	board, err := openBoard(task.Board)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, board.close()) }()
	mutexes, err := openMutexes(ctx, task)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, mutexes.close()) }()
	if err := out.Encode(true); err != nil {
		return err
	}
	var window handOffWindow
	if err := in.Decode(&window); err != nil {
		return err
	}
	count, err := work(ctx, task, window, board, mutexes)
	if err != nil {
		return err
	}
	return out.Encode(count)
}

// work runs the process's workers until the window ends.
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

// A handOffWorker takes the lock, holds it, releases it, and waits until another
// worker has it.
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
	return w.awaitOther(ctx, turn)
}

// awaitOther waits until another worker has acquired the lock after our turn. It
// looks again after 0.1 ms, and then less and less often. A hand-off takes several
// times as long, so looking costs next to nothing.
func (w *handOffWorker) awaitOther(ctx context.Context, turn uint64) error {
	for pause := 100 * time.Microsecond; w.board.turn() == turn; pause = min(2*pause, 2*time.Millisecond) {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		time.Sleep(pause)
	}
	return nil
}

// A board is memory that the processes of W2 share. The holder of the lock writes
// to it. The others read it, without asking a server.
type board struct {
	path   string
	memory []byte
	*marks
}

// marks are at the beginning of the memory.
type marks struct {
	turns    atomic.Uint64 // acquisitions so far
	released atomic.Int64  // when the last release was called, by [monotonic]
	holders  atomic.Int64  // more than 1: the lock does not exclude
}

// createBoard makes a board in a file in dir.
func createBoard(dir string) (*board, error) {
	f, err := os.CreateTemp(dir, "board-")
	if err != nil {
		return nil, err
	}
	err = f.Truncate(int64(unsafe.Sizeof(marks{})))
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, err
	}
	return openBoard(f.Name())
}

func openBoard(path string) (*board, error) {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	memory, err := unix.Mmap(int(f.Fd()), 0, int(unsafe.Sizeof(marks{})), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, os.NewSyscallError("mmap", err)
	}
	b := &board{path: path, memory: memory, marks: (*marks)(unsafe.Pointer(&memory[0]))}
	b.released.CompareAndSwap(0, int64(monotonic()))
	return b, nil
}

func (b *board) close() error { return unix.Munmap(b.memory) }

func (b *board) remove() error { return errors.Join(b.close(), os.Remove(b.path)) }

// acquired notes that the caller has the lock. It returns when the lock was
// released before, and the number of this turn.
func (b *board) acquired() (released time.Duration, turn uint64, err error) {
	if b.holders.Add(1) != 1 {
		return 0, 0, errors.New("two workers hold the lock at once")
	}
	return time.Duration(b.released.Load()), b.turns.Add(1), nil
}

// releasing notes that the caller is about to release the lock.
func (b *board) releasing() {
	b.holders.Add(-1)
	b.released.Store(int64(monotonic()))
}

// turn returns the number of the latest acquisition.
func (b *board) turn() uint64 { return b.turns.Load() }

// monotonic returns the time since a moment that is the same for all processes.
func monotonic() time.Duration {
	var t unix.Timespec
	// It fails for unknown clocks only.
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &t)
	return time.Duration(t.Nano())
}
