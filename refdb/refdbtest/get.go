package refdbtest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
)

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
			e.must(e.transact(e.a, refdb.UpdateRequest{Project: e.project + "/x", Updates: []refdb.Update{move(refA, "", v2)}}))
			if got := e.getOne(refA); got.Value != v1 {
				e.Errorf("got %v", got)
			}
		}},
		{"a ref names the update that wrote it last", func(e *env) {
			for _, id := range []string{"first", "second"} {
				e.must(e.transact(e.a, refdb.UpdateRequest{ID: id, Updates: []refdb.Update{move(refA, "", refdb.Deleted), move(refB, "", refdb.Deleted)}}))
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
				// Rows are cut to microseconds.
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
