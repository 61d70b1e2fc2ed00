package main

import (
	"errors"
	"os"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

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
