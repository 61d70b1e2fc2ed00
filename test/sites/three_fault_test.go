//go:build linux

package sites

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/globalrefdb/globalrefdb/internal/faultproxy"
)

// A trioFault is something that goes wrong at a site. strike returns when it is over, and says what exactly it did.
type trioFault struct {
	name   string
	linked bool // it needs a link to the database that can be disturbed
	strike func(*striker) string
}

// diskLost is the name of the fault after which a site's journal is gone: what only that knew can't be recovered.
const diskLost = "disk lost"

var trioFaults = []trioFault{
	{diskLost, false, (*striker).loseDisk},
	{"daemon killed", false, (*striker).killDaemon},
	{"daemon restarted", false, (*striker).restartDaemon},
	{"daemon stands still", false, (*striker).freezeDaemon},
	{"git killed", false, (*striker).killGit},
	{"clients killed", false, (*striker).killClients},
	{"connections cut", true, (*striker).cut},
	{"connections slow", true, (*striker).slow},
	{"requests held up", true, func(n *striker) string { return n.hold(faultproxy.Requests) }},
	{"answers held up", true, func(n *striker) string { return n.hold(faultproxy.Replies) }},
}

// A trioNemesis injects faults: one at a time at each site, and restarts of the database beside them.
type trioNemesis struct {
	*trio
	without []string // names of faults that are left out

	mu     sync.Mutex
	struck map[string]int
	worst  time.Duration // until pushes were taken again
}

// run injects faults until ctx ends. Then all sites run, and reach the database.
func (n *trioNemesis) run(ctx context.Context) {
	var running sync.WaitGroup
	for i, s := range n.sites {
		f := &striker{trioNemesis: n, site: s, random: n.random(3000 + i)}
		running.Go(func() { f.run(ctx) })
	}
	if n.postgres != nil {
		running.Go(func() { n.restarts(ctx, n.random(4000)) })
	}
	running.Wait()
	n.Logf("faults: %v; it took %s at most until a site took pushes again", n.struck, n.worst.Round(time.Millisecond))
}

func (n *trioNemesis) done(name string, took time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.struck[name]++
	n.worst = max(n.worst, took)
}

// restarts kills the database and starts it again, from time to time.
func (n *trioNemesis) restarts(ctx context.Context, random *rand.Rand) {
	for pauseFor(ctx, between(random, n.size.restarts)) {
		down := time.Duration(random.Int64N(int64(2 * time.Second)))
		n.postgres.crash()
		time.Sleep(down)
		n.postgres.start()
		n.done("database killed", 0)
		n.Logf("%7.2fs: database killed, down for %s", n.journal.now().Seconds(), down.Round(time.Millisecond))
	}
}

// A striker injects faults at one site.
type striker struct {
	*trioNemesis
	site   *trioSite
	random *rand.Rand
	deck   []trioFault
}

func between(random *rand.Rand, d [2]time.Duration) time.Duration {
	return d[0] + time.Duration(random.Int64N(int64(d[1]-d[0])))
}

func (f *striker) run(ctx context.Context) {
	for pauseFor(ctx, between(f.random, f.size.pause)) {
		if len(f.deck) == 0 {
			f.deck = slices.DeleteFunc(slices.Clone(trioFaults), func(one trioFault) bool {
				return one.linked && f.site.link == nil || slices.Contains(f.without, one.name)
			})
			f.random.Shuffle(len(f.deck), func(i, k int) { f.deck[i], f.deck[k] = f.deck[k], f.deck[i] })
		}
		one := f.deck[0]
		f.deck = f.deck[1:]
		start := f.journal.now()
		what := one.strike(f)
		end := f.journal.now()
		// The next fault is for a site that works again.
		took := time.Duration(0)
		for ctx.Err() == nil && !f.journal.accepts(f.site.name, end) {
			if took = f.journal.now() - end; took > patience {
				f.Errorf("%s takes no push within %s after: %s (%s)", f.site.name, patience, one.name, what)
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
		f.done(one.name, took)
		f.Logf("%7.2fs to %.2fs: %s: %s at %s; pushes taken again after %.2fs", start.Seconds(), end.Seconds(), one.name, what, f.site.name, took.Seconds())
	}
}

// loseDisk waits for an acknowledged push, and takes the disk away right then. Half of the time the daemon was killed so long before that
// hooks have given up waiting for it: git acknowledges then what the daemon had let through.
func (f *striker) loseDisk() string {
	if f.random.IntN(2) == 0 {
		f.site.kill()
		time.Sleep(hookLimit + time.Second)
	}
	since := f.journal.now()
	for deadline := time.Now().Add(2 * time.Second); !f.journal.accepts(f.site.name, since) && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond)
	}
	if err := f.site.losesDisk(); err != nil {
		f.Errorf("%s: %v", f.site.name, err)
	}
	began := time.Now()
	if err := f.site.comesBack(); err != nil {
		f.Errorf("%s can't be made anew: %v", f.site.name, err)
	}
	return fmt.Sprintf("cloned anew within %s", time.Since(began).Round(time.Millisecond))
}

