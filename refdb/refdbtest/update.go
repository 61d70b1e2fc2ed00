package refdbtest

import (
	"context"
	"errors"
	"fmt"

	"github.com/globalrefdb/globalrefdb/refdb"
)

// absent are the values that stand for a ref that is not there.
func absent() []refdb.Value {
	return []refdb.Value{refdb.Unknown, refdb.Deleted, refdb.Deleted256}
}

func updateRows() []row {
	return []row{
		{"P6 refs are created, moved and deleted together", func(e *env) {
			e.must(e.update(e.a, move(refA, "", v1), move(refB, "", v1)))
			e.must(e.update(e.a, move(refA, v1, v2), move(refB, v1, refdb.Deleted), move(refC, "", v3)))
			e.wantRefs(map[string]refdb.Value{refA: v2, refB: refdb.Deleted, refC: v3})
		}},
		{"P6 one mismatch stops every update, and all of them are named in order", func(e *env) {
			e.must(e.update(e.a, move(refA, "", v1), move(refB, "", refdb.Deleted256), move(refC, "", v3)))
			before := e.list(e.project)
			err := e.update(e.b,
				move("HEAD", "", v1),    // matches, but is not to be created
				move(refA, v2, v3),      // wrong value
				move(refB, v1, v2),      // deleted
				move(refC, v3, v2),      // matches, but is not to be moved
				move("refs/x", v1, v2),  // unknown
				move("refs/z", "", v1),  // matches
				move("refs/zz", v3, v1), // unknown
			)
			e.wantMismatches(err,
				refdb.Mismatch{Ref: refA, Want: v2, Have: v1},
				refdb.Mismatch{Ref: refB, Want: v1, Have: refdb.Deleted256},
				refdb.Mismatch{Ref: "refs/x", Want: v1, Have: refdb.Unknown},
				refdb.Mismatch{Ref: "refs/zz", Want: v3, Have: refdb.Unknown},
			)
			after := e.list(e.project)
			if len(before) != len(after) {
				e.Fatalf("the project held %v and holds %v", before, after)
			}
			for i, r := range after {
				if b := before[i]; b.Name != r.Name || b.Value != r.Value || b.Op != r.Op || !b.Time.Equal(r.Time) {
					e.Errorf("%+v became %+v", b, r)
				}
			}
		}},
		{"an absent Old matches a ref that is unknown or deleted, whatever its zeros", func(e *env) {
			for i, old := range absent() {
				for j, have := range absent() {
					ref := fmt.Sprintf("refs/heads/%d-%d", i, j)
					if have != refdb.Unknown {
						e.must(e.update(e.a, move(ref, "", have)))
					}
					if err := e.update(e.b, move(ref, old, v1)); err != nil {
						e.Errorf("expecting %q of a ref that holds %q: %v", old, have, err)
					}
					if got := e.getOne(ref); got.Value != v1 {
						e.Errorf("expecting %q of a ref that holds %q left %v", old, have, got)
					}
				}
			}
		}},
		{"an absent Old does not match a ref that exists", func(e *env) {
			e.must(e.update(e.a, move(refA, "", v1)))
			for _, old := range absent() {
				e.wantMismatches(e.update(e.b, move(refA, old, v2)), refdb.Mismatch{Ref: refA, Want: old, Have: v1})
			}
			e.wantRefs(map[string]refdb.Value{refA: v1})
		}},
		{"an Old that holds something does not match a ref that is unknown or deleted", func(e *env) {
			for i, have := range absent() {
				ref := fmt.Sprintf("refs/heads/%d", i)
				if have != refdb.Unknown {
					e.must(e.update(e.a, move(ref, "", have)))
				}
				e.wantMismatches(e.update(e.b, move(ref, v1, v2)), refdb.Mismatch{Ref: ref, Want: v1, Have: have})
			}
			e.wantRefs(map[string]refdb.Value{"refs/heads/1": refdb.Deleted, "refs/heads/2": refdb.Deleted256})
		}},
		{"a wrong Old leaves the ref alone and says what it holds", func(e *env) {
			e.must(e.update(e.a, move(refA, "", v1)))
			e.wantMismatches(e.update(e.b, move(refA, v2, v3)), refdb.Mismatch{Ref: refA, Want: v2, Have: v1})
			e.wantRefs(map[string]refdb.Value{refA: v1})
		}},
		{"values are compared by bytes", func(e *env) {
			for i, v := range []refdb.Value{"abcdef", "caf\u00e9", "x "} {
				ref := fmt.Sprintf("refs/heads/%d", i)
				e.must(e.update(e.a, move(ref, "", v)))
				other := []refdb.Value{"ABCDEF", "cafe\u0301", "x"}[i]
				e.wantMismatches(e.update(e.b, move(ref, other, v1)), refdb.Mismatch{Ref: ref, Want: other, Have: v})
			}
		}},
		{"a deleted ref keeps its row, and is created again from zero", func(e *env) {
			e.must(e.update(e.a, move(refA, "", v1)))
			e.must(e.update(e.a, move(refA, v1, refdb.Deleted)))
			e.wantRefs(map[string]refdb.Value{refA: refdb.Deleted})
			e.must(e.update(e.a, move(refA, refdb.Deleted, v2)))
			e.wantRefs(map[string]refdb.Value{refA: v2})
		}},
		{"a ref that never existed can be deleted, which leaves a tombstone", func(e *env) {
			e.must(e.update(e.a, move(refA, "", refdb.Deleted)))
			e.wantRefs(map[string]refdb.Value{refA: refdb.Deleted})
		}},
		{"moving a ref to what it holds is an update too", func(e *env) {
			e.must(e.update(e.a, move(refA, "", v1)))
			e.must(e.transact(e.a, refdb.UpdateRequest{ID: "again", Updates: []refdb.Update{move(refA, v1, v1)}}))
			if got := e.getOne(refA); got.Value != v1 || got.Op != "again" {
				e.Errorf("got %+v", got)
			}
		}},
		{"adopting takes any Old of an unknown ref", func(e *env) {
			e.must(e.transact(e.a, refdb.UpdateRequest{Adopt: true, Updates: []refdb.Update{move(refA, v1, v2), move(refB, "", v1), move(refC, v1, refdb.Deleted)}}))
			e.wantRefs(map[string]refdb.Value{refA: v2, refB: v1, refC: refdb.Deleted})
		}},
		{"adopting does not take a wrong Old of a ref that has a row", func(e *env) {
			e.must(e.update(e.a, move(refA, "", refdb.Deleted), move(refB, "", v1)))
			err := e.transact(e.a, refdb.UpdateRequest{Adopt: true, Updates: []refdb.Update{move(refA, v1, v2), move(refB, v2, v3), move(refC, v1, v2)}})
			e.wantMismatches(err,
				refdb.Mismatch{Ref: refA, Want: v1, Have: refdb.Deleted},
				refdb.Mismatch{Ref: refB, Want: v2, Have: v1})
			e.wantRefs(map[string]refdb.Value{refA: refdb.Deleted, refB: v1})
		}},
		{"an update of one project leaves the same refs of its neighbours alone", func(e *env) {
			for _, p := range []string{e.project, e.project + "/b", e.project + "_"} {
				e.must(e.transact(e.a, refdb.UpdateRequest{Project: p, Updates: []refdb.Update{move(refA, "", v1)}}))
			}
			e.must(e.update(e.a, move(refA, v1, v2)))
			for _, p := range []string{e.project + "/b", e.project + "_"} {
				if got := e.list(p); len(got) != 1 || got[0].Value != v1 {
					e.Errorf("project %q holds %v", p, got)
				}
			}
		}},
		{"an update whose context has ended says so and writes nothing", func(e *env) {
			ctx, cancel := context.WithCancel(e.Context())
			cancel()
			err := e.a.Update(ctx, refdb.UpdateRequest{Project: e.project, ID: "late", Updates: []refdb.Update{move(refA, "", v1)}})
			if !errors.Is(err, context.Canceled) {
				e.Errorf("got %v", err)
			}
			e.wantRefs(nil)
		}},
	}
}
