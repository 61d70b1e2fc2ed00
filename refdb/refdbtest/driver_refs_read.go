package refdbtest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
)

// sortedNames returns names in byte order, which is neither the order of any language nor that
// of UTF-16.
func sortedNames() []string {
	return []string{
		"HEAD",
		"refs/heads/%",
		"refs/heads/%a",
		"refs/heads/-",
		"refs/heads/A",
		"refs/heads/Z",
		"refs/heads/_",
		"refs/heads/_a",
		"refs/heads/a",
		"refs/heads/a%",
		"refs/heads/a-b",
		"refs/heads/a.b",
		"refs/heads/a/b",
		"refs/heads/aXb",
		"refs/heads/a_b",
		"refs/heads/ab",
		"refs/heads/e\u0301", // é, decomposed
		"refs/heads/\u00e9",  // é, composed
		"refs/heads/\uE000",  // before the surrogate pairs that follow; after them in UTF-16
		"refs/heads/\uFFFD",
		"refs/heads/\U00010000",
		"refs/heads/🚀",
		"refs/heads/\U0010FFFF", // the last code point
		"refs/heads/\U0010FFFFa",
		"refs/tags/a",
	}
}

func listRows() []row {
	return []row{
		{"refs come in the order of their bytes", func(e *env) {
			e.store(sortedNames())
			if got := e.names(refdb.RefQuery{}); !slices.Equal(got, sortedNames()) {
				e.Errorf("got %q", got)
			}
		}},
		{"a prefix is bytes: no character of it is special", func(e *env) {
			all := sortedNames()
			e.store(all)
			prefixes := []string{"", "H", "h", "refs/", "refs", "refs/heads/nothing", "refs/heads/A%", `refs/heads/a\`, "refs/heads/\U0010FFFF\U0010FFFF", "refs/tags/aa"}
			for _, prefix := range append(prefixes, all...) {
				want := slices.DeleteFunc(slices.Clone(all), func(n string) bool { return !strings.HasPrefix(n, prefix) })
				if got := e.names(refdb.RefQuery{Prefix: prefix}); !slices.Equal(got, want) {
					e.Errorf("prefix %q: got %q, want %q", prefix, got, want)
				}
			}
		}},
		{"what comes after a name is all that is greater, whether it exists or not", func(e *env) {
			all := sortedNames()
			e.store(all)
			afters := []string{"A", "refs/heads/a\x01", "refs/heads/zzz", "z", "\U0010FFFF", "refs/heads/\U0010FFFE"}
			for _, after := range append(afters, all...) {
				for _, prefix := range []string{"", "refs/heads/a"} {
					want := slices.DeleteFunc(slices.Clone(all), func(n string) bool { return n <= after || !strings.HasPrefix(n, prefix) })
					if got := e.names(refdb.RefQuery{Prefix: prefix, After: after}); !slices.Equal(got, want) {
						e.Errorf("prefix %q after %q: got %q, want %q", prefix, after, got, want)
					}
				}
			}
		}},
		{"pages of any size hold every ref once", func(e *env) {
			all := sortedNames()
			e.store(all)
			for _, size := range []int{1, 2, 7, len(all) - 1, len(all), len(all) + 1} {
				if got := e.names(refdb.RefQuery{Limit: size}); !slices.Equal(got, all) {
					e.Errorf("pages of %d: got %q", size, got)
				}
			}
		}},
		{"tombstones are left out unless asked for, and hide nothing that comes after them", func(e *env) {
			var alive, all []string
			var updates []refdb.Update
			for i := range 12 {
				name := fmt.Sprintf("refs/heads/%02d", i)
				value := []refdb.Value{refdb.Deleted, v1, refdb.Deleted256}[i%3]
				updates = append(updates, move(name, "", value))
				all = append(all, name)
				if value == v1 {
					alive = append(alive, name)
				}
			}
			e.must(e.update(e.a, updates...))
			for _, size := range []int{1, 2, 3, 5} {
				if got := e.names(refdb.RefQuery{Limit: size}); !slices.Equal(got, alive) {
					e.Errorf("pages of %d without tombstones: %q, want %q", size, got, alive)
				}
				if got := e.names(refdb.RefQuery{Limit: size, Deleted: true}); !slices.Equal(got, all) {
					e.Errorf("pages of %d with tombstones: %q, want %q", size, got, all)
				}
			}
		}},
		{"a project's refs are its own", func(e *env) {
			neighbours := []string{"", "/b", "_b", "%", "-", " ", "A", "\U0010FFFF"}
			for _, n := range neighbours {
				e.must(e.sendUpdate(e.a, refdb.UpdateRequest{Project: e.project + n, Updates: []refdb.Update{move("refs/of/"+escape(n), "", v1)}}))
			}
			for _, n := range neighbours {
				if got := e.names(refdb.RefQuery{Project: e.project + n}); !slices.Equal(got, []string{"refs/of/" + escape(n)}) {
					e.Errorf("project %q: got %q", e.project+n, got)
				}
			}
			for _, none := range []string{strings.ToUpper(e.project), e.project[:len(e.project)-1] + "%", "_" + e.project[1:]} {
				if got := e.names(refdb.RefQuery{Project: none}); len(got) != 0 {
					e.Errorf("project %q: got %q, want none", none, got)
				}
			}
		}},
		{"a listed ref is all that Get returns", func(e *env) {
			e.must(e.update(e.a, move(refA, "", v1)))
			listed, got := e.list(e.project)[0], e.getOne(refA)
			if !listed.Time.Equal(got.Time) || listed.Time.IsZero() || listed.Op == "" || listed.Op != got.Op || listed.Value != v1 {
				e.Errorf("listed %+v, got %+v", listed, got)
			}
		}},
	}
}

// escape makes a valid last component of a ref name from any string.
func escape(s string) string { return fmt.Sprintf("%x.", s) + "x" }

// store creates refs, each with its own name as value.
func (e *env) store(names []string) {
	e.Helper()
	var updates []refdb.Update
	for _, n := range names {
		updates = append(updates, move(n, "", refdb.Value(n)))
	}
	e.must(e.update(e.a, updates...))
}

// names lists the refs that q selects. Each must hold its own name or v1, or be deleted.
func (e *env) names(q refdb.RefQuery) []string {
	e.Helper()
	if q.Project == "" {
		q.Project = e.project
	}
	if q.Limit == 0 {
		q.Limit = 1000
	}
	read := func(after string) ([]refdb.Ref, string, error) {
		q.After = after
		page, err := e.a.List(e.Context(), q)
		return page.Refs, page.Next, err
	}
	var all []string
	for r := range readPages(e, q.After, q.Limit, read, func(r refdb.Ref) string { return r.Name }, strings.Compare) {
		if v := r.Value; string(v) != r.Name && v != v1 && !v.IsDeleted() {
			e.Errorf("%q holds %q", r.Name, v)
		}
		all = append(all, r.Name)
	}
	return all
}

func getRows() []row {
	return []row{
		{"a missing ref has no row", func(e *env) {
			if got := e.get(refA); len(got) != 0 {
				e.Errorf("got %v", got)
			}
		}},
		{"a stored ref comes back, those that are missing don't", func(e *env) {
			e.must(e.update(e.a, move(refA, "", v1), move(refC, "", v2)))
			if got, want := valuesOf(e.get(refA, refB, refC)), (map[string]refdb.Value{refA: v1, refC: v2}); !maps.Equal(got, want) {
				e.Errorf("got %v, want %v", got, want)
			}
		}},
		{"only the refs that were asked for come back", func(e *env) {
			e.must(e.update(e.a, move(refA, "", v1), move(refB, "", v2)))
			if got := e.get(refB); len(got) != 1 || got[0].Name != refB {
				e.Errorf("got %v", got)
			}
		}},
		{"what one process stored another gets", func(e *env) {
			e.must(e.update(e.b, move(refA, "", v1)))
			e.must(e.update(e.a, move(refA, v1, v2)))
			got, err := e.b.Get(e.Context(), e.project, []string{refA})
			e.must(err)
			if len(got) != 1 || got[0].Value != v2 {
				e.Errorf("got %v", got)
			}
		}},
		{"a deleted ref comes back with the zero ID it was deleted with", func(e *env) {
			e.must(e.update(e.a, move(refA, "", refdb.Deleted), move(refB, "", refdb.Deleted256)))
			want := map[string]refdb.Value{refA: refdb.Deleted, refB: refdb.Deleted256}
			if got := valuesOf(e.get(refA, refB)); !maps.Equal(got, want) {
				e.Errorf("got %v, want %v", got, want)
			}
		}},
		{"the same ref of two projects is two refs", func(e *env) {
			e.must(e.update(e.a, move(refA, "", v1)))
			e.must(e.sendUpdate(e.a, refdb.UpdateRequest{Project: e.project + "/x", Updates: []refdb.Update{move(refA, "", v2)}}))
			if got := e.getOne(refA); got.Value != v1 {
				e.Errorf("got %v", got)
			}
		}},
		{"a ref names the update that wrote it last", func(e *env) {
			for _, id := range []string{"first", "second"} {
				e.must(e.sendUpdate(e.a, refdb.UpdateRequest{Origin: refdb.Origin{ID: id}, Updates: []refdb.Update{move(refA, "", refdb.Deleted), move(refB, "", refdb.Deleted)}}))
				for _, r := range e.get(refA, refB) {
					if r.Op != id {
						e.Errorf("%s was written by %q, want %q", r.Name, r.Op, id)
					}
				}
			}
		}},
		{"a ref's time is the database's, of its last change", func(e *env) {
			var last time.Time
			for range 3 {
				before := e.now(e.a)
				e.must(e.update(e.a, move(refA, "", refdb.Deleted)))
				after, r := e.now(e.a), e.getOne(refA)
				// Stored times are truncated to microseconds.
				if r.Time.Before(before.Truncate(time.Microsecond)) || r.Time.After(after) || !r.Time.After(last) {
					e.Errorf("written at %v, between %v and %v, last %v", r.Time, before, after, last)
				}
				last = r.Time
			}
		}},
		{"a ref that Gerrit wrote has a value and no operation", func(e *env) {
			e.db.InsertRef(e, e.project, refA, v1)
			if got := e.getOne(refA); got.Value != v1 || got.Op != "" {
				e.Errorf("got %+v", got)
			}
			e.must(e.update(e.a, move(refA, v1, v2)))
		}},
		{"values of every kind come back as they were", everyValue},
		{"an ended context is what the error says", func(e *env) {
			ctx, cancel := context.WithCancel(e.Context())
			cancel()
			if _, err := e.a.Get(ctx, e.project, []string{refA}); !errors.Is(err, context.Canceled) {
				e.Errorf("got %v", err)
			}
		}},
	}
}

// get returns the rows of some of the project's refs.
func (e *env) get(refs ...string) []refdb.Ref {
	e.Helper()
	got, err := e.a.Get(e.Context(), e.project, refs)
	e.must(err)
	return got
}

// getOne returns the row of a ref that must have one.
func (e *env) getOne(ref string) refdb.Ref {
	e.Helper()
	got := e.get(ref)
	if len(got) != 1 || got[0].Name != ref {
		e.Fatalf("the rows of %s are %v", ref, got)
	}
	return got[0]
}

// now is the database's time, as p has it.
func (e *env) now(p process) time.Time {
	e.Helper()
	now, err := p.Now(e.Context())
	e.must(err)
	return now
}

func everyValue(e *env) {
	values := []refdb.Value{
		v1, v1 + v1[:24], refdb.Deleted, refdb.Deleted256,
		"ref: refs/heads/main", "0", "1", "-1", "2147483648", "9223372036854775807", "1637000000000",
		" ", " x ", "x ", "a\nb\r\n\tc", `it's "quoted" \n \\ %s $1 @p ?`, "NULL", "'; --", "日本語 🚀 e\u0301 \u00e9",
		"{}", "[1]", refdb.Value(strings.Repeat("x", refdb.MaxValueBytes)), refdb.Value(strings.Repeat("ü", refdb.MaxValueBytes/2)),
	}
	var updates []refdb.Update
	want := make(map[string]refdb.Value)
	for i, v := range values {
		ref := fmt.Sprintf("refs/values/%02d", i)
		updates = append(updates, move(ref, "", v))
		want[ref] = v
	}
	e.must(e.update(e.a, updates...))
	e.wantRefs(want)

	// Each is what Old must be, to the byte.
	for i, u := range updates {
		if u.New.IsDeleted() {
			continue
		}
		e.wantMismatches(e.update(e.b, move(u.Ref, u.New+"x", v2)), refdb.Mismatch{Ref: u.Ref, Want: u.New + "x", Have: u.New})
		updates[i] = move(u.Ref, u.New, v2)
	}
	e.must(e.update(e.b, updates...))
}

func stateRows() []row {
	return []row{
		{"a state is the value and the lock of each ref that has one of them", func(e *env) {
			e.must(e.update(e.a, move(refA, "", v1), move(refB, "", v2), move("refs/dead", "", refdb.Deleted)))
			l := e.acquire(e.a, refB, refC)
			got := e.states(refA, refB, refC, "refs/dead", "refs/not/there")
			want := map[string]refdb.Value{refA: v1, refB: v2, refC: refdb.Unknown, "refs/dead": refdb.Deleted}
			if len(got) != len(want) {
				e.Errorf("got %+v", got)
			}
			for ref, value := range want {
				s, ok := got[ref]
				if !ok || s.Value != value || (s.Lock != nil) != (ref == refB || ref == refC) {
					e.Errorf("%s is %+v (%v), want %q", ref, s, ok, value)
				}
				if s.Lock != nil && (s.Lock.Project != e.project || s.Lock.Ref != ref || s.Lock.Owner != l.Owner || s.Lock.Token != l.Token ||
					s.Lock.StaleAfter != staleAfter || !s.Lock.Heartbeat.Equal(e.row(ref).Heartbeat) || s.Lock.Age < 0 || s.Lock.Age > time.Minute) {
					e.Errorf("the lock on %s is %+v, want %+v", ref, s.Lock, l)
				}
			}
		}},
		{"stale locks are told too, and those that stand for an intent", func(e *env) {
			e.age(e.acquire(e.a, refA), stale)
			e.prepare(e.a, move(refB, "", v1))
			e.db.InsertLock(e, refdb.LockInfo{Project: e.project, Ref: refC, Owner: gerrit, Age: 15 * time.Second})
			got := e.states(refA, refB, refC)
			if l := got[refA].Lock; l == nil || !l.Stale() || l.Age < stale {
				e.Errorf("got %+v", l)
			}
			if l := got[refB].Lock; l == nil || !l.Intended() || l.Stale() {
				e.Errorf("got %+v", l)
			}
			if l := got[refC].Lock; l == nil || l.StaleAfter != refdb.DefaultStaleAfter || l.Owner != "gerrit" || l.Age < 15*time.Second {
				e.Errorf("got %+v", l)
			}
		}},
		{"refs of other projects have no state here", func(e *env) {
			for _, p := range []string{"/b", "_", "A"} {
				r := e.prepareRequest(e.a, move(refA, "", v1))
				r.Project += p
				_, err := e.sendPrepare(e.a, r)
				e.must(err)
				e.must(e.sendUpdate(e.a, refdb.UpdateRequest{Project: e.project + p, Updates: []refdb.Update{move(refB, "", v1)}}))
			}
			if got := e.states(refA, refB); len(got) != 0 {
				e.Errorf("got %+v", got)
			}
		}},
		{"P10 every valid ref name has its state", func(e *env) {
			names := nastyRefs()
			e.store(names)
			l := e.acquire(e.a, "HEAD")
			got := e.states(names...)
			for _, name := range names {
				if s := got[name]; string(s.Value) != name || (s.Lock != nil) != (name == "HEAD") {
					e.Errorf("%q is %+v", name, s)
				}
			}
			if got["HEAD"].Lock.Token != l.Token || len(got) != len(names) {
				e.Errorf("got %d states of %d", len(got), len(names))
			}
		}},
		{"many states come at once", func(e *env) {
			names := manyNames(e.scale(1000))
			e.store(names[len(names)/4:])
			e.acquire(e.a, names[:len(names)/2]...)
			got := e.states(names...)
			if len(got) != len(names) {
				e.Errorf("got %d states of %d", len(got), len(names))
			}
			for i, name := range names {
				if s := got[name]; (s.Lock != nil) != (i < len(names)/2) || (s.Value != refdb.Unknown) != (i >= len(names)/4) {
					e.Fatalf("%s is %+v", name, s)
				}
			}
		}},
		{"a question whose context has ended says so", func(e *env) {
			ctx, cancel := context.WithCancel(e.Context())
			cancel()
			if _, err := e.a.States(ctx, e.project, []string{refA}); !errors.Is(err, context.Canceled) {
				e.Errorf("got %v", err)
			}
		}},
	}
}

// states returns what is known of the refs, by name. It sorts them.
func (e *env) states(refs ...string) map[string]refdb.State {
	e.Helper()
	got, err := e.tryStates(refs...)
	e.must(err)
	return got
}

func (e *env) tryStates(refs ...string) (map[string]refdb.State, error) {
	var got []refdb.State
	err := retry(func() (err error) {
		got, err = e.b.States(e.Context(), e.project, slices.Sorted(slices.Values(refs)))
		return err
	})
	byRef := make(map[string]refdb.State, len(got))
	for _, s := range got {
		if _, twice := byRef[s.Ref]; twice {
			e.Errorf("%s has two states", s.Ref)
		}
		byRef[s.Ref] = s
	}
	return byRef, err
}
