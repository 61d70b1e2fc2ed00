package driver

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/refdbtest/internal/suite"
)

// P10: names are data.
func nameRows() []row {
	return []row{
		{"P10 every valid ref name works in every operation, beside all the others", func(e *env) {
			names := nastyRefs()
			if e.Slow() { // the row after the next has all of them
				names = append(names[:5], names[len(names)-5:]...)
			}
			everyName(e, func(i int, name string) (project, ref string) { return e.Project, name }, names)
		}},
		{"P10 every valid project name works in every operation, beside all the others", suite.Long(func(e *env) {
			everyName(e, func(i int, name string) (project, ref string) { return name, refA }, nastyProjects())
		})},
		{"P10 every valid ref name works in every operation, together with all the others", suite.Long(allNames)},
		{"P10 owners are data too", suite.Long(func(e *env) {
			for i, owner := range nastyProjects() {
				p := process{Driver: e.A.Driver, Owner: owner}
				l := e.Acquire(p, fmt.Sprintf("refs/heads/%d", i))
				if got := e.Beat(p, l.IDs()...); got[0] != driver.BeatRenewed {
					e.Errorf("the beat of %q says %v", owner, got)
				}
				if h := e.Refused(e.B, l.Refs()...); h[0].Owner != owner {
					e.Errorf("the holder is %q, want %q", h[0].Owner, owner)
				}
				if got := e.Locks(driver.LockQuery{LockFilter: driver.LockFilter{Project: e.Project, Owner: owner}}); len(got) != 1 || got[0].Owner != owner {
					e.Errorf("the locks of %q are %+v", owner, got)
				}
				update := driver.UpdateRequest{Fence: l.Fence(), Updates: []driver.Update{suite.Move(l.Refs()[0], "", v1)}}
				e.Must(e.SendUpdate(p, update))
				switch i % 3 {
				case 0:
					e.Release(p, l)
				case 1:
					e.Purge(e.B, suite.AsListed(e.Row(l.Refs()[0])))
				default:
					e.Abandon(p, l.AcquireRequest)
				}
				e.WantFree(l.Refs()...)
			}
		})},
	}
}

// allNames uses all names together in one request of every kind.
func allNames(e *env) {
	names := nastyRefs()
	slices.Sort(names)
	e.Store(names)
	var wrong []driver.Update
	var mismatches []driver.Mismatch
	for _, name := range names {
		wrong = append(wrong, suite.Move(name, v3, v1))
		mismatches = append(mismatches, driver.Mismatch{Ref: name, Want: v3, Have: driver.Value(name)})
	}
	e.WantMismatches(e.Update(e.B, wrong...), mismatches...)

	l := e.Acquire(e.A, names...)
	if got := l.Values(); len(got) != len(names) {
		e.Errorf("acquired %d values of %d", len(got), len(names))
	}
	e.WantHolders(e.Update(e.B, wrong...), names...)
	_, err := e.TryAcquire(e.B, names...)
	e.WantHolders(err, names...)
	for i, got := range e.Beat(e.A, l.IDs()...) {
		if got != driver.BeatRenewed {
			e.Errorf("the beat of %q says %v", names[i], got)
		}
	}
	e.Age(l, stale)
	next := e.Acquire(e.B, names...)
	if len(next.Reclaimed) != len(names) {
		e.Errorf("reclaimed %d of %d", len(next.Reclaimed), len(names))
	}
	e.WantLost(e.SendUpdate(e.A, driver.UpdateRequest{Fence: l.Fence(), Updates: wrong}), names...)
	for i, got := range e.Beat(e.A, l.IDs()...) {
		if got != driver.BeatLost {
			e.Errorf("the loser's beat of %q says %v", names[i], got)
		}
	}
	var updates []driver.Update
	for _, name := range names {
		updates = append(updates, suite.Move(name, driver.Value(name), v2))
	}
	e.Must(e.SendUpdate(e.B, driver.UpdateRequest{Fence: next.Releasing(), Updates: updates}))
	e.WantFree(names...)
	got := e.Get(names...)
	for _, r := range got {
		if r.Value != v2 {
			e.Errorf("%q holds %q", r.Name, r.Value)
		}
	}
	if len(got) != len(names) {
		e.Errorf("got %d of %d", len(got), len(names))
	}
	if got := e.List(e.Project); !slices.EqualFunc(got, names, func(r driver.Ref, name string) bool { return r.Name == name }) {
		e.Errorf("listed %v", got)
	}
	l = e.Acquire(e.A, names...)
	if missing := e.Release(e.A, l); len(missing) != 0 {
		e.Errorf("%q were not released", missing)
	}
	l = e.Acquire(e.A, names...)
	if got := e.Purge(e.B, suite.Standing(l.IDs()...)...); slices.Contains(got, false) {
		e.Errorf("purged %v", got)
	}
	l = e.Acquire(e.A, names...)
	e.Abandon(e.B, l.AcquireRequest)
	e.WantFree(names...)
	if n := e.Remove(driver.RemoveRequest{Limit: len(names) + 1}); n != len(names) {
		e.Errorf("removed %d of %d", n, len(names))
	}
}

