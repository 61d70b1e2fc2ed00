package overview_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/memory"
	"github.com/globalrefdb/globalrefdb/refdb/operator"
	"github.com/globalrefdb/globalrefdb/site/overview"
	"github.com/globalrefdb/globalrefdb/site/presence"
)

const mainRef = "refs/heads/main"

// rig is a database with sites.
type rig struct {
	*testing.T
	memory *memory.Database
	db     *refdb.DB
	// wrap changes the driver that the overview is read through.
	wrap func(driver.Driver) driver.Driver
}

func inBubble(t *testing.T, test func(r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := &rig{T: t, memory: memory.New(), wrap: func(d driver.Driver) driver.Driver { return d }}
		r.db = r.open(r.memory.Open(), "operator")
		test(r)
	})
}

func (r *rig) open(d driver.Driver, site string) *refdb.DB {
	r.Helper()
	// In a bubble no lock is renewed.
	db, err := refdb.New(d, refdb.Options{Site: site, StaleAfter: 24 * time.Hour})
	r.must(err)
	r.Cleanup(func() { db.Close() })
	return db
}

func (r *rig) must(err error) {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
}

// site registers a site whose daemon runs.
func (r *rig) site(name string, about presence.About) *refdb.DB {
	r.Helper()
	db := r.open(r.memory.Open(), name)
	d := r.memory.Open()
	_, err := db.Put(r.Context(), presence.Project, "refs/sites/"+name, "generation")
	r.must(err)
	looked, err := d.Look(r.Context(), name, nil)
	r.must(err)
	_, err = d.Report(r.Context(), driver.Report{Witness: name, Owner: db.Owner(), Server: looked.Server})
	r.must(err)
	_, err = db.TryLock(r.Context(), presence.Project, "refs/sites/"+name)
	r.must(err)
	r.must(presence.Tell(r.Context(), db, name, about))
	r.follow(name)
	return db
}

// dies ends a site's daemon, and its lock on the site's name.
func (r *rig) dies(name string, db *refdb.DB) {
	r.Helper()
	db.Close()
	for l, err := range r.db.Locks(r.Context(), refdb.LockFilter{Project: presence.Project, Ref: "refs/sites/" + name}) {
		r.must(err)
		_, err = r.db.Operator().Purge(r.Context(), []refdb.LockInfo{l}, operator.PurgeFresh())
		r.must(err)
	}
	time.Sleep(time.Minute)
}

// follow records that a site has read all changes.
func (r *rig) follow(name string) {
	r.Helper()
	end, err := r.db.HistoryEnd(r.Context())
	r.must(err)
	r.must(r.db.Followers().Put(r.Context(), presence.FollowerName(name), end))
}

func (r *rig) put(project, ref string) {
	r.Helper()
	_, err := r.db.Put(r.Context(), project, ref, refdb.Value(strings.Repeat("a", 40)))
	r.must(err)
}

func (r *rig) announce(db *refdb.DB, ref string) {
	r.Helper()
	_, err := db.Intents().Prepare(r.Context(), "team/app", []refdb.Update{{Ref: ref, New: refdb.Value(strings.Repeat("b", 40))}}, "agent")
	r.must(err)
}

func (r *rig) gather(o overview.Options) overview.Overview {
	r.Helper()
	return overview.Gather(r.Context(), r.open(r.wrap(r.memory.Open()), "operator"), o)
}

// A replaced driver is one whose server is another one than the sites have compared.
type replaced struct {
	driver.Driver
	lost int
}

func (d replaced) Admission(ctx context.Context) (driver.Admission, error) {
	a, err := d.Driver.Admission(ctx)
	a.Server, a.Admitted, a.Halted, a.Lost = "another", false, d.lost > 0, d.lost
	return a, err
}

func (r *rig) replace(lost int) {
	r.wrap = func(d driver.Driver) driver.Driver { return replaced{d, lost} }
}

