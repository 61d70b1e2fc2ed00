package refdbtest

import (
	"fmt"
	"slices"
	"strings"

	"github.com/globalrefdb/globalrefdb/refdb"
)

// Names in the order of their bytes, which is neither that of any language
// nor that of UTF-16.
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
				e.must(e.transact(e.a, refdb.UpdateRequest{Project: e.project + n, Updates: []refdb.Update{move("refs/of/"+escape(n), "", v1)}}))
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

// escape makes a valid last component of a ref out of anything.
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

// names returns all that a query lists, page after page. Each ref must hold its
// own name, or be a tombstone or v1.
func (e *env) names(q refdb.RefQuery) []string {
	e.Helper()
	if q.Project == "" {
		q.Project = e.project
	}
	if q.Limit == 0 {
		q.Limit = 1000
	}
	var all []string
	for {
		page, err := e.a.List(e.Context(), q)
		e.must(err)
		if len(page.Refs) > q.Limit {
			e.Fatalf("a page of at most %d has %d refs", q.Limit, len(page.Refs))
		}
		for _, r := range page.Refs {
			if r.Name <= q.After {
				e.Fatalf("the page after %q has %q", q.After, r.Name)
			}
			if v := r.Value; string(v) != r.Name && v != v1 && !v.IsDeleted() {
				e.Errorf("%q holds %q", r.Name, v)
			}
			all = append(all, r.Name)
		}
		if page.Next == "" {
			return all
		}
		if page.Next <= q.After {
			e.Fatalf("the cursor goes from %q to %q", q.After, page.Next)
		}
		q.After = page.Next
	}
}
