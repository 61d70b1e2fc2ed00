//go:build linux

package sites

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"
)

// A step is an acknowledged push.
type step struct{ ref, old, new string }

// An attempt is any push, as its client saw it.
type attempt struct {
	step
	site       string
	start, end time.Duration
	push
}

func (a attempt) String() string {
	return fmt.Sprintf("%s to %s at %s, %.7q to %.7q: %q %s", a.start, a.end, a.site, a.old, a.new, a.status, a.said)
}

// Clients push to a few refs at both sites, over files and HTTP, as fast as they
// can. Each push is conditional on the value that its client saw. The sites catch up
// with one another all the time. By the acknowledged pushes alone, the values of each
// ref must form a single line: each push starts at the value at which another ended.
func TestTheAcknowledgedValuesOfEachRefFormASingleLine(t *testing.T) {
	const clients = 3 // at each site
	eachGit(t, func(t *testing.T, g *git) {
		want, refs := 60, 3 // acknowledged pushes
		switch {
		case testing.Short():
			want = 12
		case long():
			want = 150
		}
		h := newHistory(t, g, "sha1", 2000, 0)
		c := newCluster(t, g, design{h: h, database: onPostgres})
		c.eu.pushed(h.a + ":refs/heads/main")
		c.us.sync()
		// One leaf is pushed once only.
		leaves := make(chan string, len(h.leaves))
		for _, leaf := range h.leaves {
			leaves <- leaf
		}
		close(leaves)
		var mu sync.Mutex
		var line []step
		var attempts []attempt
		start := time.Now()
		enough, stop := context.WithCancel(t.Context()) // or no leaf is left
		defer stop()
		var pushing, syncing sync.WaitGroup
		for _, s := range []*server{c.eu, c.us} {
			urls := []string{s.repo(project), serveHTTP(t, g, s.root) + "/" + project + ".git"}
			for n := range clients {
				random := rand.New(rand.NewPCG(uint64(n), uint64(index(s.name))))
				pushing.Go(func() {
					for enough.Err() == nil {
						ref := fmt.Sprint("refs/heads/line-", random.IntN(refs))
						old := s.refs(project)[ref]
						now, more := <-leaves
						if !more {
							return
						}
						if old != "" && random.IntN(5) == 0 {
							now = "" // delete
						}
						// Without a plus, which would override the lease.
						began := time.Since(start)
						p := h.push(t, urls[n%2], "--force-with-lease="+ref+":"+old, now+":"+ref)
						mu.Lock()
						attempts = append(attempts, attempt{step{ref, old, now}, s.name, began, time.Since(start), p})
						if p.accepted()[ref] && p.status[ref] != '=' {
							if line = append(line, step{ref, old, now}); len(line) == want {
								stop()
							}
						}
						mu.Unlock()
					}
				})
			}
			syncing.Go(func() {
				for enough.Err() == nil {
					s.trySync()
				}
			})
		}
		pushing.Wait()
		stop()
		syncing.Wait()
		t.Logf("%d of %d pushes were acknowledged", len(line), len(attempts))
		if len(line) < want {
			t.Errorf("too few to prove anything: %d", want)
		}
		c.caughtUp()
		checkLine(t, line, c.global(project))
		for _, a := range attempts {
			if t.Failed() {
				t.Log(a.ref, a)
			}
		}
	})
}

// checkLine fails the test unless the steps of each ref lead from absent to its
// last value, through each value once.
func checkLine(t testing.TB, line []step, last map[string]string) {
	t.Helper()
	type place struct{ ref, value string }
	entered, left := make(map[place]int), make(map[place]int)
	seen := make(map[string]bool)
	for _, s := range line {
		entered[place{s.ref, s.new}]++
		left[place{s.ref, s.old}]++
		seen[s.ref] = true
	}
	for ref := range seen {
		entered[place{ref, ""}]++ // a ref is absent at first
		left[place{ref, last[ref]}]++
	}
	for at, n := range entered {
		if n != left[at] || n > 1 && at.value != "" {
			t.Errorf("%s became %q %d times and left it %d times: %s", at.ref, at.value, n, left[at], lineOf(line, at.ref))
		}
	}
	for at, n := range left {
		if entered[at] == 0 {
			t.Errorf("%s left %q %d times and never became it: %s", at.ref, at.value, n, lineOf(line, at.ref))
		}
	}
}

func lineOf(line []step, ref string) string {
	var all []string
	for _, s := range line {
		if s.ref == ref {
			all = append(all, fmt.Sprintf("%.7s>%.7s", s.old, s.new))
		}
	}
	return strings.Join(all, " ")
}

func TestALineWithAForkOrAGapIsFound(t *testing.T) {
	for name, line := range map[string][]step{
		"fork":       {{"r", "", "a"}, {"r", "a", "b"}, {"r", "a", "c"}},
		"gap":        {{"r", "", "a"}, {"r", "b", "c"}},
		"end":        {{"r", "", "a"}, {"r", "a", "b"}},
		"born twice": {{"r", "", "a"}, {"r", "", "c"}},
	} {
		t.Run(name, func(t *testing.T) {
			probe := &failing{TB: t}
			checkLine(probe, line, map[string]string{"r": "c"})
			if !probe.failed {
				t.Error("not found")
			}
		})
	}
	checkLine(t, []step{{"r", "", "a"}, {"r", "a", ""}, {"r", "", "b"}, {"r", "b", "c"}}, map[string]string{"r": "c"})
}

// failing notes whether a check failed.
type failing struct {
	testing.TB
	failed bool
}

func (f *failing) Errorf(string, ...any) { f.failed = true }
