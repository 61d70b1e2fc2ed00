// Package testfifo stops git, for tests, in the middle of the move of a ref: the ref's reflog is a FIFO
// that is full.
package testfifo

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// patience is longer than a busy machine takes; only a hang reaches it.
const patience = 5 * time.Minute

// A Stall stops each git that moves a ref while it has the ref's lock file and has compared the ref's old
// value.
type Stall struct {
	fifo   string
	reader int // of the FIFO
}

// New stops the gits that move a ref of a repository from now on. What the reflog holds is lost.
func New(tb testing.TB, repository, ref string) *Stall {
	tb.Helper()
	s := &Stall{fifo: filepath.Join(repository, "logs", ref)}
	err := errors.Join(os.MkdirAll(filepath.Dir(s.fifo), 0o755), os.RemoveAll(s.fifo))
	if err == nil {
		err = syscall.Mkfifo(s.fifo, 0o644)
	}
	if err == nil {
		s.reader, err = syscall.Open(s.fifo, syscall.O_RDONLY|syscall.O_NONBLOCK|syscall.O_CLOEXEC, 0)
	}
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { syscall.Close(s.reader) })
	writer, err := syscall.Open(s.fifo, syscall.O_WRONLY|syscall.O_NONBLOCK|syscall.O_CLOEXEC, 0)
	if err != nil {
		tb.Fatal(err)
	}
	for size := 4096; size > 0; size /= 4096 {
		for err = nil; err == nil; {
			_, err = syscall.Write(writer, make([]byte, size))
		}
		if !errors.Is(err, syscall.EAGAIN) {
			tb.Fatal(err)
		}
	}
	syscall.Close(writer)
	// A process that another test has just forked has the descriptor, too, until it runs its program.
	s.until(tb, "no process has the FIFO open to write", false)
	return s
}

// Wait waits until a git is stopped. That its lock file is there is not enough: it may not have compared
// the old value yet, nor have been told to move the ref.
func (s *Stall) Wait(tb testing.TB) {
	tb.Helper()
	s.until(tb, "git moves the ref", true)
}

func (s *Stall) until(tb testing.TB, what string, written bool) {
	tb.Helper()
	for began := time.Now(); s.written(tb) != written; time.Sleep(10 * time.Millisecond) {
		if time.Since(began) > patience {
			tb.Fatalf("%s: not within %s", what, patience)
		}
	}
}

// written reports whether a process has the FIFO open to write.
func (s *Stall) written(tb testing.TB) bool {
	tb.Helper()
	state := []unix.PollFd{{Fd: int32(s.reader), Events: unix.POLLIN}}
	if _, err := unix.Poll(state, 0); err != nil && !errors.Is(err, unix.EINTR) {
		tb.Fatal(err)
	}
	return state[0].Revents&unix.POLLIN != 0 && state[0].Revents&unix.POLLHUP == 0
}

// Remove lets gits that come later move the ref. One that is stopped stays so.
func (s *Stall) Remove(tb testing.TB) {
	tb.Helper()
	if err := os.Remove(s.fifo); err != nil {
		tb.Fatal(err)
	}
}

// Drain makes the git that is stopped continue. Until the test ends, it can write to the FIFO.
func (s *Stall) Drain() {
	for buffer := make([]byte, 1<<16); ; {
		if n, err := syscall.Read(s.reader, buffer); n <= 0 && !errors.Is(err, syscall.EINTR) {
			return
		}
	}
}
