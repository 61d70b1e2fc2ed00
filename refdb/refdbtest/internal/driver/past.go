package driver

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/refdbtest/internal/suite"
)

// The refs of a project can be listed as they were.
func pastRows() []row {
	return []row{
		{"refs are listed as they were at each position", func(e *env) {
			begin := e.History().Upto
			var at []driver.Position
			for _, updates := range [][]driver.Update{
				{suite.Move(refA, "", v1), suite.Move(refB, "", v1)},
				{suite.Move(refA, v1, v2), suite.Move(refC, "", v3)},
				{suite.Move(refB, v1, driver.Deleted)},
				{suite.Move(refB, "", v2), suite.Move(refC, v3, v1)},
			} {
				e.Must(e.Update(e.A, updates...))
				at = append(at, e.Complete())
			}
			all := driver.RefQuery{Deleted: true}
			e.WantPast(begin, all, "")
			e.WantPast(at[0]-1, all, "")
			for i, want := range []string{"a=1 b=1", "a=2 b=1 c=3", "a=2 b=0 c=3", "a=2 b=2 c=1"} {
				e.WantPast(at[i], all, want)
				if i > 0 {
					e.WantPast(at[i]-1, all, []string{"a=1 b=1", "a=2 b=1 c=3", "a=2 b=0 c=3"}[i-1])
				}
			}
			e.WantPast(at[2], driver.RefQuery{}, "a=2 c=3")
			e.WantPast(at[1], driver.RefQuery{Prefix: refB}, "b=1")
			e.WantPast(at[1], driver.RefQuery{Prefix: "refs/tags/"}, "")
			e.WantPast(e.History().Upto, all, "a=2 b=2 c=1")
		}},
		{"time and operation of a past ref are those of the change that gave its value", func(e *env) {
			e.Change(e.A, "one", suite.Move(refA, "", v1), suite.Move(refB, "", v1))
			first := e.Complete()
			e.Change(e.A, "two", suite.Move(refA, v1, v2))
			e.Complete()
			for _, r := range e.Past(first, driver.RefQuery{}) {
				made := e.ReadLog(r.Name)[0]
				if r.Op != "one" || !r.Time.Equal(made.Time) {
					e.Errorf("%+v, made by %+v", r, made)
				}
			}
		}},
		{"a project that was removed since is listed as it was", func(e *env) {
			e.Must(e.Update(e.A, suite.Move(refA, "", v1), suite.Move(refB, "", v2), suite.Move(refC, "", v3)))
			e.Must(e.Update(e.A, suite.Move(refC, v3, driver.Deleted)))
			before := e.Complete()
			e.Remove(driver.RemoveRequest{Origin: suite.By(e.B, "remove"), Limit: 10})
			after := e.Complete()
			e.Must(e.Update(e.A, suite.Move(refB, "", v1)))
			e.Complete()
			e.WantPast(before, driver.RefQuery{}, "a=1 b=2")
			e.WantPast(after, driver.RefQuery{}, "")
			e.WantPast(e.History().Upto, driver.RefQuery{}, "b=1")
		}},
		{"pages of the past contain every ref once", suite.Long(func(e *env) {
			refs := numbered(25)
			e.Must(e.Update(e.A, suite.Creations(refs[:20])...))
			at := e.Complete()
			for i, ref := range refs {
				to := []driver.Value{v2, driver.Deleted}[i%2]
				old := v1
				if i >= 20 {
					old = ""
				}
				e.Must(e.Update(e.A, suite.Move(ref, old, to)))
			}
			e.Complete()
			var got []string
			for _, r := range e.Past(at, driver.RefQuery{}) {
				got = append(got, r.Name)
				if r.Value != v1 {
					e.Errorf("%+v", r)
				}
			}
			if !slices.Equal(got, refs[:20]) {
				e.Errorf("%v", got)
			}
		})},
		{"the position at a time is the last one with nothing later", func(e *env) {
			var times []time.Time
			var at []driver.Position
			for _, to := range []driver.Value{v1, v2, v3} {
				var old driver.Value
				if len(at) > 0 {
					old = []driver.Value{v1, v2}[len(at)-1]
				}
				e.Must(e.Update(e.A, suite.Move(refA, old, to)))
				at = append(at, e.Complete())
				times = append(times, e.ReadLog(refA)[len(at)-1].Time)
				time.Sleep(time.Millisecond) // no two in one microsecond
			}
			position := func(t time.Time) driver.Position {
				e.Helper()
				p, s, err := e.B.PositionAt(e.Context(), t)
				e.Must(err)
				if p > s.Upto {
					e.Errorf("position %d at %s, of %+v", p, t, s)
				}
				return p
			}
			for i := range at {
				if i > 0 && !times[i].After(times[i-1]) {
					e.Fatalf("the times are %v", times)
				}
				if p := position(times[i]); p < at[i] && !slices.ContainsFunc(e.Changes(e.A, driver.ChangesRequest{After: driver.ChangeKey{Position: p + 1}, Limit: 100}), func(c driver.Change) bool {
					return c.Time.After(times[i]) && c.Position <= at[i]
				}) {
					e.Errorf("at the time of %d the position is %d", at[i], p)
				}
				if p := position(times[i].Add(-time.Microsecond)); p >= at[i] {
					e.Errorf("before the time of %d the position is %d", at[i], p)
				}
			}
			if p := position(times[0].Add(-24 * time.Hour)); p >= at[0] {
				e.Errorf("long before, the position is %d", p)
			}
			if p, upto := position(times[0].Add(24*time.Hour)), e.Complete(); p < upto {
				e.Errorf("in the future, the position is %d", p)
			}
		}},
	}
}

