package db

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/projects"
	"github.com/globalrefdb/globalrefdb/refdb/refdbtest/internal/suite"
)

func refRows() []row {
	return []row{
		{"a missing ref is unknown and does not exist, a stored ref and a deleted ref exist", func(e *env) {
			db := e.Open(refdb.Options{})
			check := func(want driver.Value, exists bool) {
				e.Helper()
				v, err := db.Get(e.Context(), e.Project, refA)
				e.Must(err)
				there, err := db.Exists(e.Context(), e.Project, refA)
				e.Must(err)
				if v != want || there != exists {
					e.Errorf("Get is %q, Exists %v; want %q, %v", v, there, want, exists)
				}
			}
			check(driver.Unknown, false)
			e.Must(e.Update(e.A, suite.Move(refA, "", v1)))
			check(v1, true)
			e.Must(e.Update(e.A, suite.Move(refA, v1, driver.Deleted)))
			check(driver.Deleted, true)
		}},
		{"a site is up to date if the ref is unknown, or deleted and absent, or equal", func(e *env) {
			db := e.Open(refdb.Options{})
			for i, want := range []struct {
				global, local driver.Value
				upToDate      bool
			}{
				{driver.Unknown, driver.Unknown, true},
				{driver.Unknown, driver.Deleted, true},
				{driver.Unknown, v1, true},
				{v1, v1, true},
				{v1, v2, false}, // behind or ahead: only equality counts
				{v2, v1, false},
				{v1, driver.Unknown, false},
				{v1, driver.Deleted, false},
				{driver.Deleted, driver.Unknown, true},
				{driver.Deleted, driver.Deleted, true},
				{driver.Deleted, driver.Deleted256, true},
				{driver.Deleted256, driver.Unknown, true},
				{driver.Deleted, v1, false},
				{"42", "42", true},
				{"42", "43", false},
			} {
				ref := fmt.Sprintf("refs/heads/%d", i)
				if want.global != driver.Unknown {
					e.Must(e.Update(e.A, suite.Move(ref, "", want.global)))
				}
				got, err := db.IsUpToDate(e.Context(), e.Project, ref, want.local)
				e.Must(err)
				if got != want.upToDate {
					e.Errorf("global %q, local %q: %v", want.global, want.local, got)
				}
			}
		}},
		{"compare-and-put reports whether the ref held the expected value, and otherwise does not change it", func(e *env) {
			db := e.Open(refdb.Options{})
			for i, step := range []struct {
				old, new driver.Value
				put      bool
				holds    driver.Value
			}{
				{v1, v2, false, driver.Unknown},
				{driver.Unknown, v1, true, v1},
				{driver.Unknown, v2, false, v1},
				{driver.Deleted, v2, false, v1},
				{v2, v3, false, v1},
				{v1, v2, true, v2},
				{v2, driver.Deleted, true, driver.Deleted},
				{v2, v3, false, driver.Deleted},
				{driver.Deleted, v3, true, v3},
				{v3, driver.Deleted256, true, driver.Deleted}, // the zero ID is as long as the value that it replaces
				{driver.Unknown, v1 + v1[:24], true, v1 + v1[:24]},
				{v1 + v1[:24], driver.Deleted, true, driver.Deleted256},
				{driver.Unknown, "1", true, "1"},
				{"1", "9223372036854775807", true, "9223372036854775807"},
				{"1", "2", false, "9223372036854775807"},
				{"9223372036854775807", "ref: refs/heads/main", true, "ref: refs/heads/main"},
				{"ref: refs/heads/main", "any other string", true, "any other string"},
			} {
				put, err := db.CompareAndPut(e.Context(), e.Project, refA, step.old, step.new)
				e.Must(err)
				holds, err := db.Get(e.Context(), e.Project, refA)
				e.Must(err)
				if put != step.put || holds != step.holds {
					e.Fatalf("step %d, %q to %q: %v, and it holds %q", i, step.old, step.new, put, holds)
				}
			}
		}},
		{"compare-and-put of a locked ref is an error, not a mismatch", func(e *env) {
			db := e.Open(refdb.Options{})
			e.Acquire(e.A, refA)
			put, err := db.CompareAndPut(e.Context(), e.Project, refA, driver.Unknown, v1)
			if put {
				e.Error("it was put")
			}
			e.WantClass(err, driver.ErrLocked, driver.Retryable)
			if put, err := db.CompareAndPut(e.Context(), e.Project, refA, driver.Unknown, v1, refdb.Advisory()); !put || err != nil {
				e.Errorf("advisory: %v, %v", put, err)
			}
			if put, err := db.CompareAndPut(e.Context(), e.Project, refB, v1, v2, refdb.Adopt()); !put || err != nil {
				e.Errorf("adopting: %v, %v", put, err)
			}
		}},
		{"put creates, overwrites and deletes, and returns the previous value", func(e *env) {
			db := e.Open(refdb.Options{})
			holds := driver.Unknown
			for _, v := range []driver.Value{v1, v2, v2, "42", driver.Deleted, v3, driver.Deleted256, driver.Deleted} {
				old, err := db.Put(e.Context(), e.Project, refA, v)
				e.Must(err)
				if old != holds {
					e.Errorf("putting %q returned %q, want %q", v, old, holds)
				}
				got := e.GetOne(refA).Value
				if got != v && !(v.IsDeleted() && got.IsDeleted()) {
					e.Errorf("putting %q left %q", v, got)
				}
				holds = got
			}
			l := e.Acquire(e.A, refA)
			_, err := db.Put(e.Context(), e.Project, refA, v1)
			e.WantClass(err, driver.ErrLocked, driver.Retryable)
			e.WantLock(l)
		}},
		{"every one of many puts replaces another's value", func(e *env) {
			const puts = 8
			dbs := []*refdb.DB{e.Open(refdb.Options{}), e.Open(refdb.Options{})}
			replaced := make(map[driver.Value]int)
			var mu sync.Mutex
			var all []func()
			for i := range puts {
				all = append(all, func() {
					old, err := dbs[i%2].Put(e.Context(), e.Project, refA, driver.Value(fmt.Sprint(i)))
					if err != nil {
						e.Error(err)
					}
					mu.Lock()
					replaced[old]++
					mu.Unlock()
				})
			}
			suite.Race(all...)
			replaced[e.GetOne(refA).Value]++
			if len(replaced) != puts+1 {
				e.Errorf("the values replaced are %v", replaced)
			}
		}},
		{"several refs are returned in order, as far as they have rows", func(e *env) {
			db := e.Open(refdb.Options{})
			e.Must(e.Update(e.A, suite.Move(refA, "", driver.Deleted), suite.Move(refC, "", v1)))
			got, err := db.GetAll(e.Context(), e.Project, refC, refB, refA)
			e.Must(err)
			if len(got) != 2 || got[0].Name != refA || got[1].Name != refC || got[0].Value != driver.Deleted || got[1].Value != v1 {
				e.Errorf("got %v", got)
			}
		}},
		{"P6 an update takes refs in any order and leaves the caller's slice alone", func(e *env) {
			db := e.Open(refdb.Options{})
			updates := []driver.Update{suite.Move(refC, "", v3), suite.Move(refA, "", v1), suite.Move(refB, "", driver.Deleted)}
			was := slices.Clone(updates)
			e.Must(db.Update(e.Context(), e.Project, updates))
			if !slices.Equal(updates, was) {
				e.Errorf("the slice became %v", updates)
			}
			e.WantRefs(map[string]driver.Value{refA: v1, refB: driver.Deleted, refC: v3})
			err := db.Update(e.Context(), e.Project, []driver.Update{suite.Move(refC, v1, v2), suite.Move(refB, "", v2), suite.Move(refA, v2, v3)})
			e.WantMismatches(err, driver.Mismatch{Ref: refA, Want: v2, Have: v1}, driver.Mismatch{Ref: refC, Want: v1, Have: v3})
			e.WantClass(err, driver.ErrMismatch, driver.Permanent)
		}},
		{"an owner and a token fence the update of another process", func(e *env) {
			parent, child := e.Open(refdb.Options{}), e.Open(refdb.Options{})
			l := e.Hold(parent, refA, refB)
			under := refdb.Under(l.Owner(), l.Token(), refB, refA)
			e.Must(child.Update(e.Context(), e.Project, []driver.Update{suite.Move(refA, "", v1)}, under))
			wrong := refdb.Under(child.Owner(), l.Token(), refB, refA)
			e.WantClass(child.Update(e.Context(), e.Project, []driver.Update{suite.Move(refA, v1, v2)}, wrong), driver.ErrLockLost, driver.StaleOwner)
			e.Must(l.Release(e.Context()))
			err := child.Update(e.Context(), e.Project, []driver.Update{suite.Move(refA, v1, v2)}, under)
			e.WantClass(err, driver.ErrLockLost, driver.StaleOwner)
			e.WantRefs(map[string]driver.Value{refA: v1})
		}},
		{"all refs of a project are listed in order, page after page, as far as the caller reads", suite.Long(suite.Alone(func(e *env) {
			db, driver := e.OpenFaulty(refdb.Options{})
			names := storeMany(e)
			var got []string
			for ref, err := range db.Refs(e.Context(), e.Project, "refs/heads/") {
				e.Must(err)
				if got = append(got, ref.Name); len(got) > len(names) {
					e.Fatalf("got %q after all", ref.Name)
				}
			}
			if !slices.Equal(got, names) {
				e.Errorf("%d refs were listed of %d", len(got), len(names))
			}
			if n := driver.Count("List"); n < 2 {
				e.Errorf("%d refs came in %d pages", len(names), n)
			}
			pages := driver.Count("List")
			for range db.Refs(e.Context(), e.Project, "") {
				break
			}
			if n := driver.Count("List") - pages; n != 1 {
				e.Errorf("the first ref took %d pages", n)
			}
			n := 0
			for ref, err := range db.Refs(e.Context(), e.Project, "refs/heads/003") {
				e.Must(err)
				if !strings.HasPrefix(ref.Name, "refs/heads/003") {
					e.Errorf("got %q", ref.Name)
				}
				n++
			}
			if n != 100 {
				e.Errorf("%d refs have the prefix, want 100", n)
			}
		}))},
		{"deleted refs are listed on request", func(e *env) {
			db := e.Open(refdb.Options{})
			e.Must(e.Update(e.A, suite.Move(refA, "", v1), suite.Move(refB, "", driver.Deleted)))
			count := func(opts ...refdb.ListOption) (n int) {
				for _, err := range db.Refs(e.Context(), e.Project, "", opts...) {
					e.Must(err)
					n++
				}
				return n
			}
			if count() != 1 || count(refdb.IncludeDeleted()) != 2 {
				e.Errorf("listed %d and %d", count(), count(refdb.IncludeDeleted()))
			}
		}},
		{"a project of any size is removed completely, but not under a fresh lock", suite.Long(suite.Alone(func(e *env) {
			db := e.Open(refdb.Options{})
			names := storeMany(e)
			e.Must(e.SendUpdate(e.A, driver.UpdateRequest{Project: e.Project + "/b", Updates: []driver.Update{suite.Move(refA, "", v1)}}))
			l := e.Acquire(e.A, names[len(names)-2])
			_, err := db.Projects().Remove(e.Context(), e.Project)
			e.WantClass(err, driver.ErrLocked, driver.Retryable)
			if n := len(e.List(e.Project)); n != len(names) {
				e.Errorf("%d refs are left of %d", n, len(names))
			}
			n, err := db.Projects().Remove(e.Context(), e.Project, projects.Force())
			e.Must(err)
			if n != len(names) || len(e.List(e.Project)) != 0 || len(e.List(e.Project+"/b")) != 1 {
				e.Errorf("removed %d, left are %v", n, e.List(e.Project))
			}
			e.WantFree(l.Refs()...)
		}))},
		{"old tombstones are purged on request, recent ones and live refs stay", func(e *env) {
			db := e.Open(refdb.Options{})
			e.Must(e.Update(e.A, suite.Move(refA, "", driver.Deleted), suite.Move(refB, "", v1)))
			for _, step := range []struct {
				olderThan time.Duration
				want      int
			}{{time.Hour, 0}, {0, 1}, {0, 0}} {
				n, err := db.Operator().PurgeTombstones(e.Context(), e.Project, step.olderThan)
				e.Must(err)
				if n != step.want {
					e.Errorf("purged %d older than %v, want %d", n, step.olderThan, step.want)
				}
			}
			e.WantRefs(map[string]driver.Value{refB: v1})
		}},
	}
}

// manyRows returns a number of rows that fills two or three of a DB's pages.
func manyRows(e *env) int {
	if e.Slow() {
		return 1100
	}
	return 2500
}

// storeMany creates manyRows refs that hold v1, and returns their names in order.
func storeMany(e *env) []string {
	e.Helper()
	names := suite.ManyNames(manyRows(e))
	for chunk := range slices.Chunk(suite.Creations(names), 1000) {
		e.Must(e.Update(e.A, chunk...))
	}
	return names
}
