package driver

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/refdbtest/internal/suite"
)

// The rows share one table of locks: each looks at its own owners only.
func locksRows() []row {
	return []row{
		{"a lock is listed with all its fields", func(e *env) {
			l := e.Acquire(e.A, refA)
			e.Age(l, 10*time.Minute)
			before, was := e.Now(e.B), e.Row(refA)
			got := e.Locks(driver.LockQuery{LockFilter: driver.LockFilter{Project: e.Project}})
			if len(got) != 1 {
				e.Fatalf("got %+v", got)
			}
			g := got[0]
			if g.Project != e.Project || g.Ref != refA || g.Owner != l.Owner || g.Token != l.Token || g.StaleAfter != staleAfter || !g.Heartbeat.Equal(was.Heartbeat) {
				e.Errorf("got %+v of %+v", g, l)
			}
			lowest, highest := before.Sub(was.Heartbeat)-time.Microsecond, e.Now(e.B).Sub(was.Heartbeat)+time.Microsecond
			if g.Age < lowest || g.Age > highest {
				e.Errorf("the age is %v, want %v to %v", g.Age, lowest, highest)
			}
		}},
		{"a lock of Gerrit's is listed with a stale-after of 30 s", func(e *env) {
			e.DB.InsertLock(e, driver.LockInfo{Project: e.Project, Ref: refA, Owner: gerrit, Age: 15 * time.Second})
			e.DB.InsertLock(e, driver.LockInfo{Project: e.Project, Ref: refB, Owner: gerrit, Age: 31 * time.Second})
			got := e.Locks(driver.LockQuery{LockFilter: driver.LockFilter{Project: e.Project}})
			if len(got) != 2 || got[0].StaleAfter != driver.DefaultStaleAfter || !got[1].Stale() || got[0].Token == 0 {
				e.Errorf("got %+v", got)
			} else if oldest := e.Now(e.B).Sub(got[0].Heartbeat) + time.Microsecond; got[0].Age < 15*time.Second || got[0].Age > oldest {
				e.Errorf("the age is %v, want 15s to %v", got[0].Age, oldest)
			}
		}},
		{"a lock without heartbeat and token has token 0 and the epoch's", func(e *env) {
			e.DB.InsertLock(e, driver.LockInfo{Project: e.Project, Ref: refA, Owner: gerrit})
			e.DB.Exec(e, "UPDATE locks SET heartbeat = NULL, token = NULL WHERE project = '"+e.Project+"'")
			got := e.Locks(driver.LockQuery{LockFilter: driver.LockFilter{Project: e.Project, Stale: true, OlderThan: 50 * 365 * 24 * time.Hour}})
			if len(got) != 1 || got[0].Token != 0 || !got[0].Heartbeat.Equal(time.UnixMicro(0)) || !got[0].Stale() {
				e.Errorf("got %+v", got)
			}
		}},
		{"every filter and every pair of filters select the matching locks, in order, in pages of any size", suite.Long(everyFilter)},
		{"a site's name selects all its processes, and no other site's", func(e *env) {
			site := e.Project
			owners := []string{site, site + "/1", site + "/2/x", site + "2", site + "2/1", site + "-", strings.ToUpper(site) + "/1", site + "%/1", "x" + site + "/1"}
			for i, owner := range owners {
				r := e.AcquireRequest(e.A, fmt.Sprintf("refs/heads/%d", i))
				r.Owner = owner
				_, err := e.SendAcquire(e.A, r)
				e.Must(err)
			}
			for owner, want := range map[string][]string{
				site: owners[:3], site + "/1": owners[1:2], site + "/2": owners[2:3], site + "/": nil, site + "2": owners[3:5],
				site + "%": owners[7:8], site[:len(site)-1] + "_": nil, strings.ToUpper(site): owners[6:7],
			} {
				var got []string
				for _, l := range e.Locks(driver.LockQuery{LockFilter: driver.LockFilter{Owner: owner}}) {
					got = append(got, l.Owner)
				}
				if !slices.Equal(got, want) {
					e.Errorf("owner %q: got %q, want %q", owner, got, want)
				}
			}
		}},
		{"the markers of reclaims are listed separately", func(e *env) {
			l := e.Acquire(e.A, refA)
			m := suite.Marker(e.Project, l.Token)
			e.DB.InsertLock(e, driver.LockInfo{Project: m, Ref: refA, Owner: e.A.Owner, Age: 31 * time.Second})
			mine := func(q driver.LockQuery) (projects []string) {
				for _, l := range e.Locks(q) {
					if strings.Contains(l.Project, e.Project) {
						projects = append(projects, l.Project)
					}
				}
				return projects
			}
			if got := mine(driver.LockQuery{}); slices.Contains(got, m) || !slices.Contains(got, e.Project) {
				e.Errorf("the locks are those of %q", got)
			}
			for _, f := range []driver.LockFilter{{}, {Ref: refA}, {Prefix: "refs/heads"}, {Owner: e.A.Owner}, {Owner: "site-a"}, {Stale: true}, {OlderThan: 20 * time.Second}, {Project: m}} {
				if got := mine(driver.LockQuery{Markers: true, LockFilter: f}); !slices.Equal(got, []string{m}) {
					e.Errorf("markers with %+v: got %q, want %q", f, got, m)
				}
			}
			for _, f := range []driver.LockFilter{{Ref: refB}, {Owner: "site-b"}, {OlderThan: time.Hour}, {Project: e.Project}} {
				if got := mine(driver.LockQuery{Markers: true, LockFilter: f}); len(got) != 0 {
					e.Errorf("markers with %+v: got %q, want none", f, got)
				}
			}
		}},
		{"projects whose names are like a marker's are listed as locks", func(e *env) {
			var want []string
			for _, p := range []string{"RECLAIM", "RECLAIMX_", "reclaim_", "xRECLAIM_"} {
				r := e.AcquireRequest(e.A, refA)
				r.Project, r.Owner = p+e.Project, e.Project
				if p == "RECLAIM" {
					r.Project = p
				}
				_, err := e.SendAcquire(e.A, r)
				e.Must(err)
				want = append(want, r.Project)
			}
			var got []string
			for _, l := range e.Locks(driver.LockQuery{LockFilter: driver.LockFilter{Owner: e.Project}}) {
				got = append(got, l.Project)
			}
			if !slices.Equal(got, want) {
				e.Errorf("got %q, want %q", got, want)
			}
		}},
	}
}

