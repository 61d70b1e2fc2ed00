package refdbtest

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"slices"
	"strings"

	"github.com/globalrefdb/globalrefdb/refdb"
)

// P10: names are data.
func nameRows() []row {
	return []row{
		{"P10 every valid ref name works in every operation, beside all the others", func(e *env) {
			names := nastyRefs()
			if e.slow() { // the row below has them all
				names = append(names[:5], names[len(names)-5:]...)
			}
			e.everyName(func(i int, name string) (project, ref string) { return e.project, name }, names)
		}},
		{"P10 every valid project name works in every operation, beside all the others", func(e *env) {
			e.everyName(func(i int, name string) (project, ref string) { return name, refA }, nastyProjects())
		}},
		{"P10 every valid ref name works in every operation, together with all the others", allNames},
		{"P10 owners are data too", func(e *env) {
			for i, owner := range nastyProjects() {
				p := process{e.a.Driver, owner}
				l := e.acquire(p, fmt.Sprintf("refs/heads/%d", i))
				if got := e.beat(p, l.ids()...); got[0] != refdb.Beaten {
					e.Errorf("the beat of %q says %v", owner, got)
				}
				if h := e.refused(e.b, l.refs()...); h[0].Owner != owner {
					e.Errorf("the holder is %q, want %q", h[0].Owner, owner)
				}
				if got := e.locks(refdb.LockQuery{LockFilter: refdb.LockFilter{Project: e.project, Owner: owner}}); len(got) != 1 || got[0].Owner != owner {
					e.Errorf("the locks of %q are %+v", owner, got)
				}
				update := refdb.UpdateRequest{Fence: l.fence(), Updates: []refdb.Update{move(l.refs()[0], "", v1)}}
				e.must(e.transact(p, update))
				switch i % 3 {
				case 0:
					e.release(p, l)
				case 1:
					e.purge(e.b, asListed(e.row(l.refs()[0])))
				default:
					e.abandon(p, l.AcquireRequest)
				}
				e.wantFree(l.refs()...)
			}
		}},
	}
}

// allNames takes all names through every operation, in one request each.
func allNames(e *env) {
	names := nastyRefs()
	slices.Sort(names)
	e.store(names)
	var wrong []refdb.Update
	var mismatches []refdb.Mismatch
	for _, name := range names {
		wrong = append(wrong, move(name, v3, v1))
		mismatches = append(mismatches, refdb.Mismatch{Ref: name, Want: v3, Have: refdb.Value(name)})
	}
	e.wantMismatches(e.update(e.b, wrong...), mismatches...)

	l := e.acquire(e.a, names...)
	if got := l.values(); len(got) != len(names) {
		e.Errorf("acquired %d values of %d", len(got), len(names))
	}
	e.wantHolders(e.update(e.b, wrong...), names...)
	_, err := e.tryAcquire(e.b, names...)
	e.wantHolders(err, names...)
	for i, got := range e.beat(e.a, l.ids()...) {
		if got != refdb.Beaten {
			e.Errorf("the beat of %q says %v", names[i], got)
		}
	}
	e.age(l, stale)
	next := e.acquire(e.b, names...)
	if len(next.Reclaimed) != len(names) {
		e.Errorf("reclaimed %d of %d", len(next.Reclaimed), len(names))
	}
	e.wantLost(e.transact(e.a, refdb.UpdateRequest{Fence: l.fence(), Updates: wrong}), names...)
	for i, got := range e.beat(e.a, l.ids()...) {
		if got != refdb.BeatLost {
			e.Errorf("the loser's beat of %q says %v", names[i], got)
		}
	}
	var updates []refdb.Update
	for _, name := range names {
		updates = append(updates, move(name, refdb.Value(name), v2))
	}
	e.must(e.transact(e.b, refdb.UpdateRequest{Fence: next.releasing(), Updates: updates}))
	e.wantFree(names...)
	got := e.get(names...)
	for _, r := range got {
		if r.Value != v2 {
			e.Errorf("%q holds %q", r.Name, r.Value)
		}
	}
	if len(got) != len(names) {
		e.Errorf("got %d of %d", len(got), len(names))
	}
	if got := e.list(e.project); !slices.EqualFunc(got, names, func(r refdb.Ref, name string) bool { return r.Name == name }) {
		e.Errorf("listed %v", got)
	}
	l = e.acquire(e.a, names...)
	if missing := e.release(e.a, l); len(missing) != 0 {
		e.Errorf("%q were not released", missing)
	}
	l = e.acquire(e.a, names...)
	if got := e.purge(e.b, standing(l.ids()...)...); slices.Contains(got, false) {
		e.Errorf("purged %v", got)
	}
	l = e.acquire(e.a, names...)
	e.abandon(e.b, l.AcquireRequest)
	e.wantFree(names...)
	if n := e.remove(refdb.RemoveRequest{Limit: len(names) + 1}); n != len(names) {
		e.Errorf("removed %d of %d", n, len(names))
	}
}

