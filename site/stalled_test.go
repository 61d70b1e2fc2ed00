package site_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/globalrefdb/globalrefdb/internal/gitrepo"
	"github.com/globalrefdb/globalrefdb/site/client"
	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/internal/sitetest"
	"github.com/globalrefdb/globalrefdb/site/mover"
)

// A stall stops git in the middle of each move of a ref, while it has the ref's lock file and has
// compared the ref's old value: git writes to the ref's reflog, which is a FIFO that is full.
type stall struct {
	g         *guard
	ref, fifo string
	reader    int // of the FIFO
}

func (g *guard) stall(ref string) *stall {
	g.tb.Helper()
	s := &stall{g: g, ref: ref, fifo: filepath.Join(g.repo, "logs", ref)}
	err := os.MkdirAll(filepath.Dir(s.fifo), 0o755)
	if err == nil {
		err = syscall.Mkfifo(s.fifo, 0o644)
	}
	if err == nil {
		s.reader, err = syscall.Open(s.fifo, syscall.O_RDONLY|syscall.O_NONBLOCK|syscall.O_CLOEXEC, 0)
	}
	if err != nil {
		g.tb.Fatal(err)
	}
	g.tb.Cleanup(func() { syscall.Close(s.reader) })
	writer, err := syscall.Open(s.fifo, syscall.O_WRONLY|syscall.O_NONBLOCK|syscall.O_CLOEXEC, 0)
	if err != nil {
		g.tb.Fatal(err)
	}
	for size := 4096; size > 0; size /= 4096 {
		for err = nil; err == nil; {
			_, err = syscall.Write(writer, make([]byte, size))
		}
		if !errors.Is(err, syscall.EAGAIN) {
			g.tb.Fatal(err)
		}
	}
	syscall.Close(writer)
	// A process that another test has just forked has the descriptor, too, until it runs its program.
	sitetest.Eventually(g.tb, "nobody has the FIFO open to write", func() bool { return !s.written() })
	return s
}

// written reports whether a process has the FIFO open to write.
func (s *stall) written() bool {
	s.g.tb.Helper()
	state := []unix.PollFd{{Fd: int32(s.reader), Events: unix.POLLIN}}
	if _, err := unix.Poll(state, 0); err != nil && !errors.Is(err, unix.EINTR) {
		s.g.tb.Fatal(err)
	}
	return state[0].Revents&unix.POLLIN != 0 && state[0].Revents&unix.POLLHUP == 0
}

// waits waits until a git is stopped. That its lock file is there is not enough: it may not have
// compared the old value yet.
func (s *stall) waits() {
	s.g.tb.Helper()
	sitetest.Eventually(s.g.tb, "git moves "+s.ref, s.written)
}

// end makes git continue, and stops no other.
func (s *stall) end() {
	s.g.tb.Helper()
	if err := os.Remove(s.fifo); err != nil {
		s.g.tb.Fatal(err)
	}
	for buffer := make([]byte, 1<<16); ; {
		if n, err := syscall.Read(s.reader, buffer); n <= 0 && !errors.Is(err, syscall.EINTR) {
			return // until the test ends, git can write to it
		}
	}
}

// kill kills the git that is stopped, and stops no other. The lock file stays.
func (s *stall) kill() {
	s.g.tb.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		s.g.tb.Fatal(err)
	}
	killed := 0
	for _, path := range all {
		text, _ := os.ReadFile(path)
		if bytes.Contains(text, []byte("--git-dir="+s.g.repo+"\x00")) && bytes.Contains(text, []byte("\x00update-ref\x00")) {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
			if syscall.Kill(pid, syscall.SIGKILL) == nil {
				killed++
			}
		}
	}
	if killed != 1 {
		s.g.tb.Fatalf("%d gits were killed", killed)
	}
	if err := os.Remove(s.fifo); err != nil {
		s.g.tb.Fatal(err)
	}
}

// catchUp asks the daemon to bring refs to the database's values, as `site sync` does, and returns
// its answer.
func (g *guard) catchUp(refs ...string) string {
	g.tb.Helper()
	c, err := config.Load(g.tb.Context(), g.config)
	if err != nil {
		g.tb.Fatal(err)
	}
	answer, err := client.CatchUp(g.tb.Context(), c.Socket, g.repo, []byte("ref "+strings.Join(refs, "\nref ")+"\n"))
	if err != nil {
		return err.Error()
	}
	return strings.Join(answer.Lines, "\n")
}

// catchesUp calls catchUp in the background. Done is closed when that has ended.
func (g *guard) catchesUp(refs ...string) (done <-chan struct{}) {
	ended := make(chan struct{})
	g.tb.Cleanup(func() { <-ended })
	go func() { defer close(ended); g.catchUp(refs...) }()
	return ended
}

// earlierMoves makes a git move a ref in the background, as if an earlier daemon had started it.
func (g *guard) earlierMoves(m gitrepo.Move) {
	g.tb.Helper()
	repo, err := gitrepo.OpenDir(g.repo)
	if err != nil {
		g.tb.Fatal(err)
	}
	ended := make(chan struct{})
	g.tb.Cleanup(func() { <-ended })
	go func() {
		defer close(ended)
		var earlier mover.Mover
		earlier.Refs(g.tb.Context(), repo, []gitrepo.Move{m}, "test", 0)
	}()
}