func everyFilter(e *env) {
	var all []driver.LockInfo
	site := e.Project
	for i, project := range []string{"", "-", "/b", "A", "_", "\U0010FFFF"} {
		for j, ref := range []string{"HEAD", "refs/heads/%", "refs/heads/a", "refs/heads/a_b", "refs/heads/aXb", "refs/tags/a"} {
			n := i*6 + j
			r := e.AcquireRequest(e.A, ref)
			r.Project += project
			r.Owner = []string{site, site + "/1", site + "2/1"}[n%3]
			r.StaleAfter = []time.Duration{time.Hour, 3 * time.Hour}[n/3%2]
			l, err := e.SendAcquire(e.A, r)
			e.Must(err)
			age := []time.Duration{0, 2 * time.Hour, 4 * time.Hour, 20 * time.Minute, 80 * time.Minute}[n%5]
			e.Age(l, age)
			all = append(all, driver.LockInfo{Project: r.Project, Ref: ref, Owner: r.Owner, Token: l.Token, Age: age, StaleAfter: r.StaleAfter})
		}
	}
	slices.SortFunc(all, func(a, b driver.LockInfo) int { return suite.ComparePlaces(suite.PlaceOf(a), suite.PlaceOf(b)) })

	check := func(f driver.LockFilter, size int) {
		var want []driver.LockInfo
		for _, l := range all {
			if selects(f, l) {
				want = append(want, l)
			}
		}
		// The locks of the topic's other rows don't count.
		got := slices.DeleteFunc(e.Locks(driver.LockQuery{LockFilter: f, Limit: size}), func(l driver.LockInfo) bool {
			return !selects(driver.LockFilter{Owner: site}, l) && !selects(driver.LockFilter{Owner: site + "2"}, l)
		})
		if !slices.EqualFunc(got, want, func(a, b driver.LockInfo) bool {
			return a.Token == b.Token && a.Project == b.Project && a.Ref == b.Ref
		}) {
			e.Errorf("%+v, pages of %d: got %+v, want %+v", f, size, got, want)
		}
	}
	check(driver.LockFilter{}, 5)
	check(driver.LockFilter{}, 1000)
	settings := filterSettings(e.Project)
	for i, x := range settings {
		var f driver.LockFilter
		x(&f)
		check(f, 5)
		check(f, 1000)
		for _, y := range settings[i+1:] {
			g := f
			if y(&g); g != f {
				check(g, 1000)
			}
		}
	}
}

