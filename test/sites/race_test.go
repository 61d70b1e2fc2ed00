//go:build linux

package sites

import (
	"fmt"
	"strings"
	"sync"
	"testing"
)

// A refSet is what both sites push to at once, again and again. Its refs are pushed together.
type refSet struct {
	atomic bool
	refs   []*racedRef
}

// A racedRef is a ref of a set, with the commits to push to it: no two pushes of
// a test ever give a ref the same value.
type racedRef struct {
	name   string
	value  string            // what both sites hold before a race
	values []int             // leaves of the history
	wants  map[string]string // by site, in the race under way; "" to delete
}

// A race is what each site does to the refs of a set.
type race struct {
	name string
	want func(h *history, r *racedRef, site string) string
}

// races returns the races, which run one after the other, with a catch-up between them.
var races = []race{
	{"create", func(h *history, r *racedRef, site string) string { return h.leaves[r.values[index(site)]] }},
	{"update", func(h *history, r *racedRef, site string) string {
		for _, n := range r.values {
			if h.leaves[n] == r.value {
				return h.children[n][index(site)]
			}
		}
		panic("the ref holds no leaf")
	}},
	{"force", func(h *history, r *racedRef, site string) string { return h.leaves[r.values[2+index(site)]] }},
	{"delete and update", func(h *history, r *racedRef, site string) string {
		if site == "us" {
			return ""
		}
		return h.leaves[r.values[4]]
	}},
}

// deletes replaces the last race for every other set.
var deletes = race{"delete", func(*history, *racedRef, string) string { return "" }}

// index is a site's place among the two.
func index(site string) int { return map[string]int{"eu": 0, "us": 1}[site] }

// setsOf returns n sets: of one ref, of two, of two atomically, and so on.
func setsOf(n int) (sets []*refSet, leaves int) {
	for i := range n {
		s := &refSet{atomic: i%3 == 2}
		for k := range 1 + min(1, i%3) {
			r := &racedRef{name: fmt.Sprintf("refs/heads/raced-%d-%d", i, k)}
			for range 5 {
				r.values = append(r.values, leaves)
				leaves++
			}
			s.refs = append(s.refs, r)
		}
		sets = append(sets, s)
	}
	return sets, leaves
}

// Two sites push to the same refs at the same time, 72 times, or 200 times with REFDB_TEST_LONG=1. Git alone would
// take every one of these pushes. What is asserted, of each ref of each race:
//
//   - exactly one of the two sites accepts its push: never both, and never none,
//     because only the other push is a reason to refuse one;
//   - what a client was told to be done is done, at that site and in the database;
//   - after a catch-up both sites and the database hold the same.
func TestOfTwoSitesThatPushToARefExactlyOneIsAccepted(t *testing.T) {
	for name, database := range map[string]func(testing.TB) database{"sqlite": onSQLite, "postgres": onPostgres} {
		t.Run(name, func(t *testing.T) {
			if testing.Short() && name == "sqlite" {
				t.Skip("left out by -short: the same on SQLite; make test-all runs it")
			}
			eachGit(t, func(t *testing.T, g *git) {
				kinds := []storage{files}
				if g.reftable() && name == "sqlite" {
					kinds = append(kinds, storage{"sha1", "reftable"})
				}
				for _, kind := range kinds {
					t.Run(kind.String(), func(t *testing.T) {
						t.Parallel()
						n := 18
						switch {
						case testing.Short():
							n = 6 // each kind of set, with each of the last races
						case long():
							n = 50
						}
						sets, leaves := setsOf(n)
						h := newHistory(t, g, kind.objects, leaves, 2)
						c := newCluster(t, g, design{h: h, storage: kind, database: database})
						// All commits descend from one that both have.
						c.eu.pushed(h.a + ":refs/heads/main")
						c.us.sync()
						for _, r := range races {
							c.race(r, sets)
						}
					})
				}
			})
		})
	}
}

// race lets both sites push to every set, two sets at a time, and checks the results.
func (c *cluster) race(r race, sets []*refSet) {
	c.Helper()
	type told struct{ eu, us push }
	results := make([]told, len(sets))
	var running sync.WaitGroup
	slots := make(chan struct{}, 2)
	for i, s := range sets {
		r := r
		if i%2 == 1 && r.name == "delete and update" {
			r = deletes
		}
		for _, ref := range s.refs {
			ref.wants = map[string]string{"eu": r.want(c.h, ref, "eu"), "us": r.want(c.h, ref, "us")}
		}
		slots <- struct{}{}
		eu, us := c.eu.startPush(s.args("eu")...), c.us.startPush(s.args("us")...)
		running.Go(func() {
			defer func() { <-slots }()
			results[i] = told{eu(), us()}
		})
	}
	running.Wait()
	c.settled()

	held := map[string]map[string]string{"eu": c.eu.refs(project), "us": c.us.refs(project)}
	global := c.global(project)
	wins, reasons := make(map[string]int), make(map[string]int)
	for i, s := range sets {
		for _, ref := range s.refs {
			var winners []string
			for site, p := range map[string]push{"eu": results[i].eu, "us": results[i].us} {
				if held[site][ref.name] == ref.wants[site] {
					winners = append(winners, site)
				} else {
					reasons[p.why(ref.name)]++
				}
				if flag, accepted := p.status[ref.name], p.accepted()[ref.name]; accepted && held[site][ref.name] != ref.wants[site] {
					c.Errorf("%s of %s: %s told its client %q, and has %q", r.name, ref.name, site, flag, held[site][ref.name])
				}
			}
			if len(winners) != 1 {
				c.Errorf("%s of %s: accepted by %q: eu was told %+v, us was told %+v", r.name, ref.name, winners, results[i].eu, results[i].us)
				continue
			}
			wins[winners[0]]++
			ref.value = ref.wants[winners[0]]
			if global[ref.name] != ref.value {
				c.Errorf("%s of %s: %s took %q, and the database has %q", r.name, ref.name, winners[0], ref.value, global[ref.name])
			}
		}
	}
	c.Logf("%s: won: %v; losers: %v", r.name, wins, reasons)
	c.caughtUp()
}

// args returns the arguments of a site's push.
func (s *refSet) args(site string) (args []string) {
	if s.atomic {
		args = append(args, "--atomic")
	}
	for _, r := range s.refs {
		args = append(args, "+"+r.wants[site]+":"+r.name)
	}
	return args
}

// why returns in a word why a push was refused.
func (p push) why(ref string) string {
	switch {
	case strings.Contains(p.said, "aborted by"):
		return "refused in the transaction"
	case p.reason[ref] == "hook declined":
		return "refused in advance"
	case p.reason[ref] == "":
		return "told nothing"
	}
	return p.reason[ref]
}
