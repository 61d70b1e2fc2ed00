//go:build linux

package sites

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/site/wire"
	"github.com/globalrefdb/globalrefdb/site/wire/wiretest"
)

// A refIndex plays a guard that keeps one of what the refs of a site's repositories hold. It goes by the list of moves alone.
type refIndex struct {
	s *server

	mu     sync.Mutex
	place  string // all before it is in the index
	refs   map[string]string
	resets int
}

// index returns an index of a site that begins with what is there now.
func (s *server) index() *refIndex {
	s.c.Helper()
	i := &refIndex{s: s, refs: map[string]string{}}
	eventually(s.c, "a place on the list", func() error { return i.ask(s.c.Context(), 0) })
	maps.Copy(i.refs, s.refs(project))
	ctx, cancel := context.WithCancel(context.Background())
	var reading sync.WaitGroup
	reading.Go(func() {
		for ctx.Err() == nil {
			// Each of these ends with its daemon.
			if err := i.ask(ctx, 1000); err != nil {
				time.Sleep(10 * time.Millisecond)
			}
		}
	})
	s.c.Cleanup(func() { cancel(); reading.Wait() })
	return i
}

// ask asks in one connection what has moved, so many times after the first.
func (i *refIndex) ask(ctx context.Context, again int) error {
	conn, err := net.Dial("unix", i.s.socket())
	if err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	r := bufio.NewReader(conn)
	err = wiretest.Write(conn, wire.BeginMoves{Guard: strings.Repeat("0", 32), After: i.place})
	for {
		if err == nil {
			err = i.take(r)
		}
		if again--; err != nil || again < 0 {
			return err
		}
		err = wiretest.Write(conn, wire.After{Place: i.place})
	}
}

// take takes an answer.
func (i *refIndex) take(r *bufio.Reader) error {
	answer, err := wiretest.ReadMoves(r)
	if err != nil {
		return err
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	switch answer := answer.(type) {
	case wire.Moves:
		for _, e := range answer.Entries {
			if strings.HasPrefix(e.Ref, "refs/") && e.Dir == i.s.repo(project) {
				i.read(e.Ref)
			}
		}
		i.place = answer.Place
	case wire.Reset:
		i.resets++
		i.place = answer.Place
	default:
		return fmt.Errorf("the daemon said %+v", answer)
	}
	return nil
}

// read takes what a ref holds into the index.
func (i *refIndex) read(ref string) {
	out, err := exec.Command("git", "--git-dir="+i.s.repo(project), "rev-parse", "--verify", "--quiet", ref).Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		delete(i.refs, ref)
		return
	}
	i.refs[ref] = strings.TrimSpace(string(out))
}

var errOldIndex = errors.New("the index is old")

// follows waits until the index has what the refs hold.
func (i *refIndex) follows(t testing.TB) {
	t.Helper()
	eventually(t, "the index follows", func() error {
		want := i.s.refs(project)
		i.mu.Lock()
		defer i.mu.Unlock()
		if !maps.Equal(i.refs, want) {
			return fmt.Errorf("%w: %v, not %v", errOldIndex, i.refs, want)
		}
		return nil
	})
	if i.resets > 0 {
		t.Errorf("the index was to compare everything, %d times", i.resets)
	}
}

// An index that goes by the list of moves has in the end what the refs hold, without comparing everything, whenever the daemon is killed: while a
// push of its site moves, and while the follower does, with git or without.
func TestAnIndexFollowsThoughTheDaemonIsKilled(t *testing.T) {
	if testing.Short() {
		t.Skip("left out by -short: a reader of moves whose daemon is killed; make test-all runs it")
	}
	t.Parallel()
	all, err := gits()
	g := must(t, all, err)[0]
	c := newCluster(t, g, design{h: newHistory(t, g, "sha1", 8, 0), extra: storing})
	c.eu.pushed(c.h.a + ":refs/heads/main")
	c.us.follows(project)
	i := c.us.index()
	gate := gateIn(t, c.us.repo(project), "reference-transaction")
	round := 0
	moves := func() []string {
		value := c.h.leaves[round]
		round++
		return []string{"--force", value + ":refs/heads/main", fmt.Sprintf("%s:refs/heads/%d", value, round-1)}
	}
	for _, git := range movedBy {
		c.us.killWhileItFollows(git, func() { c.eu.pushed(moves()...) }, func() {})
		c.settled()
		c.us.follows(project)
		i.follows(t)
	}
	for _, state := range []string{"prepared", "committed"} {
		for _, gitToo := range []bool{false, true} {
			gate.shut(state)
			push := c.us.startPush(moves()...)
			parent := gate.waits(state)
			c.us.kill()
			if gitToo {
				kill9(t, parent)
			}
			gate.open(state)
			c.us.start()
			push()
			c.settled()
			c.us.follows(project)
			i.follows(t)
		}
	}
}
