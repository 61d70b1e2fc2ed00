package refdbtest

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
)

// Rows share the topic's table of locks: each looks at its own owners only.
func locksRows() []row {
	return []row{
		{"a lock is listed with all that is known of it", func(e *env) {
			l := e.acquire(e.a, refA)
			e.age(l, 10*time.Minute)
			before, was := e.now(e.b), e.row(refA)
			got := e.locks(refdb.LockQuery{LockFilter: refdb.LockFilter{Project: e.project}})
			if len(got) != 1 {
				e.Fatalf("got %+v", got)
			}
			g := got[0]
			if g.Project != e.project || g.Ref != refA || g.Owner != l.Owner || g.Token != l.Token || g.StaleAfter != staleAfter || !g.Heartbeat.Equal(was.Heartbeat) {
				e.Errorf("got %+v of %+v", g, l)
			}
			lowest, highest := before.Sub(was.Heartbeat)-time.Microsecond, e.now(e.b).Sub(was.Heartbeat)+time.Microsecond
			if g.Age < lowest || g.Age > highest {
				e.Errorf("the age is %v, want %v to %v", g.Age, lowest, highest)
			}
		}},
		{"a lock of Gerrit's is listed as one of 30 s", func(e *env) {
			e.db.InsertLock(e, refdb.LockInfo{Project: e.project, Ref: refA, Owner: gerrit, Age: 15 * time.Second})
			e.db.InsertLock(e, refdb.LockInfo{Project: e.project, Ref: refB, Owner: gerrit, Age: 31 * time.Second})
			got := e.locks(refdb.LockQuery{LockFilter: refdb.LockFilter{Project: e.project}})
			if len(got) != 2 || got[0].StaleAfter != refdb.DefaultStaleAfter || got[0].Stale() || !got[1].Stale() || got[0].Token == 0 {
				e.Errorf("got %+v", got)
			}
		}},
		{"a lock without heartbeat and token has token 0 and the epoch's", func(e *env) {
			e.db.InsertLock(e, refdb.LockInfo{Project: e.project, Ref: refA, Owner: gerrit})
			e.db.Exec(e, "UPDATE locks SET heartbeat = NULL, token = NULL WHERE project = '"+e.project+"'")
			got := e.locks(refdb.LockQuery{LockFilter: refdb.LockFilter{Project: e.project, Stale: true, OlderThan: 50 * 365 * 24 * time.Hour}})
			if len(got) != 1 || got[0].Token != 0 || !got[0].Heartbeat.Equal(time.UnixMicro(0)) || !got[0].Stale() {
				e.Errorf("got %+v", got)
			}
		}},
		{"every filter, and every two together, select what they say, in order, on pages of any size", everyFilter},
		{"a site's name selects all its processes, and no other site's", func(e *env) {
			site := e.project
			owners := []string{site, site + "/1", site + "/2/x", site + "2", site + "2/1", site + "-", strings.ToUpper(site) + "/1", site + "%/1", "x" + site + "/1"}
			for i, owner := range owners {
				r := e.request(e.a, fmt.Sprintf("refs/heads/%d", i))
				r.Owner = owner
				_, err := e.send(e.a, r)
				e.must(err)
			}
			for owner, want := range map[string][]string{
				site: owners[:3], site + "/1": owners[1:2], site + "/2": owners[2:3], site + "/": nil, site + "2": owners[3:5],
				site + "%": owners[7:8], site[:len(site)-1] + "_": nil, strings.ToUpper(site): owners[6:7],
			} {
				var got []string
				for _, l := range e.locks(refdb.LockQuery{LockFilter: refdb.LockFilter{Owner: owner}}) {
					got = append(got, l.Owner)
				}
				if !slices.Equal(got, want) {
					e.Errorf("owner %q: got %q, want %q", owner, got, want)
				}
			}
		}},
		{"the markers of reclaims are listed apart", func(e *env) {
			l := e.acquire(e.a, refA)
			m := marker(e.project, l.Token)
			e.db.InsertLock(e, refdb.LockInfo{Project: m, Ref: refA, Owner: e.a.owner, Age: 31 * time.Second})
			mine := func(q refdb.LockQuery) (projects []string) {
				for _, l := range e.locks(q) {
					if strings.Contains(l.Project, e.project) {
						projects = append(projects, l.Project)
					}
				}
				return projects
			}
			if got := mine(refdb.LockQuery{}); slices.Contains(got, m) || !slices.Contains(got, e.project) {
				e.Errorf("the locks are those of %q", got)
			}
			for _, f := range []refdb.LockFilter{{}, {Ref: refA}, {Prefix: "refs/heads"}, {Owner: e.a.owner}, {Owner: "site-a"}, {Stale: true}, {OlderThan: 20 * time.Second}, {Project: m}} {
				if got := mine(refdb.LockQuery{Markers: true, LockFilter: f}); !slices.Equal(got, []string{m}) {
					e.Errorf("markers with %+v: got %q, want %q", f, got, m)
				}
			}
			for _, f := range []refdb.LockFilter{{Ref: refB}, {Owner: "site-b"}, {OlderThan: time.Hour}, {Project: e.project}} {
				if got := mine(refdb.LockQuery{Markers: true, LockFilter: f}); len(got) != 0 {
					e.Errorf("markers with %+v: got %q, want none", f, got)
				}
			}
		}},
		{"projects whose names are like a marker's are listed as locks", func(e *env) {
			var want []string
			for _, p := range []string{"RECLAIM", "RECLAIMX_", "reclaim_", "xRECLAIM_"} {
				r := e.request(e.a, refA)
				r.Project, r.Owner = p+e.project, e.project
				if p == "RECLAIM" {
					r.Project = p
				}
				_, err := e.send(e.a, r)
				e.must(err)
				want = append(want, r.Project)
			}
			var got []string
			for _, l := range e.locks(refdb.LockQuery{LockFilter: refdb.LockFilter{Owner: e.project}}) {
				got = append(got, l.Project)
			}
			if !slices.Equal(got, want) {
				e.Errorf("got %q, want %q", got, want)
			}
		}},
	}
}