// filterSettings returns functions that set one field of a filter each.
func filterSettings(project string) []func(*driver.LockFilter) {
	var all []func(*driver.LockFilter)
	for _, p := range []string{project, project + "/b"} {
		all = append(all, func(f *driver.LockFilter) { f.Project = p })
	}
	for _, ref := range []string{"refs/heads/a", "refs/heads/%"} {
		all = append(all, func(f *driver.LockFilter) { f.Ref = ref })
	}
	for _, prefix := range []string{"refs/heads/a", "refs/heads/a_", "refs/heads/%", "refs/heads/A"} {
		all = append(all, func(f *driver.LockFilter) { f.Prefix = prefix })
	}
	for _, owner := range []string{project, project + "2"} {
		all = append(all, func(f *driver.LockFilter) { f.Owner = owner })
	}
	for _, age := range []time.Duration{time.Hour, 3 * time.Hour} {
		all = append(all, func(f *driver.LockFilter) { f.OlderThan = age })
	}
	return append(all, func(f *driver.LockFilter) { f.Stale = true })
}

// selects reports whether a LockFilter selects a lock.
func selects(f driver.LockFilter, l driver.LockInfo) bool {
	return (f.Project == "" || l.Project == f.Project) &&
		(f.Ref == "" || l.Ref == f.Ref) &&
		strings.HasPrefix(l.Ref, f.Prefix) &&
		(f.Owner == "" || l.Owner == f.Owner || strings.HasPrefix(l.Owner, f.Owner+"/")) &&
		(!f.Stale || l.Stale()) &&
		(f.OlderThan == 0 || l.Age > f.OlderThan)
}

func summaryRows() []row {
	return []row{
		{"a project's refs, deleted refs and locks are counted, and no other's", func(e *env) {
			p := e.Project + "/p"
			for _, ref := range []string{refA, refB, "HEAD"} {
				e.DB.InsertRef(e, p, ref, v1)
			}
			e.DB.InsertRef(e, p, "refs/heads/gone", driver.Deleted)
			e.DB.InsertRef(e, p, "refs/heads/gone256", driver.Deleted256)
			e.DB.InsertRef(e, p+"/q", refA, v1)
			e.DB.InsertLock(e, driver.LockInfo{Project: p, Ref: refA, Owner: "o"})
			e.DB.InsertLock(e, driver.LockInfo{Project: p, Ref: "refs/heads/new", Owner: "o", Age: time.Hour})
			want := []driver.ProjectSummary{{Name: p, Refs: 3, Deleted: 2, Locks: 2}, {Name: p + "/q", Refs: 1}}
			if got := withoutTimes(summaries(e, 1000)); !slices.Equal(got, want) {
				e.Errorf("got %+v, want %+v", got, want)
			}
		}},
		{"a project with only a deleted ref, or only a lock, is listed", func(e *env) {
			e.DB.InsertRef(e, e.Project+"/deleted", refA, driver.Deleted)
			e.DB.InsertLock(e, driver.LockInfo{Project: e.Project + "/locked", Ref: refA, Owner: "o"})
			want := []driver.ProjectSummary{{Name: e.Project + "/deleted", Deleted: 1}, {Name: e.Project + "/locked", Locks: 1}}
			if got := withoutTimes(summaries(e, 1000)); !slices.Equal(got, want) {
				e.Errorf("got %+v, want %+v", got, want)
			}
		}},
		{"a marker does not make a project listed", func(e *env) {
			m := suite.Marker(e.Project+"/p", 1)
			e.DB.InsertLock(e, driver.LockInfo{Project: m, Ref: refA, Owner: "o"})
			page, err := e.A.Summaries(e.Context(), driver.SummaryQuery{After: driver.ReclaimPrefix, Limit: 1000})
			e.Must(err)
			if slices.ContainsFunc(page.Summaries, func(p driver.ProjectSummary) bool { return p.Name == m }) {
				e.Errorf("got %+v", page.Summaries)
			}
		}},
		{"a project has the time of its latest change", func(e *env) {
			p := e.Project + "/p"
			for _, ref := range []string{refB, refA, "refs/heads/z"} {
				e.DB.InsertRef(e, p, ref, v1)
			}
			rows, err := e.A.Get(e.Context(), p, []string{refA, refB, "refs/heads/z"})
			e.Must(err)
			last := slices.MaxFunc(rows, func(a, b driver.Ref) int { return a.Time.Compare(b.Time) }).Time
			if got := summaries(e, 1000); len(got) != 1 || !got[0].Changed.Equal(last) {
				e.Errorf("got %+v, want %s", got, last)
			}
		}},
		{"projects are listed by Next in byte order, each once, on pages of any size", suite.Long(func(e *env) {
			var want []string
			for i, name := range sortedNames() {
				want = append(want, e.Project+"/"+name)
				if i%3 == 0 {
					e.DB.InsertLock(e, driver.LockInfo{Project: e.Project + "/" + name, Ref: refA, Owner: "o"})
				}
				if i%3 != 0 || i%2 == 0 {
					e.DB.InsertRef(e, e.Project+"/"+name, refA, v1)
				}
			}
			for _, size := range []int{1, 2, 7, 1000} {
				var got []string
				for _, p := range summaries(e, size) {
					got = append(got, p.Name)
				}
				if !slices.Equal(got, want) {
					e.Errorf("pages of %d: got %q, want %q", size, got, want)
				}
			}
		})},
	}
}

