package site_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/globalrefdb/globalrefdb/internal/gitrepo"
	"github.com/globalrefdb/globalrefdb/internal/testfifo"
	"github.com/globalrefdb/globalrefdb/site/client"
	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/mover"
)

// A stall stops the gits that move a ref.
type stall struct {
	*testfifo.Stall
	g *guard
}

func (g *guard) stall(ref string) *stall {
	g.tb.Helper()
	return &stall{testfifo.New(g.tb, g.repo, ref), g}
}

// waits waits until a git is stopped.
func (s *stall) waits() {
	s.g.tb.Helper()
	s.Wait(s.g.tb)
}

// end makes git continue, and stops no other.
func (s *stall) end() {
	s.g.tb.Helper()
	s.Remove(s.g.tb)
	s.Drain()
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
	s.Remove(s.g.tb)
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
