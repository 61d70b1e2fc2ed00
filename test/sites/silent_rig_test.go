//go:build linux

package sites

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/site/presence"
)

// silentRound runs clients while the last site falls silent, the server is replaced, and the site comes back. Then it checks everything.
func (x *trio) silentRound(r replaceable, how silencing, times *silentTimes) {
	x.Helper()
	s := x.sites[len(x.sites)-1]
	x.Logf("%s: %s", s.name, how.name)
	var fell time.Duration
	x.run(func() {
		x.pushesAtAll()
		r.reach(x, atFirst)
		r.reach(x, whileAllServe)
		git := 0
		if how.announced {
			git = s.announces()
		}
		x.silent = s
		fell = x.journal.now()
		how.begin(s, git)
		r.reach(x, whenSilent)
		away := x.isAway(s)
		x.pushesAtAll()
		r.reach(x, whenAway)

		ended := x.journal.now()
		r.replace(x)
		writable := x.journal.now()
		var without []string
		if r.loses {
			without = x.recovers()
			writable = x.recovered
		}
		after := x.firstPushes(ended, x.size.pushers)
		x.notAwaited(s)

		x.silent = nil
		returned := x.journal.now()
		how.end(s, git)
		x.isBack(s)
		x.shares(without)
		x.pushesAtAll()
		round := silentTimes{
			away:  away,
			after: map[string]time.Duration{"eu": after["eu"] - writable, "us": after["us"] - writable},
			down:  max(after["eu"], after["us"]) - ended,
			back:  x.firstPushes(returned, x.size.pushers+len(x.sites))[s.name] - returned,
		}
		times.add(round)
		x.Logf("nobody waited for %s %s after its lock was stale; pushes came %v after the database could be written, %s after the server's end; at %s %s after it was back",
			s.name, round.away, round.after, round.down, s.name, round.back)
	})
	times.opposed += x.decides(s, fell)
	if r.light {
		x.heals()
		for _, project := range x.projects {
			x.onLines(project)
		}
	} else {
		x.check()
	}
	times.lost += x.missing
}

// announces stops a git of the site that the daemon has let through, and that has not moved its ref yet. It returns the process ID.
func (s *trioSite) announces() (git int) {
	x := s.trio
	x.Helper()
	repo := s.repo(x.projects[0])
	for git == 0 {
		g := gateIn(x, repo, "reference-transaction")
		g.shut("prepared")
		hook := g.waits("prepared")
		pid := parentOf(x, hook)
		if s.receives(pid) {
			git = pid
			signal(x, git, syscall.SIGSTOP)
		}
		if err := os.Remove(filepath.Join(repo, "hooks", "reference-transaction")); err != nil {
			x.Fatal(err)
		}
		g.open("prepared")
		gone(x, hook)
	}
	eventually(x, "the intent of "+s.name, func() error {
		for _, err := range x.db.Intents().All(x.Context(), driver.IntentFilter{Owner: s.name, Project: x.projects[0]}) {
			return err
		}
		return errPending
	})
	return git
}

// receives reports whether a process is a git that receives a push, not one with which the daemon moves refs.
func (s *trioSite) receives(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil {
		s.trio.Fatal(err)
	}
	is, _ := kindOf(strings.Split(strings.TrimRight(string(text), "\x00"), "\x00"))
	return is == receiver
}

// isAway waits until the database says that nobody waits for a site. It returns how long that took from when the lock on the site's name
// was stale, which it makes the lock unless x has the time to wait for that.
func (x *trio) isAway(s *trioSite) time.Duration {
	x.Helper()
	var stale time.Time
	eventually(x, "the moment from which nobody waits for "+s.name, func() error {
		locks, err := presence.NameLocks(x.Context(), x.db)
		if err != nil {
			return err
		}
		if l, held := locks[s.name]; held && !l.Stale() { // also if a last beat was still under way
			if x.ages {
				x.makesStale(s)
			}
			return fmt.Errorf("its lock was renewed %s ago", l.Age)
		}
		if stale.IsZero() {
			stale = time.Now()
		}
		_, w, err := x.witness(s)
		if err == nil && !w.Away {
			err = fmt.Errorf("since %s its lock is stale, and it is awaited: %+v", time.Since(stale).Round(time.Millisecond), w)
		}
		return err
	})
	return time.Since(stale)
}

// makesStale sets the heartbeat of the lock on a site's name back.
func (x *trio) makesStale(s *trioSite) {
	x.Helper()
	if d, ok := x.shared.(interface {
		Age(tb testing.TB, project, ref string, by time.Duration)
	}); ok {
		d.Age(x, presence.Project, "refs/sites/"+s.name, time.Hour)
		return
	}
	earlier := "heartbeat - interval '1 hour'"
	if strings.HasPrefix(x.url, "sqlite:") {
		earlier = fmt.Sprintf("heartbeat - %d", time.Hour.Microseconds())
	}
	x.count(fmt.Sprintf("UPDATE locks SET heartbeat = %s WHERE project = '%s' AND ref = 'refs/sites/%s' RETURNING 1", earlier, presence.Project, s.name))
}

