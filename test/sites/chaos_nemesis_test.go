//go:build linux

package sites

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/globalrefdb/globalrefdb/internal/faultproxy"
)

// A fault is something that goes wrong. strike returns when the fault is over. It
// returns the sites that the fault hit, and what exactly it did.
type fault struct {
	name   string
	daemon bool // it ends a daemon
	strike func(*nemesis) ([]*server, string)
}

var faults = []fault{
	{"daemon killed", true, (*nemesis).killDaemon},
	{"daemon restarted", true, (*nemesis).restartDaemon},
	{"daemon stands still", false, (*nemesis).freezeDaemon},
	{"configuration reloaded", false, (*nemesis).reload},
	{"git killed", false, (*nemesis).killGit},
	{"connections cut", false, (*nemesis).cut},
	{"connections slow", false, (*nemesis).slow},
	{"requests held up", false, func(n *nemesis) ([]*server, string) { return n.hold(faultproxy.Requests) }},
	{"answers held up", false, func(n *nemesis) ([]*server, string) { return n.hold(faultproxy.Replies) }},
	{"database killed", false, (*nemesis).killDatabase},
}

// A nemesis injects faults, one at a time.
type nemesis struct {
	*chaos
	random     *rand.Rand
	deck       []fault
	struck     map[string]int
	recoveries []time.Duration
}

// run injects faults until the end. In the second half no daemon ends any more, so
// that leaks in a daemon show.
func (n *nemesis) run(length time.Duration) {
	began := time.Now()
	for time.Since(began) < length {
		if len(n.deck) == 0 {
			n.deck = slices.Clone(faults)
			n.random.Shuffle(len(n.deck), func(i, k int) { n.deck[i], n.deck[k] = n.deck[k], n.deck[i] })
		}
		f := n.deck[0]
		n.deck = n.deck[1:]
		if f.daemon && time.Since(began) > length/2 {
			continue
		}
		n.strike(f)
	}
}