func TestEachProblemComesWithACommand(t *testing.T) {
	t.Parallel()
	for name, x := range map[string]struct {
		prepare func(r *rig)
		want    []string // code, where to run the command, the command
		says    string   // the first one
	}{
		"all is well": {func(r *rig) {
			db := r.site("eu-1", presence.About{Version: "v1", Schema: 11, Followed: 3})
			r.announce(db, mainRef)
			r.put("team/lib", mainRef)
		}, nil, ""},
		"a site's daemon has died": {func(r *rig) {
			r.dies("eu-1", r.site("eu-1", presence.About{}))
		}, []string{"unreachable at eu-1: systemctl start refdb-site"}, "refdbctl sites retire eu-1"},
		"a site's daemon has died within a push": {func(r *rig) {
			db := r.site("eu-1", presence.About{})
			r.announce(db, mainRef)
			r.dies("eu-1", db)
		}, []string{"unreachable at eu-1: systemctl start refdb-site", "intent-stuck at : refdbctl locks list --intents --owner eu-1"}, ""},
		"a push hangs": {func(r *rig) {
			db := r.site("eu-1", presence.About{})
			r.announce(db, mainRef)
			time.Sleep(6 * time.Minute)
			r.announce(db, "refs/heads/young")
		}, []string{"intent-stuck at eu-1: refdbctl site status"}, "pushes to 1 ref, announced by eu-1, have not ended, the oldest for 6m0s (team/app refs/heads/main)"},
		"an operator's decision is not applied": {func(r *rig) {
			r.announce(r.site("eu-1", presence.About{}), mainRef)
			for i, err := range r.db.Intents().All(r.Context(), driver.IntentFilter{}) {
				r.must(err)
				_, err = r.db.Intents().Resolve(r.Context(), []driver.Intent{i}, driver.KeepOld, "anna", "why")
				r.must(err)
			}
			time.Sleep(time.Minute)
		}, []string{"intent-decided at eu-1: refdbctl site repair"}, "eu-1 has not applied 1 operator's decision about its pushes, such as team/app refs/heads/main"},
		"a daemon has an alarm": {func(r *rig) {
			r.site("eu-1", presence.About{Alarms: []string{"RefdbRootGone", "RefdbRefsStuck"}})
		}, []string{"alarm at eu-1: refdbctl site status"}, "RefdbRootGone, RefdbRefsStuck"},
		"a site does not read changes": {func(r *rig) {
			r.site("eu-1", presence.About{})
			r.put("team/app", mainRef)
			time.Sleep(11 * time.Minute)
		}, []string{"site-lags at eu-1: refdbctl site status"}, "eu-1 has not read 1 change for 11m0s"},
		"repositories are behind": {func(r *rig) {
			r.site("eu-1", presence.About{Behind: 2, Projects: []string{"team/old", "team/new"}, BehindFor: 50})
			time.Sleep(time.Minute)
		}, []string{"behind at eu-1: refdbctl site status"}, "at eu-1 2 repositories can't catch up, team/old for 1m50s"},
		"repositories have been behind for a moment": {func(r *rig) {
			r.site("eu-1", presence.About{Behind: 2, Projects: []string{"team/old"}, BehindFor: 50})
		}, nil, ""},
		"a lock is waited for": {func(r *rig) {
			_, err := r.db.TryLock(r.Context(), "team/it's", mainRef)
			r.must(err)
			ctx, cancel := context.WithCancel(r.Context())
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				r.open(r.memory.Open(), "eu-2").Lock(ctx, "team/it's", mainRef)
			}()
			r.Cleanup(func() { cancel(); <-ended })
			time.Sleep(6 * time.Minute)
		}, []string{`lock-awaited at : refdbctl locks show 'team/it'\''s' refs/heads/main`}, "1 process is waiting for the lock on team/it's refs/heads/main"},
		"the server was replaced": {func(r *rig) {
			r.site("eu-1", presence.About{})
			r.dies("us-1", r.site("us-1", presence.About{}))
			r.replace(0)
		}, []string{"not-compared at eu-1: refdbctl site status", "not-compared at us-1: systemctl start refdb-site"}, "before eu-1 has compared the database's new server"},
		"the server was replaced, and nobody is waited for": {func(r *rig) { r.replace(0) },
			[]string{"not-admitted at : refdbctl recover --status"}, "nothing can be written"},
		"changes were lost": {func(r *rig) { r.replace(3) },
			[]string{"lost-changes at : refdbctl recover --status"}, "the database has lost 3 changes"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(r *rig) {
				x.prepare(r)
				v := r.gather(overview.Options{})
				var got []string
				for _, p := range v.Problems {
					got = append(got, fmt.Sprintf("%s at %s: %s", p.Code, p.Site, p.Command))
				}
				if !slices.Equal(got, x.want) || len(got) > 0 && !strings.Contains(v.Problems[0].Detail, x.says) {
					r.Errorf("the problems are %q, want %q: %+v", got, x.want, v.Problems)
				}
				if len(v.Unread) > 0 {
					r.Errorf("not read: %v", v.Unread)
				}
			})
		})
	}
}