// witness returns the row of a site.
func (x *trio) witness(s *trioSite) (a driver.Admission, w driver.Witness, err error) {
	a, err = x.db.Recovery().Admission(x.Context())
	for _, one := range a.Witnesses {
		if one.Name == s.name {
			return a, one, err
		}
	}
	return a, w, errors.Join(err, fmt.Errorf("%s is no witness: %+v", s.name, a))
}

// notAwaited fails the test if a site is awaited.
func (x *trio) notAwaited(s *trioSite) {
	x.Helper()
	a, w, err := x.witness(s)
	if err != nil || !a.Admitted || !w.Away {
		x.Errorf("pushes go on, and %s should be away: %+v, %v", s.name, a, err)
	}
}

// isBack waits until a site has compared the server.
func (x *trio) isBack(s *trioSite) {
	x.Helper()
	eventually(x, "the comparison of "+s.name, func() error {
		a, w, err := x.witness(s)
		if a.Halted {
			x.Fatalf("%s is back, and the database is halted: %+v", s.name, a)
		}
		if err == nil && !a.May(s.name) {
			err = fmt.Errorf("%+v", w)
		}
		return err
	})
}

// firstPushes waits until each site whose daemon runs has acknowledged a push that began after that time. It returns when each did. Each of
// these sites has a client of its own meanwhile: the other clients may all wait for the silent site, or for a ref that it has announced to
// move. These clients have numbers from the given one on.
func (x *trio) firstPushes(since time.Duration, number int) map[string]time.Duration {
	x.Helper()
	ctx, stop := context.WithCancel(x.Context())
	var running sync.WaitGroup
	defer func() { stop(); running.Wait() }()
	for i, s := range x.served() {
		p := &trioPusher{x: x, number: number + i, random: x.random(number + i), only: s}
		running.Go(func() { p.run(ctx) })
	}
	first := make(map[string]time.Duration)
	for _, s := range x.served() {
		eventually(x, "a push to "+s.name, func() error {
			at, told := x.journal.first(s.name, since)
			if !told {
				a, err := x.db.Recovery().Admission(x.Context())
				return fmt.Errorf("admission %+v, %w", a, err)
			}
			first[s.name] = at
			return nil
		})
	}
	return first
}

// decides decides, as an operator would, about the announced pushes of a site that fell silent then, which no recovery could write again
// because nobody knew whether git had made them. If git has, and the database still has the old value, the push is written now; else the
// database's value stands. It returns how many clients were told, after that moment, that a push is done which the database can't have any
// more. Any other lost change must have been written again.
func (x *trio) decides(s *trioSite, fell time.Duration) (opposed int) {
	x.Helper()
	for l, err := range x.db.Recovery().LostChanges(x.Context(), true) {
		if err != nil {
			x.Fatal(err)
		}
		switch {
		case l.Fate == driver.Rewritten, l.Fate == driver.Dropped:
			continue
		case l.Fate != driver.Opposed, l.Owner != s.name && !strings.HasPrefix(l.Owner, s.name+"/"):
			x.Errorf("lost: %+v", l)
			continue
		}
		before, after := plainValue(l.Old), plainValue(l.New)
		local, global := s.refs(l.Project)[l.Ref], plainValue(refdb.Value(x.global(l.Project)[l.Ref]))
		x.Logf("an operator decides about %+v: the site has %.8q, the database %.8q", l, local, global)
		switch made := local == after; {
		case !made, local == global:
		case global == before && after != "":
			old := before
			if old == "" {
				old = "none"
			}
			s.must("refs", "put", l.Project, l.Ref, after, "--old", old)
			s.must("site", "store", "compact", l.Project)
			continue
		case global == "":
			x.g.run(x, s.repo(l.Project), "-c", "core.hooksPath=/dev/null", "update-ref", "-d", l.Ref)
		default:
			eventually(x, "the database's values of "+l.Project+" at "+s.name, func() error {
				_, repaired := s.run("site", "check", "--repair") // removes the lock files of what was killed
				_, err := s.run(append(syncArgs(x.eu, s.server, l.Project), "--force")...)
				if err != nil {
					err = errors.Join(err, repaired)
				}
				return err
			})
		}
		for _, m := range x.journal.moves[target{l.Project, l.Ref}] {
			if m.outcome == acknowledged && m.end > fell && m.old == before && m.new == after && global != after {
				m.outcome = unknown
				opposed++
			}
		}
	}
	return opposed
}