// strike injects a fault, and waits until each site that was hit has accepted a push that began afterwards.
func (n *nemesis) strike(f fault) {
	start := n.journal.now()
	sites, what := f.strike(n)
	end := n.journal.now()
	n.struck[f.name]++
	var took time.Duration
	for _, s := range sites {
		for !n.journal.accepts(s.name, end) {
			if took = n.journal.now() - end; took > patience {
				n.Errorf("%s takes no push within %s after: %s (%s)", s.name, patience, f.name, what)
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
	took = n.journal.now() - end
	n.recoveries = append(n.recoveries, took)
	n.Logf("%7.2fs to %.2fs: %s: %s; pushes taken again after %.2fs", start.Seconds(), end.Seconds(), f.name, what, took.Seconds())
	time.Sleep(n.between(n.size.pause))
}

// between returns a random duration between two.
func (n *nemesis) between(d [2]time.Duration) time.Duration {
	return d[0] + time.Duration(n.random.Int64N(int64(d[1]-d[0])))
}

func (n *nemesis) site() (*server, []*server) {
	s := n.sites[n.random.IntN(2)]
	return s, []*server{s}
}

func (n *nemesis) killDaemon() ([]*server, string) {
	s, hit := n.site()
	down := time.Duration(n.random.Int64N(int64(3 * time.Second)))
	if down > n.size.fault[1] {
		down = n.size.fault[1]
	}
	s.kill()
	time.Sleep(down)
	s.start()
	n.meter.follow(s)
	return hit, fmt.Sprintf("%s, down for %s", s.name, down.Round(time.Millisecond))
}

func (n *nemesis) restartDaemon() ([]*server, string) {
	s, hit := n.site()
	began := time.Now()
	s.stop()
	stopped := time.Since(began)
	s.start()
	n.meter.follow(s)
	return hit, fmt.Sprintf("%s, stopped within %s", s.name, stopped.Round(time.Millisecond))
}

func (n *nemesis) freezeDaemon() ([]*server, string) {
	s, hit := n.site()
	d := n.between(n.size.freeze)
	signal(n, s.daemon.Process.Pid, syscall.SIGSTOP)
	time.Sleep(d)
	signal(n, s.daemon.Process.Pid, syscall.SIGCONT)
	return hit, fmt.Sprintf("%s, for %s", s.name, d.Round(time.Millisecond))
}

func (n *nemesis) reload() ([]*server, string) {
	s, hit := n.site()
	signal(n, s.daemon.Process.Pid, syscall.SIGHUP)
	return hit, s.name
}

// killGit kills a few processes of git, and its hooks, in a site's repositories.
func (n *nemesis) killGit() ([]*server, string) {
	s, hit := n.site()
	kinds := [...]kind{receiver, hook, otherGit}
	var killed []string
	for deadline := time.Now().Add(n.size.fault[1]); len(killed) < n.size.kills && time.Now().Before(deadline); {
		wanted := kinds[n.random.IntN(len(kinds))]
		for range 20 { // there may be none
			if name := n.killOne(s.root, wanted); name != "" {
				killed = append(killed, name)
				break
			}
		}
		time.Sleep(time.Duration(n.random.IntN(50)) * time.Millisecond)
	}
	return hit, fmt.Sprintf("%s: %s", s.name, strings.Join(killed, ", "))
}

// A kind is a kind of process that works in a site's repositories.
type kind string

const (
	receiver kind = "git receive-pack"
	hook     kind = "the hook"
	otherGit kind = "git"
)

// killOne kills a process of that kind, if it finds any, and returns its name. Such
// processes end soon, so it tries the newest first, and takes what it finds.
func (n *nemesis) killOne(root string, wanted kind) string {
	var pids []int
	entries, err := os.ReadDir("/proc")
	if err != nil {
		n.Fatal(err)
	}
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil {
			pids = append(pids, pid)
		}
	}
	slices.Sort(pids)
	for _, pid := range slices.Backward(pids) {
		proc := filepath.Join("/proc", strconv.Itoa(pid))
		dir, err := os.Readlink(proc + "/cwd")
		if err != nil || !strings.HasPrefix(dir, root+"/") {
			continue
		}
		text, err := os.ReadFile(proc + "/cmdline")
		if err != nil {
			continue
		}
		is, name := kindOf(strings.Split(strings.TrimRight(string(text), "\x00"), "\x00"))
		if is == wanted && syscall.Kill(pid, syscall.SIGKILL) == nil {
			return name
		}
	}
	return ""
}

// kindOf returns a process's kind, by its command line.
func kindOf(words []string) (is kind, name string) {
	name = filepath.Base(words[0])
	if len(words) > 1 && !strings.ContainsAny(words[1][:min(1, len(words[1]))], "/-") {
		name += " " + words[1]
	}
	switch program := filepath.Base(words[0]); {
	case program == "reference-transaction", program == "update", program == "pre-receive":
		return hook, name
	case strings.Contains(name, "receive-pack"):
		return receiver, name
	case strings.HasPrefix(program, "git"):
		return otherGit, name
	}
	return "", ""
}

func (n *nemesis) cut() ([]*server, string) {
	s, hit := n.site()
	d := n.between(n.size.fault)
	n.links[s.name].Cut()
	time.Sleep(d)
	n.links[s.name].restore(n)
	return hit, fmt.Sprintf("%s, for %s", s.name, d.Round(time.Millisecond))
}

func (n *nemesis) slow() ([]*server, string) {
	s, hit := n.site()
	d, by := n.between(n.size.fault), time.Duration(n.random.IntN(600))*time.Millisecond
	n.links[s.name].SetDelay(by, 0)
	time.Sleep(d)
	n.links[s.name].Clear()
	return hit, fmt.Sprintf("%s, by %s, for %s", s.name, by, d.Round(time.Millisecond))
}

// hold holds what goes one way until the other end has given up. Then it arrives
// late, or is lost.
func (n *nemesis) hold(way faultproxy.Direction) ([]*server, string) {
	s, hit := n.site()
	d, lost := n.between(n.size.fault), n.random.IntN(3) == 0
	n.links[s.name].Set(way, faultproxy.Hold)
	time.Sleep(d)
	end := "late"
	if lost {
		end = "lost"
		n.links[s.name].Cut()
	}
	n.links[s.name].Clear()
	if lost {
		n.links[s.name].restore(n)
	}
	return hit, fmt.Sprintf("%s, for %s, then %s", s.name, d.Round(time.Millisecond), end)
}

func (n *nemesis) killDatabase() ([]*server, string) {
	down := time.Duration(n.random.Int64N(int64(n.size.fault[1] / 3)))
	n.postgres.crash()
	time.Sleep(down)
	n.postgres.start()
	return n.sites, fmt.Sprintf("down for %s", down.Round(time.Millisecond))
}
