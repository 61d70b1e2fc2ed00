//go:build linux

package sites

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"
)

// chaosKills names the variable that says how many processes are killed.
const chaosKills = "REFDB_TEST_KILLS"

// Clients push to two sites, whose operators clone, disable, enable, move, rename, delete and make repositories meanwhile. At random
// daemons, operators' commands, gits and hooks are killed. In the end, after the commands that the documents name,
//
//   - what was acknowledged is in the history, but for pushes into repositories that were not under guard, and the values of each ref
//     form a single line, in the order of real time;
//   - no repository under a name that is not its own has taken a push;
//   - both sites have what the database has, with all objects;
//   - nothing is pending, locked, stuck or behind, no check finds anything, and no process or lock file is left.
//
// REFDB_TEST_KILLS is another number of kills.
func TestKillsBesideRepositoriesThatComeAndGoLoseNothing(t *testing.T) {
	t.Parallel()
	kills, given := 40, os.Getenv(chaosKills)
	switch {
	case given != "":
		var err error
		if kills, err = strconv.Atoi(given); err != nil {
			t.Fatalf("%s: %v", chaosKills, err)
		}
	case testing.Short():
		t.Skip("left out by -short: pushes to two sites beside kills, half a minute; make test-all runs it")
	}
	size := trioSize{pushers: 4, projects: 2, extra: "\tautoClone = true\n", largest: 1 << 20, rest: 50 * time.Millisecond}
	k := &killing{trio: newTrioOn(t, size, onSQLite), wanted: kills, killed: make(map[string]int), at: make(map[*move]string)}
	for n := range 2 { // not made yet
		project := fmt.Sprintf("late/app-%d", n)
		k.projects = append(k.projects, project)
		for _, s := range k.sites {
			k.begin(s, project, deleted)
		}
	}
	k.journal.listener = func(site string, moves map[string]*move, _ push) {
		for _, m := range moves {
			k.at[m] = site
		}
	}
	k.run()
	k.judge()
	k.check()
}

// A killing is two sites whose processes are killed while repositories come and go.
type killing struct {
	*trio
	wanted int
	at     map[*move]string // where each was pushed; the journal's lock protects it

	state  sync.Mutex
	killed map[string]int // by what
	spans  []*span
}

// A span is a time in which a repository of a site is not as usual.
type span struct {
	site, project string
	kind          spanKind
	from, to      time.Duration
}

type spanKind string

const (
	unguarded spanKind = "not guarded" // somebody ends its guard, or has not put it under guard yet: pushes are that site's own
	deleted   spanKind = "gone"        // until it is cloned: what was let through counts as made, whatever the client was told
	moved     spanKind = "away"        // moved, to come back
)

// begin begins a span, which the function ends.
func (k *killing) begin(s *trioSite, project string, kind spanKind) (end func()) {
	k.state.Lock()
	defer k.state.Unlock()
	one := &span{s.name, project, kind, k.journal.now(), math.MaxInt64}
	k.spans = append(k.spans, one)
	return func() {
		k.state.Lock()
		defer k.state.Unlock()
		one.to = k.journal.now()
	}
}

// within reports whether a time at a site, and in a project unless that is empty, overlaps with a span of such a kind.
func (k *killing) within(site, project string, from, to time.Duration, kinds ...spanKind) bool {
	k.state.Lock()
	defer k.state.Unlock()
	for _, one := range k.spans {
		if one.site != site || project != "" && one.project != project || one.to < from || to < one.from {
			continue
		}
		for _, kind := range kinds {
			if one.kind == kind {
				return true
			}
		}
	}
	return false
}

// count counts a kill, and reports whether more are wanted.
func (k *killing) count(what string) (more bool) {
	k.state.Lock()
	defer k.state.Unlock()
	if what != "" {
		k.killed[what]++
	}
	all := 0
	for _, n := range k.killed {
		all += n
	}
	return all < k.wanted
}

// run lets clients push, and operators work, until enough was killed. Then each repository is brought to its place.
func (k *killing) run() {
	ctx, stop := context.WithCancel(k.Context())
	var pushing, working sync.WaitGroup
	defer func() { stop(); working.Wait(); pushing.Wait() }() // before the sites are taken down
	for i := range k.size.pushers {
		p := &trioPusher{x: k.trio, number: i, random: k.random(i), own: make(map[string][]string)}
		pushing.Go(func() { k.pushes(ctx, p) })
	}
	var operators []*operator
	for i, s := range k.sites {
		o := &operator{killing: k, site: s, random: k.random(1000 + i), guarded: make(map[string]func()), usual: make(map[string]time.Duration)}
		operators = append(operators, o)
		working.Go(func() {
			for k.count("") && ctx.Err() == nil && !k.Failed() {
				o.act()
			}
		})
	}
	k.kills(ctx, k.random(2000))
	working.Wait()
	for _, o := range operators {
		o.patient = true
		for _, project := range k.projects {
			o.puts(project)
		}
	}
	since := k.journal.now()
	eventually(k, "pushes that both sites take", func() error {
		for _, s := range k.sites {
			if !k.journal.accepts(s.name, since) {
				return errPending
			}
		}
		return nil
	})
	stop()
	pushing.Wait()
}

// pushes pushes, one push after the other. A repository that is not there takes none.
func (k *killing) pushes(ctx context.Context, p *trioPusher) {
	for ctx.Err() == nil {
		s := k.sites[p.random.IntN(len(k.sites))]
		from := k.journal.now()
		err := p.push(ctx, s)
		if err == nil || ctx.Err() != nil {
			pauseFor(ctx, k.size.rest)
			continue
		}
		if !k.within(s.name, "", from, k.journal.now(), deleted, moved) {
			k.Errorf("pusher %d at %s: %v", p.number, s.name, err)
			return
		}
		pauseFor(ctx, 5*time.Millisecond)
	}
}

// kills kills daemons, gits and hooks, until enough was killed.
func (k *killing) kills(ctx context.Context, random *rand.Rand) {
	n := &nemesis{chaos: &chaos{cluster: k.cluster}}
	for k.count("") && !k.Failed() {
		s := k.sites[random.IntN(len(k.sites))]
		switch dice := random.IntN(16); {
		case dice == 0:
			s.kill()
			k.count("daemon")
			pauseFor(ctx, time.Duration(random.Int64N(int64(500*time.Millisecond))))
			s.server.start()
		default:
			kind := [...]kind{receiver, hook, receiver, hook, otherGit}[dice%5]
			if n.killOne(s.root, kind) != "" {
				k.count(string(kind))
			}
		}
		pauseFor(ctx, time.Duration(random.Int64N(int64(200*time.Millisecond))))
	}
}

// judge finds out what clients were told that does not count, and says how much.
func (k *killing) judge() {
	k.Helper()
	counted, local, doubtful := 0, 0, 0
	for at, moves := range k.journal.moves {
		for _, m := range moves {
			site := k.at[m]
			switch {
			case k.within(site, at.project, m.start, m.end, unguarded):
				// What it left may come to the database later, when the repository is put under guard.
				if m.outcome == acknowledged {
					local++
				}
				m.outcome, m.end = unknown, math.MaxInt64
			case m.outcome == refused && k.within(site, at.project, m.start, m.end, deleted):
				m.outcome = unknown
				doubtful++
			case m.outcome == acknowledged:
				counted++
			}
		}
	}
	k.Logf("killed: %v", k.killed)
	k.Logf("%d refs of pushes were acknowledged under guard, %d in repositories that had none; %d were refused by repositories that were deleted", counted, local, doubtful)
}