// summaries returns the summaries of the projects below the row's own, read on pages of that size.
func summaries(e *env, size int) (all []driver.ProjectSummary) {
	e.Helper()
	read := func(after string) ([]driver.ProjectSummary, string, error) {
		page, err := e.A.Summaries(e.Context(), driver.SummaryQuery{After: after, Limit: size})
		return page.Summaries, page.Next, err
	}
	for p := range suite.ReadPages(e, e.Project, size, read, func(p driver.ProjectSummary) string { return p.Name }, strings.Compare) {
		if !strings.HasPrefix(p.Name, e.Project+"/") {
			break // the project of another row
		}
		all = append(all, p)
	}
	return all
}

func withoutTimes(projects []driver.ProjectSummary) []driver.ProjectSummary {
	for i := range projects {
		projects[i].Changed = time.Time{}
	}
	return projects
}

// intentFilters lists intents of several projects, sites and refs. Each ref has one that is
// pending and two that were decided.
func intentFilters(e *env) {
	site := e.Project
	owners := []string{site, site + "/1", site + "2/1", site + "-", strings.ToUpper(site) + "/1"}
	refs := []string{"HEAD", refA, refA + "-x", "refs/heads/%"}
	var all []driver.Intent
	for i, project := range []string{"", "-", "/b", "A", "_"} {
		for j, ref := range refs {
			for round := range 3 {
				r := e.PrepareRequest(e.A, suite.Move(ref, "", v1))
				r.Project += project
				r.Owner = owners[(i+j+round)%len(owners)]
				l, err := e.SendPrepare(e.A, r)
				e.Must(err)
				intent := driver.Intent{Project: r.Project, Ref: ref, Token: l.Token, Owner: r.Owner}
				if round < 2 {
					if got := e.Resolve(e.B, driver.KeepOld, intent.ID()); !got[0] {
						e.Fatalf("%+v was not pending", intent)
					}
					intent.Decision = driver.KeepOld
				}
				all = append(all, intent)
			}
		}
	}
	slices.SortFunc(all, func(a, b driver.Intent) int { return suite.CompareCursors(suite.CursorOf(a), suite.CursorOf(b)) })
	projects := make(map[string]bool)
	for _, i := range all {
		projects[i.Project] = true
	}
	for _, decided := range []bool{false, true} {
		for _, project := range []string{"", e.Project, e.Project + "/b", e.Project + "%"} {
			for _, ref := range []string{"", refA, "refs/heads/%", "refs/heads/z"} {
				for _, owner := range []string{"", site, site + "/1", site + "2", strings.ToUpper(site)} {
					f := driver.IntentFilter{Project: project, Ref: ref, Owner: owner, Decided: decided}
					var want []driver.Intent
					for _, i := range all {
						if selectsIntent(f, i) {
							want = append(want, i)
						}
					}
					for _, size := range []int{3, 1000} {
						if size == 3 && project == "" && owner == "" {
							continue // it would select thousands of intents of other rows
						}
						got := slices.DeleteFunc(e.Intents(driver.IntentQuery{IntentFilter: f, Limit: size}), func(i driver.Intent) bool {
							return !projects[i.Project] // of another row
						})
						if !slices.EqualFunc(got, want, sameIntent) {
							e.Errorf("%+v, pages of %d: got %+v, want %+v", f, size, got, want)
						}
					}
				}
			}
		}
	}
}

func sameIntent(a, b driver.Intent) bool {
	return a.Project == b.Project && a.Ref == b.Ref && a.Token == b.Token && a.Owner == b.Owner && a.Decision == b.Decision
}