// everyName takes each name through every operation while all the others
// exist, then checks that the others are what they were.
func (e *env) everyName(key func(int, string) (project, ref string), names []string) {
	value := func(i int) refdb.Value { return refdb.Value(fmt.Sprintf("value %d", i)) }
	for i, name := range names {
		project, ref := key(i, name)
		e.must(refdb.CheckKey(project, ref))
		e.must(e.transact(e.a, refdb.UpdateRequest{Project: project, Updates: []refdb.Update{move(ref, "", value(i))}}))
	}
	for i, name := range names {
		project, ref := key(i, name)
		// A row of its own, in the project at hand.
		r := &env{T: e.T, db: e.db, a: e.a, b: e.b, project: project}
		r.oneName(ref, value(i))
	}
	for i, name := range names {
		project, ref := key(i, name)
		got, err := e.b.Get(e.Context(), project, []string{ref})
		e.must(err)
		if len(got) != 1 || got[0].Name != ref || got[0].Value != value(i) {
			e.Errorf("%q %q holds %+v in the end, want %q", project, ref, got, value(i))
		}
		if l, ok := e.db.RowLock(e, project, ref); ok {
			e.Errorf("%q %q is locked in the end: %+v", project, ref, l)
		}
	}
}

// oneName takes a ref through every operation; it ends as it began.
func (e *env) oneName(ref string, value refdb.Value) {
	e.Helper()
	if got := e.getOne(ref); got.Value != value {
		e.Fatalf("%q holds %+v, want %q", ref, got, value)
	}
	page, err := e.a.List(e.Context(), refdb.RefQuery{Project: e.project, Prefix: ref, Limit: 1})
	e.must(err)
	if len(page.Refs) != 1 || page.Refs[0].Name != ref {
		e.Fatalf("%q: listed %+v", ref, page)
	}
	e.wantMismatches(e.update(e.b, move(ref, v1, v2)), refdb.Mismatch{Ref: ref, Want: v1, Have: value})

	l := e.acquire(e.a, ref)
	if got := l.values(); len(got) != 1 || got[ref] != value {
		e.Fatalf("%q: acquired with %v", ref, got)
	}
	e.wantHolders(e.update(e.b, move(ref, value, v1)), ref)
	if h := e.refused(e.b, ref); len(h) != 1 || h[0].Ref != ref || h[0].Project != e.project {
		e.Fatalf("%q: the holders are %+v", ref, h)
	}
	if got := e.beat(e.a, l.ids()...); got[0] != refdb.Beaten {
		e.Fatalf("%q: the beat says %v", ref, got)
	}
	for _, f := range []refdb.LockFilter{{Project: e.project, Prefix: ref}, {Project: e.project, Ref: ref}} {
		got := e.locks(refdb.LockQuery{LockFilter: f})
		if !slices.ContainsFunc(got, func(g refdb.LockInfo) bool { return g.Project == e.project && g.Ref == ref && g.Token == l.Token }) {
			e.Fatalf("%q: the locks with %+v are %+v", ref, f, got)
		}
	}
	e.must(e.transact(e.a, refdb.UpdateRequest{Fence: l.fence(), Updates: []refdb.Update{move(ref, value, refdb.Deleted)}}))

	e.age(l, stale)
	next := e.acquire(e.b, ref)
	if len(next.Reclaimed) != 1 || next.Reclaimed[0].Ref != ref || next.Reclaimed[0].Token != l.Token {
		e.Fatalf("%q: reclaimed %+v", ref, next.Reclaimed)
	}
	e.wantLost(e.transact(e.a, refdb.UpdateRequest{Fence: l.fence(), Updates: []refdb.Update{move(ref, "", v1)}}), ref)
	if got := e.beat(e.a, l.ids()...); got[0] != refdb.BeatLost {
		e.Fatalf("%q: the loser's beat says %v", ref, got)
	}
	e.must(e.transact(e.b, refdb.UpdateRequest{Fence: next.releasing(), Updates: []refdb.Update{move(ref, "", value)}}))
	e.wantFree(ref)

	l = e.acquire(e.a, ref)
	if missing := e.release(e.a, l); len(missing) != 0 {
		e.Fatalf("%q was not released", ref)
	}
}

