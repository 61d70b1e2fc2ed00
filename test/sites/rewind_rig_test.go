//go:build linux

package sites

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/site/wire"
)

// A bed is two sites with clients that push to both all the time, and sync them, while the database
// goes back in time. Both sites push to the same refs.
type bed struct {
	*chaos
	stop    func()        // ends the clients
	rewound time.Duration // when the old server was gone
	allowed []string      // since then
	heard   map[string]int
	had     map[string]map[string]string // what each site had then
}

// sentences are what a client may be told between a rewind and the recovery.
var sentences = []string{
	wire.DatabaseLost, wire.DatabaseNotCompared, wire.DatabaseDown, wire.DatabaseSlow, wire.DaemonWaiting, wire.DaemonStarting,
	"database schema does not fit", // of a dump that is half restored
	// On a busy machine.
	strings.TrimSuffix(wire.NothingWithin(0), time.Duration(0).String()),
	"atomic push failed for ref", // said by the client's git: another push was faster
	"stale info",                 // likewise
	"cannot lock ref",            // likewise, said by the server's git
}

// withoutDaemon are what a client may be told, too, while the site's daemon does not run for as long as a hook waits.
var withoutDaemon = []string{
	wire.NoAnswer(syscall.ENOENT.Error()), wire.NoAnswer(syscall.ECONNREFUSED.Error()), wire.NoAnswer(wire.ClosedWithoutAnswer),
}

// newBed starts the sites and the clients.
func newBed(t *testing.T, database func(testing.TB) database) *bed {
	t.Helper()
	all, err := gits()
	g := must(t, all, err)[0].within(wire.DefaultLimit)
	c := &chaos{leftLocks: leftLocks{known: make(map[string]bool)}, projects: []string{project}, journal: newJournal()}
	if !long() {
		c.size.rest = 100 * time.Millisecond // most of the time clients only have to be there
	}
	c.cluster = newCluster(t, g, design{database: database})
	c.sites = []*server{c.eu, c.us}
	c.tree = c.g.run(t, c.h.dir, "rev-parse", c.h.a+"^{tree}")
	b := &bed{chaos: c, heard: make(map[string]int)}
	c.journal.listener = b.listen
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	b.stop = func() { cancel(); running.Wait() }
	t.Cleanup(b.stop) // before the sites are taken down
	seed := rand.Uint64()
	for i := range 3 {
		p := &pusher{c: c, number: i, random: rand.New(rand.NewPCG(seed, uint64(i)))}
		running.Go(func() { p.run(ctx) })
	}
	for i, s := range c.sites {
		random := rand.New(rand.NewPCG(seed, uint64(1000+i)))
		running.Go(func() { c.catchUp(ctx, s, random) })
	}
	return b
}

// listen hears of each push. Its caller has the journal's lock.
func (b *bed) listen(site string, moves map[string]*move, p push) {
	if b.rewound == 0 {
		return
	}
	for _, m := range moves {
		if m.start < b.rewound {
			return
		}
		if m.outcome == acknowledged {
			b.heard["acknowledged"]++
			continue
		}
		i := slices.IndexFunc(b.allowed, func(s string) bool {
			return strings.Contains(p.said+strings.Join(slices.Collect(maps.Values(p.reason)), " "), s)
		})
		if i >= 0 {
			b.heard[b.allowed[i]]++
		} else {
			b.heard["other: "+p.said]++
		}
	}
}

// pushes waits until each site has acknowledged a push that begins now or later.
func (b *bed) pushes() {
	b.Helper()
	since := b.journal.now()
	for _, s := range b.sites {
		eventually(b, "a push to "+s.name, func() error {
			if !b.journal.accepts(s.name, since) {
				return errPending
			}
			return nil
		})
	}
}

// rewind notes that the old server is gone: from now on nothing may be acknowledged. Clients may be told sentences, and more.
func (b *bed) rewind(more ...string) {
	b.Helper()
	b.had = make(map[string]map[string]string)
	for _, s := range b.sites {
		b.had[s.name] = s.refs(project)
	}
	b.journal.mu.Lock()
	defer b.journal.mu.Unlock()
	b.rewound, b.allowed = b.journal.now(), slices.Concat(sentences, more)
	clear(b.heard)
}

// ends notes that pushes may be acknowledged again, and returns what clients heard since the rewind.
func (b *bed) ends() map[string]int {
	b.journal.mu.Lock()
	defer b.journal.mu.Unlock()
	b.rewound = 0
	return maps.Clone(b.heard)
}

// admission asks the database.
func (b *bed) admission() driver.Admission {
	b.Helper()
	var a driver.Admission
	eventually(b, "an answer of the database", func() (err error) {
		a, err = b.db.Recovery().Admission(b.Context())
		return err
	})
	return a
}