// selectsIntent reports whether an IntentFilter selects an intent.
func selectsIntent(f driver.IntentFilter, i driver.Intent) bool {
	return (f.Project == "" || i.Project == f.Project) &&
		(f.Ref == "" || i.Ref == f.Ref) &&
		(f.Owner == "" || i.Owner == f.Owner || strings.HasPrefix(i.Owner, f.Owner+"/")) &&
		f.Decided == (i.Decision != driver.Pending)
}

// A caller that reads page after page, by Next, gets every listed row once.
func cursorRows() []row {
	sizes := []int{1, 2, 3, 1000}
	return []row{
		{"refs are listed by Next, each once, on pages of any size", func(e *env) {
			names := suite.ManyNames(7)
			e.Store(names)
			for _, size := range sizes {
				if got := e.Names(driver.RefQuery{Limit: size}); !slices.Equal(got, names) {
					e.Errorf("pages of %d: got %q", size, got)
				}
			}
		}},
		{"locks are listed by Next, each once, on pages of any size, over projects", func(e *env) {
			var want []driver.LockCursor
			for _, project := range []string{"", "-", "/b"} {
				r := e.AcquireRequest(process{Driver: e.A.Driver, Owner: e.Project}, suite.ManyNames(4)...)
				r.Project += project
				l, err := e.SendAcquire(e.A, r)
				e.Must(err)
				for _, id := range l.IDs() {
					want = append(want, driver.LockCursor{Project: id.Project, Ref: id.Ref})
				}
			}
			for _, size := range sizes {
				var got []driver.LockCursor
				for _, l := range e.Locks(driver.LockQuery{LockFilter: driver.LockFilter{Owner: e.Project}, Limit: size}) {
					got = append(got, suite.PlaceOf(l))
				}
				if !slices.Equal(got, want) {
					e.Errorf("pages of %d: got %v, want %v", size, got, want)
				}
			}
		}},
		{"markers are listed by Next, each once, on pages of any size", func(e *env) {
			var want []string
			for i := range 4 {
				m := suite.Marker(e.Project, driver.Token(i+1))
				e.DB.InsertLock(e, driver.LockInfo{Project: m, Ref: refA, Owner: e.Project})
				want = append(want, m)
			}
			for _, size := range sizes {
				var got []string
				for _, l := range e.Locks(driver.LockQuery{Markers: true, LockFilter: driver.LockFilter{Owner: e.Project}, Limit: size}) {
					got = append(got, l.Project)
				}
				if !slices.Equal(got, want) {
					e.Errorf("pages of %d: got %q, want %q", size, got, want)
				}
			}
		}},
		{"intents are listed by Next, each once, on pages of any size, including several of one ref", func(e *env) {
			var want []driver.IntentCursor
			for _, ref := range []string{refA, refB} {
				for i := range 3 {
					l := e.Prepare(e.A, suite.Move(ref, "", driver.Value(fmt.Sprint(i))))
					e.Resolve(e.B, driver.KeepOld, l.IDs()...)
					want = append(want, driver.IntentCursor{Project: l.Project, Ref: ref, Token: l.Token})
				}
			}
			for _, size := range sizes {
				var got []driver.IntentCursor
				for _, i := range e.Intents(driver.IntentQuery{IntentFilter: driver.IntentFilter{Project: e.Project, Decided: true}, Limit: size}) {
					got = append(got, suite.CursorOf(i))
				}
				if !slices.Equal(got, want) {
					e.Errorf("pages of %d: got %v, want %v", size, got, want)
				}
			}
		}},
		{"an empty listing ends", func(e *env) {
			refs, err := e.A.List(e.Context(), driver.RefQuery{Project: e.Project, Limit: 1})
			e.Must(err)
			locks, err := e.A.Locks(e.Context(), driver.LockQuery{LockFilter: driver.LockFilter{Project: e.Project}, Limit: 1})
			e.Must(err)
			intents, err := e.A.Intents(e.Context(), driver.IntentQuery{IntentFilter: driver.IntentFilter{Project: e.Project}, Limit: 1})
			e.Must(err)
			if len(refs.Refs)+len(locks.Locks)+len(intents.Intents) != 0 {
				e.Errorf("got %v, %v and %v", refs, locks, intents)
			}
			e.Names(driver.RefQuery{Limit: 1})
			e.Locks(driver.LockQuery{LockFilter: driver.LockFilter{Project: e.Project}, Limit: 1})
			e.Pending()
		}},
	}
}