// locks lists everything that q selects, in pages of q.Limit or of many.
func (e *env) locks(q refdb.LockQuery) []refdb.LockInfo {
	e.Helper()
	if q.Limit == 0 {
		q.Limit = 1000
	}
	var all []refdb.LockInfo
	for {
		page, err := e.b.Locks(e.Context(), q)
		e.must(err)
		if len(page.Locks) > q.Limit {
			e.Fatalf("a page of at most %d has %d locks", q.Limit, len(page.Locks))
		}
		for _, l := range page.Locks {
			if comparePlaces(placeOf(l), q.After) <= 0 || len(all) > 0 && comparePlaces(placeOf(l), placeOf(all[len(all)-1])) <= 0 {
				e.Fatalf("the page after %+v has %+v", q.After, l)
			}
			all = append(all, l)
		}
		if page.Next == (refdb.LockCursor{}) {
			return all
		}
		if comparePlaces(page.Next, q.After) <= 0 {
			e.Fatalf("the cursor goes from %+v to %+v", q.After, page.Next)
		}
		q.After = page.Next
	}
}

func placeOf(l refdb.LockInfo) refdb.LockCursor {
	return refdb.LockCursor{Project: l.Project, Ref: l.Ref}
}

func comparePlaces(a, b refdb.LockCursor) int {
	return cmp.Or(strings.Compare(a.Project, b.Project), strings.Compare(a.Ref, b.Ref))
}

func everyFilter(e *env) {
	var all []refdb.LockInfo
	site := e.project
	for i, project := range []string{"", "-", "/b", "A", "_", "\U0010FFFF"} {
		for j, ref := range []string{"HEAD", "refs/heads/%", "refs/heads/a", "refs/heads/a_b", "refs/heads/aXb", "refs/tags/a"} {
			n := i*6 + j
			r := e.request(e.a, ref)
			r.Project += project
			r.Owner = []string{site, site + "/1", site + "2/1"}[n%3]
			r.StaleAfter = []time.Duration{time.Hour, 3 * time.Hour}[n/3%2]
			l, err := e.send(e.a, r)
			e.must(err)
			age := []time.Duration{0, 2 * time.Hour, 4 * time.Hour, 20 * time.Minute, 80 * time.Minute}[n%5]
			e.age(l, age)
			all = append(all, refdb.LockInfo{Project: r.Project, Ref: ref, Owner: r.Owner, Token: l.Token, Age: age, StaleAfter: r.StaleAfter})
		}
	}
	slices.SortFunc(all, func(a, b refdb.LockInfo) int {
		return cmp.Or(strings.Compare(a.Project, b.Project), strings.Compare(a.Ref, b.Ref))
	})

	check := func(f refdb.LockFilter, size int) {
		var want []refdb.LockInfo
		for _, l := range all {
			if selects(f, l) {
				want = append(want, l)
			}
		}
		// What other rows of the topic hold is no part of it.
		got := slices.DeleteFunc(e.locks(refdb.LockQuery{LockFilter: f, Limit: size}), func(l refdb.LockInfo) bool {
			return !selects(refdb.LockFilter{Owner: site}, l) && !selects(refdb.LockFilter{Owner: site + "2"}, l)
		})
		if !slices.EqualFunc(got, want, func(a, b refdb.LockInfo) bool { return a.Token == b.Token && a.Project == b.Project && a.Ref == b.Ref }) {
			e.Errorf("%+v, pages of %d: got %+v, want %+v", f, size, got, want)
		}
	}
	check(refdb.LockFilter{}, 5)
	check(refdb.LockFilter{}, 1000)
	settings := filterSettings(e.project)
	for i, x := range settings {
		var f refdb.LockFilter
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

// filterSettings sets each field of a filter in some ways.
func filterSettings(project string) []func(*refdb.LockFilter) {
	var all []func(*refdb.LockFilter)
	for _, p := range []string{project, project + "/b"} {
		all = append(all, func(f *refdb.LockFilter) { f.Project = p })
	}
	for _, ref := range []string{"refs/heads/a", "refs/heads/%"} {
		all = append(all, func(f *refdb.LockFilter) { f.Ref = ref })
	}
	for _, prefix := range []string{"refs/heads/a", "refs/heads/a_", "refs/heads/%", "refs/heads/A"} {
		all = append(all, func(f *refdb.LockFilter) { f.Prefix = prefix })
	}
	for _, owner := range []string{project, project + "2"} {
		all = append(all, func(f *refdb.LockFilter) { f.Owner = owner })
	}
	for _, age := range []time.Duration{time.Hour, 3 * time.Hour} {
		all = append(all, func(f *refdb.LockFilter) { f.OlderThan = age })
	}
	return append(all, func(f *refdb.LockFilter) { f.Stale = true })
}

// selects is what a LockFilter means.
func selects(f refdb.LockFilter, l refdb.LockInfo) bool {
	return (f.Project == "" || l.Project == f.Project) &&
		(f.Ref == "" || l.Ref == f.Ref) &&
		strings.HasPrefix(l.Ref, f.Prefix) &&
		(f.Owner == "" || l.Owner == f.Owner || strings.HasPrefix(l.Owner, f.Owner+"/")) &&
		(!f.Stale || l.Stale()) &&
		(f.OlderThan == 0 || l.Age > f.OlderThan)
}