// everyName uses each name in every operation while refs of all the other names exist. In the
// end they must all be unchanged.
func everyName(e *env, key func(int, string) (project, ref string), names []string) {
	value := func(i int) driver.Value { return driver.Value(fmt.Sprintf("value %d", i)) }
	for i, name := range names {
		project, ref := key(i, name)
		e.Must(driver.CheckKey(project, ref))
		e.Must(e.SendUpdate(e.A, driver.UpdateRequest{Project: project, Updates: []driver.Update{suite.Move(ref, "", value(i))}}))
	}
	for i, name := range names {
		project, ref := key(i, name)
		r := &env{T: e.T, DB: e.DB, A: e.A, B: e.B, Project: project}
		oneName(r, ref, value(i))
	}
	for i, name := range names {
		project, ref := key(i, name)
		got, err := e.B.Get(e.Context(), project, []string{ref})
		e.Must(err)
		if len(got) != 1 || got[0].Name != ref || got[0].Value != value(i) {
			e.Errorf("%q %q holds %+v in the end, want %q", project, ref, got, value(i))
		}
		if l, ok := e.DB.RowLock(e, project, ref); ok {
			e.Errorf("%q %q is locked in the end: %+v", project, ref, l)
		}
	}
}

// oneName uses a ref in every operation, and leaves it as it was.
func oneName(e *env, ref string, value driver.Value) {
	e.Helper()
	if got := e.GetOne(ref); got.Value != value {
		e.Fatalf("%q holds %+v, want %q", ref, got, value)
	}
	page, err := e.A.List(e.Context(), driver.RefQuery{Project: e.Project, Prefix: ref, Limit: 1})
	e.Must(err)
	if len(page.Refs) != 1 || page.Refs[0].Name != ref {
		e.Fatalf("%q: listed %+v", ref, page)
	}
	e.WantMismatches(e.Update(e.B, suite.Move(ref, v1, v2)), driver.Mismatch{Ref: ref, Want: v1, Have: value})

	l := e.Acquire(e.A, ref)
	if got := l.Values(); len(got) != 1 || got[ref] != value {
		e.Fatalf("%q: acquired with %v", ref, got)
	}
	e.WantHolders(e.Update(e.B, suite.Move(ref, value, v1)), ref)
	if h := e.Refused(e.B, ref); len(h) != 1 || h[0].Ref != ref || h[0].Project != e.Project {
		e.Fatalf("%q: the holders are %+v", ref, h)
	}
	if got := e.Beat(e.A, l.IDs()...); got[0] != driver.BeatRenewed {
		e.Fatalf("%q: the beat says %v", ref, got)
	}
	for _, f := range []driver.LockFilter{{Project: e.Project, Prefix: ref}, {Project: e.Project, Ref: ref}} {
		got := e.Locks(driver.LockQuery{LockFilter: f})
		if !slices.ContainsFunc(got, func(g driver.LockInfo) bool { return g.Project == e.Project && g.Ref == ref && g.Token == l.Token }) {
			e.Fatalf("%q: the locks with %+v are %+v", ref, f, got)
		}
	}
	e.Must(e.SendUpdate(e.A, driver.UpdateRequest{Fence: l.Fence(), Updates: []driver.Update{suite.Move(ref, value, driver.Deleted)}}))

	e.Age(l, stale)
	next := e.Acquire(e.B, ref)
	if len(next.Reclaimed) != 1 || next.Reclaimed[0].Ref != ref || next.Reclaimed[0].Token != l.Token {
		e.Fatalf("%q: reclaimed %+v", ref, next.Reclaimed)
	}
	e.WantLost(e.SendUpdate(e.A, driver.UpdateRequest{Fence: l.Fence(), Updates: []driver.Update{suite.Move(ref, "", v1)}}), ref)
	if got := e.Beat(e.A, l.IDs()...); got[0] != driver.BeatLost {
		e.Fatalf("%q: the loser's beat says %v", ref, got)
	}
	e.Must(e.SendUpdate(e.B, driver.UpdateRequest{Fence: next.Releasing(), Updates: []driver.Update{suite.Move(ref, "", value)}}))
	e.WantFree(ref)

	l = e.Acquire(e.A, ref)
	if missing := e.Release(e.A, l); len(missing) != 0 {
		e.Fatalf("%q was not released", ref)
	}
}