// halts waits until the sites have found that the database went back, and have refused pushes because
// of that for a while. It returns how long it took them.
func (b *bed) halts() time.Duration {
	b.Helper()
	began := time.Now()
	eventually(b, "the halt", func() error {
		if a := b.admission(); !a.Halted || len(a.Waiting()) > 0 {
			return fmt.Errorf("%+v", a)
		}
		return nil
	})
	took := time.Since(began)
	eventually(b, "a refusal because of the loss", func() error {
		b.journal.mu.Lock()
		defer b.journal.mu.Unlock()
		if b.heard[wire.DatabaseLost] < 3 {
			return fmt.Errorf("%v", b.heard)
		}
		return nil
	})
	return took
}

// reads reads as an operator would.
func (b *bed) reads() {
	b.Helper()
	for _, s := range b.sites {
		s.must("refs", "list", project)
		s.must("refs", "log", project)
		s.must("recover", "--status")
	}
}

// recovers lets an operator recover the database. It returns how many acknowledgements a client had got since the rewind.
func (b *bed) recovers(args ...string) (early int) {
	b.Helper()
	heard := b.ends()
	b.rolledBack()
	out, err := b.eu.run(append([]string{"recover", "--reason", "test", "-y"}, args...)...)
	if err != nil {
		b.Fatal(err)
	}
	b.Logf("clients heard %v; refdbctl recover: %s", heard, out)
	for text := range heard {
		if strings.HasPrefix(text, "other: ") {
			b.Errorf("between the rewind and the recovery a client was told %s", text)
		}
	}
	if n := heard["acknowledged"]; n > 0 {
		b.Errorf("%d pushes were acknowledged between the rewind and the recovery", n)
	}
	return heard["acknowledged"]
}

// rolledBack fails the test if a site's ref has an earlier value than when the old server was gone: no sync may
// go by what a server has that is not admitted.
func (b *bed) rolledBack() {
	b.Helper()
	for _, s := range b.sites {
		has := s.refs(project)
		b.journal.mu.Lock()
		for _, ref := range chaosRefs {
			into := make(map[string]*move)
			for _, m := range b.journal.moves[target{project, ref}] {
				into[m.new] = m
			}
			for m := into[b.had[s.name][ref]]; m != nil && m.old != "" && b.had[s.name][ref] != ""; m = into[m.old] {
				if m.old == has[ref] {
					b.Errorf("%s of %s was %.8q, and is %.8q again", ref, s.name, b.had[s.name][ref], has[ref])
				}
			}
		}
		b.journal.mu.Unlock()
	}
}

// finish ends the clients and checks everything.
func (b *bed) finish() {
	b.Helper()
	b.pushes()
	b.stop()
	b.settled()
	for _, s := range b.sites {
		s.sync()
	}
	for _, s := range b.sites {
		b.check(s)
	}
	for l, err := range b.db.Recovery().LostChanges(b.Context(), true) {
		if err != nil || l.Fate != driver.Rewritten && l.Fate != driver.Dropped && l.Fate != driver.Late {
			b.Errorf("lost: %+v, %v", l, err)
		}
	}
	global := b.global(project)
	sameRefs(b, "eu", b.eu.refs(project), global)
	sameRefs(b, "us", b.us.refs(project), global)
	for _, ref := range chaosRefs {
		at := target{project, ref}
		if err := errors.Join(findLine(b.journal.moves[at], global[ref]), b.logged(ref, global[ref])); err != nil {
			b.Errorf("%s: %v\nall of its moves:\n\t%s", ref, err, b.journal.of(at))
		}
	}
}

// check fails the test if the site has a finding. A recovery ends the locks on the sites' names, too: a daemon that
// has just found that out takes its own again within moments.
func (b *bed) check(s *server) {
	b.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		out, err := s.run("site", "check")
		if err == nil {
			return
		}
		moment := strings.Contains(err.Error(), "daemon-down") && strings.Contains(err.Error(), ": 1 finding\n")
		if !moment || time.Now().After(deadline) {
			b.Fatal(out, err)
		}
	}
}

// A loggedChange is a line of refdbctl refs log.
type loggedChange struct {
	Old, New *string
}

// logged returns an error unless the log of a ref is one chain, which ends with value, and has all that was acknowledged.
func (b *bed) logged(ref, value string) error {
	var all []loggedChange
	if err := json.Unmarshal([]byte(b.eu.must("refs", "log", project, ref, "-o", "json")), &all); err != nil {
		return err
	}
	plain := func(v *string) string {
		if v == nil || strings.Trim(*v, "0") == "" {
			return ""
		}
		return *v
	}
	slices.Reverse(all)
	at, seen := "", map[string]bool{}
	for i, c := range all {
		if plain(c.Old) != at {
			return fmt.Errorf("change %d of the log, to %.8q, begins at %.8q, not %.8q", i, plain(c.New), plain(c.Old), at)
		}
		at = plain(c.New)
		seen[at] = true
	}
	if at != value {
		return fmt.Errorf("the log ends with %.8q, and the ref is %.8q", at, value)
	}
	for _, m := range b.journal.moves[target{project, ref}] {
		if m.outcome == acknowledged && m.new != "" && !seen[m.new] {
			return fmt.Errorf("acknowledged, and not in the log: %v", m)
		}
	}
	return nil
}