// nastyParts are what confuses those who don't treat names as data.
func nastyParts() []string {
	return []string{
		"o'brien", "o''brien", `"quoted"`, "`ticks`", "');--", "$1", "@p1", "%s%d", "%", "100%", "_", "a_b", "aXb", "{a,b}", "NULL", "-", "|&#<>=!",
		"a", "ab", "a-b", "A", "AB", "main", "Main", "MAIN",
		"caf\u00e9", "cafe\u0301", "CAF\u00c9", "\u212b", "\u00c5", "A\u030a", // the same to a reader, or to a normalizer
		"日本語", "ﬁ", "fi", "ß", "ss", "ı", "i", "\u202eabc", "\u00a0", "\u200b", "\ufeff", "🚀", "👩\u200d👩\u200d👧", "\ufffd", "\U0010ffff",
		strings.Repeat("x", 400), strings.Repeat("x", 401), random(480), random(481),
	}
}

func nastyRefs() []string {
	names := []string{"HEAD", "FETCH_HEAD", "_", "A", "refs/x", "refs/heads/a/b", "refs/heads/a/b/c", "refs/meta/config", "a/b"}
	for _, part := range nastyParts() {
		names = append(names, "refs/heads/"+part)
	}
	// As long as a ref may be in a project of 10 bytes.
	return append(names, "refs/long/"+random(refdb.MaxNameBytes-20))
}

func nastyProjects() []string {
	names := []string{
		"o'brien", `"quoted"`, "');--", "$1", "@p1", "%", "_", "a_b", "aXb", "a", "A", "caf\u00e9", "cafe\u0301", "\U0010ffff", random(480), random(481),
		`back\slash`, `\`, `a\'b`, " ", " a", "a ", "a\tb", "\n", "\x01", "\x7f", "*", "?", "..", "/", "a/", "/a", "a/b", "a//b", "~", "a:b", "x.lock",
		"RECLAIM", "reclaim_a", "xRECLAIM_a",
	}
	// As long as a project may be with refA.
	return append(names, random(refdb.MaxNameBytes-len(refA)))
}

// random returns n bytes that a database can't compress: a key of that length
// is one in its index too. It is the same in every run.
func random(n int) string {
	var s []byte
	for block := uint64(0); len(s) < n; block++ {
		sum := sha256.Sum256(fmt.Appendf(nil, "%d %d", n, block))
		s = base64.RawURLEncoding.AppendEncode(s, sum[:])
	}
	return string(s[:n])
}