func TestWhatIsCounted(t *testing.T) {
	t.Parallel()
	inBubble(t, func(r *rig) {
		db := r.site("eu-1", presence.About{Version: "v1", Schema: 11, Followed: 3})
		r.put("team/app", "refs/heads/before")
		time.Sleep(time.Hour)
		r.follow("eu-1")
		for range 30 {
			r.put("team/app", mainRef)
		}
		r.put("team/lib", mainRef)
		r.announce(db, "refs/heads/announced")
		_, err := r.memory.Open().Acquire(r.Context(), driver.AcquireRequest{Project: "team/lib", Refs: []string{"refs/heads/stale"}, Owner: "dead/1", Nonce: "n", StaleAfter: time.Millisecond})
		r.must(err)
		_, err = r.db.TryLock(r.Context(), "team/app", "refs/heads/held")
		r.must(err)
		time.Sleep(time.Second)
		v := r.gather(overview.Options{Schema: func(context.Context) (int, error) { return 11, nil }})
		if c := *v.Changes; c.Count != 31 || c.PerSecond != 31./60 || c.More {
			r.Errorf("changes: %+v", c)
		}
		if i := *v.Intents; i.Pending != 1 || i.Stuck != 0 || i.OldestSeconds != 1 || len(i.Oldest) != 1 || i.Oldest[0].Site != "eu-1" {
			r.Errorf("intents: %+v", i)
		}
		if l := *v.Locks; l.Held != 1 || l.Stale != 1 || l.Awaited != 0 { // neither that of the site's name nor that of the intent
			r.Errorf("locks: %+v", l)
		}
		if s := v.Sites; len(s) != 1 || s[0].Lag == nil || s[0].Lag.Changes != 31 || s[0].Lag.Seconds != 1 || s[0].Schema != 11 || s[0].Alive == nil || !*s[0].Alive || !s[0].Awaited {
			r.Errorf("sites: %+v", s)
		}
		if d := *v.Database; !d.Writable || d.Schema != 11 || d.Server == "" {
			r.Errorf("database: %+v", d)
		}
		v = r.gather(overview.Options{Projects: []string{"team/lib", "team/none"}})
		if v.Changes.Count != 1 || v.Intents.Pending != 0 || v.Locks.Held != 0 || v.Locks.Stale != 1 || len(v.Sites) != 1 {
			r.Errorf("of some projects: %+v", v)
		}
	})
}

// Partial is a driver that lacks privileges.
type partial struct{ driver.Driver }

var errDenied = errors.New("permission denied for table")

func (partial) Locks(context.Context, driver.LockQuery) (driver.LockPage, error) {
	return driver.LockPage{}, errDenied
}

func (partial) Followers(context.Context) ([]driver.Follower, error) { return nil, errDenied }

func TestWhatCanBeReadIsShown(t *testing.T) {
	t.Parallel()
	inBubble(t, func(r *rig) {
		r.announce(r.site("eu-1", presence.About{Version: "v1", Alarms: []string{"RefdbRootGone"}}), mainRef)
		r.wrap = func(d driver.Driver) driver.Driver { return partial{d} }
		v := r.gather(overview.Options{})
		var unread []string
		for _, u := range v.Unread {
			unread = append(unread, u.What)
		}
		if want := []string{"followers", "locks", "locks on sites' names"}; !slices.Equal(unread, want) {
			r.Errorf("not read are %q, want %q", unread, want)
		}
		if v.Locks != nil || v.Intents.Pending != 1 || v.Sites[0].Version != "v1" || v.Sites[0].Lag != nil || !v.Database.Writable || v.Changes == nil {
			r.Errorf("got %+v", v)
		}
		// A site whose lock can't be read may be alive.
		if v.Sites[0].Alive != nil || len(v.Problems) != 1 || v.Problems[0].Code != overview.Alarm {
			r.Errorf("alive: %v, the problems are %+v", v.Sites[0].Alive, v.Problems)
		}
		r.wrap = func(d driver.Driver) driver.Driver { return partial{replaced{d, 0}} }
		if p := r.gather(overview.Options{}).Problems; len(p) == 0 || p[0].Code != overview.NotCompared || p[0].Command != "refdbctl site status" || !strings.Contains(p[0].Detail, "could not be read") {
			r.Errorf("after the server was replaced the problems are %+v", p)
		}
	})
}

// A crowd is a driver whose listings of locks begin with many that stand for intents.
type crowd struct {
	driver.Driver
	n int
}

func (c crowd) Locks(ctx context.Context, q driver.LockQuery) (driver.LockPage, error) {
	page, err := c.Driver.Locks(ctx, q)
	if q.After == (driver.LockCursor{}) && q.Project == "" && !q.Markers {
		page.Locks = append(slices.Repeat([]driver.LockInfo{{Project: "a", Ref: mainRef, Owner: "eu-1/1", StaleAfter: driver.NeverStale}}, c.n), page.Locks...)
	}
	return page, err
}

func TestIntentsHideNoLocks(t *testing.T) {
	t.Parallel()
	for n, held := range map[int]int{overview.MostRows: 1, 5*overview.MostRows + 1: 0} {
		inBubble(t, func(r *rig) {
			_, err := r.db.TryLock(r.Context(), "team/app", mainRef)
			r.must(err)
			r.wrap = func(d driver.Driver) driver.Driver { return crowd{d, n} }
			v := r.gather(overview.Options{})
			if len(v.Unread) > 0 || v.Locks.Held != held || v.Locks.More != (held == 0) {
				r.Errorf("behind %d intents: %+v, %v", n, v.Locks, v.Unread)
			}
		})
	}
}