func (f *striker) killDaemon() string {
	f.site.kill()
	down := time.Duration(f.random.Int64N(int64(min(3*time.Second, f.size.fault[1]))))
	time.Sleep(down)
	f.site.server.start()
	return fmt.Sprintf("down for %s", down.Round(time.Millisecond))
}

func (f *striker) restartDaemon() string {
	began := time.Now()
	f.site.stop()
	stopped := time.Since(began)
	f.site.server.start()
	return fmt.Sprintf("stopped within %s", stopped.Round(time.Millisecond))
}

func (f *striker) freezeDaemon() string {
	d := between(f.random, f.size.freeze)
	signal(f, f.site.daemon.Process.Pid, syscall.SIGSTOP)
	time.Sleep(d)
	signal(f, f.site.daemon.Process.Pid, syscall.SIGCONT)
	return d.Round(time.Millisecond).String()
}

// killGit kills a few processes of git, and its hooks, in the site's repositories.
func (f *striker) killGit() string {
	n := &nemesis{chaos: &chaos{cluster: f.cluster}}
	var killed []string
	for deadline := time.Now().Add(f.size.fault[1]); len(killed) < 4 && time.Now().Before(deadline); {
		if name := n.killOne(f.site.root, [...]kind{receiver, hook, otherGit}[f.random.IntN(3)]); name != "" {
			killed = append(killed, name)
		}
		time.Sleep(time.Duration(f.random.IntN(50)) * time.Millisecond)
	}
	return strings.Join(killed, ", ")
}

// killClients kills clients: alone, so that their gits go on at the site, or with those.
func (f *striker) killClients() string {
	killed := 0
	for range 3 {
		f.trio.mu.Lock()
		for group := range f.pushing {
			if f.random.IntN(2) == 0 {
				group = -group
			}
			if syscall.Kill(group, syscall.SIGKILL) == nil {
				killed++
			}
			break
		}
		f.trio.mu.Unlock()
		time.Sleep(time.Duration(f.random.IntN(100)) * time.Millisecond)
	}
	return fmt.Sprint(killed)
}

func (f *striker) cut() string {
	d := between(f.random, f.size.fault)
	f.site.link.Cut()
	time.Sleep(d)
	f.site.link.restore(f)
	return d.Round(time.Millisecond).String()
}

func (f *striker) slow() string {
	d, by := between(f.random, f.size.fault), time.Duration(f.random.IntN(400))*time.Millisecond
	f.site.link.SetDelay(by, 0)
	time.Sleep(d)
	f.site.link.Clear()
	return fmt.Sprintf("by %s, for %s", by, d.Round(time.Millisecond))
}

// hold holds what goes one way until the other end has given up. Then it arrives late, or is lost.
func (f *striker) hold(way faultproxy.Direction) string {
	d, end := between(f.random, f.size.fault), "late"
	f.site.link.Set(way, faultproxy.Hold)
	time.Sleep(d)
	if f.random.IntN(3) == 0 {
		end = "lost"
		f.site.link.Cut()
		f.site.link.Clear()
		f.site.link.restore(f)
	} else {
		f.site.link.Clear()
	}
	return fmt.Sprintf("for %s, then %s", d.Round(time.Millisecond), end)
}