// Old changes can be pruned. These rows share a database: what they prune is of all projects.
func pruneRows() []row {
	return []row{{"old changes are pruned in chunks, except the newest of each ref and those that a follower has not read", func(e *env) {
		e.Must(e.Update(e.A, suite.Move(refB, "", v1)))
		for _, v := range [][2]driver.Value{{"", v1}, {v1, v2}, {v2, v3}, {v3, v1}} {
			e.Must(e.Update(e.A, suite.Move(refA, v[0], v[1])))
		}
		first := e.Complete()
		e.Must(e.Update(e.A, suite.Move(refA, v1, v2), suite.Move(refB, v1, v2)))
		e.Complete()
		prune := func(r driver.PruneRequest) (total int) {
			e.Helper()
			for {
				p, err := e.B.Prune(e.Context(), r)
				e.Must(err)
				total += p.Deleted
				if p.Next == (driver.ChangeKey{}) {
					return total
				}
				if p.Next.Compare(r.After) <= 0 {
					e.Fatalf("after %+v comes %+v", r.After, p.Next)
				}
				r.After = p.Next
			}
		}
		const none = math.MinInt64
		all := e.ReadLog("")
		if s := e.History(); !s.PrunedTime.IsZero() {
			e.Errorf("before anything was pruned: %+v", s)
		}
		e.Must(e.A.PutFollower(e.Context(), driver.Follower{Name: "slow", Cursor: "c", Read: all[1].Position}))
		if n := prune(driver.PruneRequest{Upto: first, EvenUnread: none, Keep: 2, Limit: 2}); n != 1 {
			e.Errorf("%d were pruned that the follower had read", n)
		}
		if s := e.History(); s.Pruned != all[1].Position+1 {
			e.Errorf("pruned up to %d: %+v", all[1].Position, s)
		}
		if n := prune(driver.PruneRequest{Upto: first, EvenUnread: all[2].Position, Keep: 2, Limit: 1}); n != 1 {
			e.Errorf("%d were pruned even unread", n)
		}
		if found, err := e.B.RemoveFollower(e.Context(), "slow"); !found || err != nil {
			e.Errorf("the follower was removed: %t, %v", found, err)
		}
		if n := prune(driver.PruneRequest{Upto: first, EvenUnread: none, Keep: 2, Limit: 3}); n != 1 {
			e.Errorf("%d were pruned beyond the two newest", n)
		}
		e.WantLog("b ->1", "a 3>1", "a 1>2", "b 1>2")
		if got := e.Changes(e.A, driver.ChangesRequest{Project: e.Project, Limit: 10}); suite.SaidAll(got) != "a 3>1, a 1>2, b 1>2" {
			e.Errorf("a reader, who could not know that some are missing, gets %s", suite.SaidAll(got))
		}
		e.WantPast(all[3].Position, driver.RefQuery{}, "a=3 b=1")
		e.WantPast(first, driver.RefQuery{}, "a=1 b=1")
		if n := prune(driver.PruneRequest{Upto: first, EvenUnread: none, Keep: 0, Limit: 1000}); n != 2 {
			e.Errorf("%d were pruned", n)
		}
		e.WantLog("a 1>2", "b 1>2")
		if s := e.History(); s.Pruned != first+1 || !s.PrunedTime.Equal(all[4].Time) {
			e.Errorf("pruned up to %d, of %s: %+v", first, all[4].Time, s)
		}
		e.WantPast(first, driver.RefQuery{}, "a=1 b=1")
		if got := e.Changes(e.A, driver.ChangesRequest{Project: e.Project, Limit: 10}); suite.SaidAll(got) != "a 1>2, b 1>2" {
			e.Errorf("a reader gets %s", suite.SaidAll(got))
		}
		if n := prune(driver.PruneRequest{Upto: first, EvenUnread: none, Keep: 0, Limit: 1000}); n != 0 {
			e.Errorf("%d were pruned again", n)
		}
	}},
		{"followers are listed with their cursors", func(e *env) {
			before, err := e.A.Now(e.Context())
			e.Must(err)
			name := func(s string) string { return e.Project + s }
			for _, f := range []driver.Follower{{Name: name("/b'"), Cursor: "1", Read: 1 << 60}, {Name: name("/a"), Cursor: "2", Read: 1 << 60}, {Name: name("/b'"), Cursor: "3", Read: 1<<60 + 1}} {
				e.Must(e.A.PutFollower(e.Context(), f))
			}
			all, err := e.B.Followers(e.Context())
			e.Must(err)
			mine := slices.DeleteFunc(all, func(f driver.Follower) bool { return !strings.HasPrefix(f.Name, e.Project+"/") })
			if len(mine) != 2 || mine[0].Name != name("/a") || mine[0].Cursor != "2" || mine[1].Name != name("/b'") || mine[1].Cursor != "3" || mine[1].Read != 1<<60+1 ||
				mine[0].Seen.Before(before) || mine[0].Age < 0 || mine[0].Age > time.Hour {
				e.Errorf("%+v", mine)
			}
			for i, want := range []bool{true, false} {
				if found, err := e.B.RemoveFollower(e.Context(), name("/a")); found != want || err != nil {
					e.Errorf("removal %d: %t, %v", i, found, err)
				}
			}
		}},
	}
}

// between reports whether a time is not before the first, nor after the second.
func between(t, first, last time.Time) bool { return !t.Before(first) && !t.After(last) }

// numbered returns n names of refs, sorted.
func numbered(n int) []string {
	refs := make([]string, n)
	for i := range refs {
		refs[i] = fmt.Sprintf("refs/heads/%05d", i)
	}
	return refs
}