// nastyParts are names that break code which doesn't treat names as data.
func nastyParts() []string {
	return []string{
		"o'brien", "o''brien", `"quoted"`, "`ticks`", "');--", "$1", "@p1", "%s%d", "%", "100%", "_", "a_b", "aXb", "{a,b}", "NULL", "-", "|&#<>=!",
		"a", "ab", "a-b", "A", "AB", "main", "Main", "MAIN",
		"caf\u00e9", "cafe\u0301", "CAF\u00c9", "\u212b", "\u00c5", "A\u030a", // equal to a reader, or after normalization
		"日本語", "ﬁ", "fi", "ß", "ss", "ı", "i", "\u202eabc", "\u00a0", "\u200b", "\ufeff", "🚀", "👩\u200d👩\u200d👧", "\ufffd", "\U0010ffff",
		strings.Repeat("x", 400), strings.Repeat("x", 401), suite.Incompressible(480), suite.Incompressible(481),
	}
}

func nastyRefs() []string {
	names := []string{"HEAD", "FETCH_HEAD", "_", "A", "refs/x", "refs/heads/a/b", "refs/heads/a/b/c", "refs/meta/config", "a/b"}
	for _, part := range nastyParts() {
		names = append(names, "refs/heads/"+part)
	}
	// The longest ref in a project of 10 bytes.
	return append(names, "refs/long/"+suite.Incompressible(driver.MaxNameBytes-20))
}

func nastyProjects() []string {
	names := []string{
		"o'brien", `"quoted"`, "');--", "$1", "@p1", "%", "_", "a_b", "aXb", "a", "A", "caf\u00e9", "cafe\u0301", "\U0010ffff", suite.Incompressible(480), suite.Incompressible(481),
		`back\slash`, `\`, `a\'b`, " ", " a", "a ", "a\tb", "\n", "\x01", "\x7f", "*", "?", "..", "/", "a/", "/a", "a/b", "a//b", "~", "a:b", "x.lock",
		"RECLAIM", "reclaim_a", "xRECLAIM_a",
	}
	// The longest project with refA.
	return append(names, suite.Incompressible(driver.MaxNameBytes-len(refA)))
}

func sizeRows() []row {
	return []row{
		{"the maximum number of refs of an update are created, moved and deleted at once", suite.Long(func(e *env) {
			updates := make([]driver.Update, e.Scale(driver.MaxUpdateRefs))
			last := len(updates) - 1
			for i := range updates {
				updates[i] = suite.Move(fmt.Sprintf("refs/heads/%05d", i), "", v1)
			}
			e.Must(e.Update(e.A, updates...))
			for i := range updates {
				updates[i].Old, updates[i].New = v1, v2
			}
			updates[last].Old = v3
			e.WantMismatches(e.Update(e.A, updates...), driver.Mismatch{Ref: updates[last].Ref, Want: v3, Have: v1})
			updates[last].Old = v1
			e.Must(e.Update(e.A, updates...))
			var n int
			for _, r := range e.List(e.Project) {
				if r.Value == v2 {
					n++
				}
			}
			if n != len(updates) {
				e.Errorf("%d refs hold the new value, want %d", n, len(updates))
			}
			if n := e.Remove(driver.RemoveRequest{Limit: len(updates)}); n != len(updates) {
				e.Errorf("removed %d", n)
			}
		})},
		{"hundreds of refs are updated, whether adjacent or not, and no others", suite.Long(suite.Alone(func(e *env) {
			for name, apart := range map[string]int{"together": 1, "almost": 2, "apart": 5} {
				ref := func(i int) string { return fmt.Sprintf("refs/heads/%s/%05d", name, i) }
				const n = 400
				var all, updates []driver.Update
				want := map[string]driver.Value{}
				for i := range n * apart {
					all = append(all, suite.Move(ref(i), "", v1))
					want[ref(i)] = v1
					if i%apart == 0 && i/apart%100 != 99 { // some are left out
						updates = append(updates, suite.Move(ref(i), v1, v2))
						want[ref(i)] = v2
					}
				}
				for i := range n / 100 {
					fresh := fmt.Sprintf("%s-", ref(i*apart*100))
					updates = append(updates, suite.Move(fresh, "", v3))
					want[fresh] = v3
				}
				slices.SortFunc(updates, func(a, b driver.Update) int { return strings.Compare(a.Ref, b.Ref) })
				e.Must(e.Update(e.A, all...))
				beside := e.Acquire(e.A, "refs/heads/"+name+"/00000x") // sorts among the refs that are updated

				last := len(updates) - 1
				for _, i := range []int{0, last / 2, last} {
					l := e.Acquire(e.A, updates[i].Ref)
					e.WantHolders(e.Update(e.B, updates...), updates[i].Ref)
					e.Release(e.A, l)
					have := updates[i].Old
					updates[i].Old = v3
					e.WantMismatches(e.Update(e.B, updates...), driver.Mismatch{Ref: updates[i].Ref, Want: v3, Have: have})
					updates[i].Old = have
				}
				e.Must(e.Update(e.B, updates...))
				e.WantLock(beside)
				e.Release(e.A, beside)
				for _, r := range e.List(e.Project) {
					if v, ok := want[r.Name]; ok && v != r.Value {
						e.Fatalf("%s holds %q, want %q", r.Name, r.Value, v)
					}
					delete(want, r.Name)
				}
				if len(want) > 0 {
					e.Errorf("missing are %v", want)
				}
			}
		}))},
		{"hundreds of existing refs are moved together, whatever refs are between them", suite.Long(suite.Alone(func(e *env) {
			const n = 300
			for name, apart := range map[string]int{"together": 1, "apart": 4} {
				ref := func(i int) string { return fmt.Sprintf("refs/heads/%s/%05d", name, i) }
				var all, updates []driver.Update
				for i := range n * apart {
					all = append(all, suite.Move(ref(i), "", v1))
					if i%apart == 0 {
						updates = append(updates, suite.Move(ref(i), v1, v2))
					}
				}
				e.Must(e.Update(e.A, all...))
				moved := func(what string) {
					e.Helper()
					e.Must(e.Update(e.B, updates...))
					for i, r := range e.List(e.Project) {
						want := driver.Value(v1)
						if i%apart == 0 {
							want = updates[0].New
						}
						if r.Value != want {
							e.Fatalf("%s: %s holds %q, want %q", what, r.Name, r.Value, want)
						}
					}
					for i := range updates {
						updates[i].Old, updates[i].New = updates[i].New, updates[i].Old
					}
				}
				moved("nothing")
				for _, i := range []int{0, n / 2, n - 1} {
					u := &updates[i]
					l := e.Acquire(e.A, u.Ref)
					e.WantHolders(e.Update(e.B, updates...), u.Ref)
					e.Age(l, time.Hour)
					moved("a stale lock")
					e.WantFree(u.Ref)
					right := *u
					u.Old = v3
					e.WantMismatches(e.Update(e.B, updates...), driver.Mismatch{Ref: u.Ref, Want: v3, Have: right.Old})
					*u = suite.Move(right.Ref+"-", v3, v1)
					e.WantMismatches(e.Update(e.B, updates...), driver.Mismatch{Ref: u.Ref, Want: v3, Have: driver.Unknown})
					*u = right
				}
				beside := e.Acquire(e.A, ref(1)+"x")
				moved("a lock beside")
				e.WantLock(beside)
				e.Release(e.A, beside)
				e.Remove(driver.RemoveRequest{Limit: len(all)})
			}
		}))},
		{"the maximum number of locks of an acquisition are taken, reclaimed, beaten, released and purged at once", func(e *env) {
			refs := make([]string, e.Scale(driver.MaxLockRefs))
			for i := range refs {
				refs[i] = fmt.Sprintf("refs/heads/%05d", i)
			}
			l := e.Acquire(e.A, refs...)
			for i, got := range e.Beat(e.A, l.IDs()...) {
				if got != driver.BeatRenewed {
					e.Fatalf("the beat of %s says %v", refs[i], got)
				}
			}
			last := refs[len(refs)-1]
			if h := e.Refused(e.B, "HEAD", last); len(h) != 1 || h[0].Ref != last {
				e.Fatalf("the holders are %+v", h)
			}
			e.DB.Exec(e, fmt.Sprintf("UPDATE locks SET stale_after = 0 WHERE project = '%s'", e.Project))
			next := e.Acquire(e.B, refs...)
			if len(next.Reclaimed) != len(refs) || next.Token <= l.Token {
				e.Errorf("reclaimed %d of %d, token %d after %d", len(next.Reclaimed), len(refs), next.Token, l.Token)
			}
			e.Must(e.SendUpdate(e.B, driver.UpdateRequest{Fence: next.Releasing(), Updates: []driver.Update{suite.Move(refA, "", v1)}}))
			if got := e.Locks(driver.LockQuery{LockFilter: driver.LockFilter{Project: e.Project}}); len(got) != 0 {
				e.Errorf("%d locks are left", len(got))
			}
			l = e.Acquire(e.A, refs...)
			if missing := e.Release(e.A, l); len(missing) != 0 {
				e.Fatalf("%d were not released", len(missing))
			}
			l = e.Acquire(e.A, refs...)
			if got := e.Purge(e.B, suite.Standing(l.IDs()...)...); slices.Contains(got, false) {
				e.Fatalf("purged %v", got)
			}
		}},
	}
}
