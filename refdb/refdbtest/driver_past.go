package refdbtest

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
)

// The refs of a project can be listed as they were.
func pastRows() []row {
	return []row{
		{"refs are listed as they were at each position", func(e *env) {
			begin := e.history().Upto
			var at []refdb.Position
			for _, updates := range [][]refdb.Update{
				{move(refA, "", v1), move(refB, "", v1)},
				{move(refA, v1, v2), move(refC, "", v3)},
				{move(refB, v1, refdb.Deleted)},
				{move(refB, "", v2), move(refC, v3, v1)},
			} {
				e.must(e.update(e.a, updates...))
				at = append(at, e.complete())
			}
			all := refdb.RefQuery{Deleted: true}
			e.wantPast(begin, all, "")
			e.wantPast(at[0]-1, all, "")
			for i, want := range []string{"a=1 b=1", "a=2 b=1 c=3", "a=2 b=0 c=3", "a=2 b=2 c=1"} {
				e.wantPast(at[i], all, want)
				if i > 0 {
					e.wantPast(at[i]-1, all, []string{"a=1 b=1", "a=2 b=1 c=3", "a=2 b=0 c=3"}[i-1])
				}
			}
			e.wantPast(at[2], refdb.RefQuery{}, "a=2 c=3")
			e.wantPast(at[1], refdb.RefQuery{Prefix: refB}, "b=1")
			e.wantPast(at[1], refdb.RefQuery{Prefix: "refs/tags/"}, "")
			e.wantPast(e.history().Upto, all, "a=2 b=2 c=1")
		}},
		{"time and operation of a past ref are those of the change that made it", func(e *env) {
			e.change(e.a, "one", move(refA, "", v1), move(refB, "", v1))
			first := e.complete()
			e.change(e.a, "two", move(refA, v1, v2))
			e.complete()
			for _, r := range e.past(first, refdb.RefQuery{}) {
				made := e.log(r.Name)[0]
				if r.Op != "one" || !r.Time.Equal(made.Time) {
					e.Errorf("%+v, made by %+v", r, made)
				}
			}
		}},
		{"a project that was removed since is listed as it was", func(e *env) {
			e.must(e.update(e.a, move(refA, "", v1), move(refB, "", v2), move(refC, "", v3)))
			e.must(e.update(e.a, move(refC, v3, refdb.Deleted)))
			before := e.complete()
			e.remove(refdb.RemoveRequest{Origin: by(e.b, "remove"), Limit: 10})
			after := e.complete()
			e.must(e.update(e.a, move(refB, "", v1)))
			e.complete()
			e.wantPast(before, refdb.RefQuery{}, "a=1 b=2")
			e.wantPast(after, refdb.RefQuery{}, "")
			e.wantPast(e.history().Upto, refdb.RefQuery{}, "b=1")
		}},
		{"pages of the past have every ref once", func(e *env) {
			refs := numbered(25)
			e.must(e.update(e.a, creations(refs[:20])...))
			at := e.complete()
			for i, ref := range refs {
				to := []refdb.Value{v2, refdb.Deleted}[i%2]
				old := v1
				if i >= 20 {
					old = ""
				}
				e.must(e.update(e.a, move(ref, old, to)))
			}
			e.complete()
			var got []string
			for _, r := range e.past(at, refdb.RefQuery{}) {
				got = append(got, r.Name)
				if r.Value != v1 {
					e.Errorf("%+v", r)
				}
			}
			if !slices.Equal(got, refs[:20]) {
				e.Errorf("%v", got)
			}
		}},
		{"the position at a time is the last one with nothing later", func(e *env) {
			var times []time.Time
			var at []refdb.Position
			for _, to := range []refdb.Value{v1, v2, v3} {
				var old refdb.Value
				if len(at) > 0 {
					old = []refdb.Value{v1, v2}[len(at)-1]
				}
				e.must(e.update(e.a, move(refA, old, to)))
				at = append(at, e.complete())
				times = append(times, e.log(refA)[len(at)-1].Time)
				time.Sleep(time.Millisecond) // no two in one microsecond
			}
			position := func(t time.Time) refdb.Position {
				e.Helper()
				p, s, err := e.b.PositionAt(e.Context(), t)
				e.must(err)
				if p > s.Upto {
					e.Errorf("position %d at %s, of %+v", p, t, s)
				}
				return p
			}
			for i := range at {
				if i > 0 && !times[i].After(times[i-1]) {
					e.Fatalf("the times are %v", times)
				}
				if p := position(times[i]); p < at[i] && !slices.ContainsFunc(e.changes(e.a, refdb.ChangesRequest{After: refdb.ChangeKey{Position: p + 1}, Limit: 100}), func(c refdb.Change) bool {
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
			if p, upto := position(times[0].Add(24*time.Hour)), e.complete(); p < upto {
				e.Errorf("in the future, the position is %d", p)
			}
		}},
	}
}

// Old changes can be pruned. These rows share a database: what they prune is of all projects.
func pruneRows() []row {
	return []row{{"old changes are pruned by chunks, but the newest of each ref, and nothing that a follower has not read", func(e *env) {
		e.must(e.update(e.a, move(refB, "", v1)))
		for _, v := range [][2]refdb.Value{{"", v1}, {v1, v2}, {v2, v3}, {v3, v1}} {
			e.must(e.update(e.a, move(refA, v[0], v[1])))
		}
		first := e.complete()
		e.must(e.update(e.a, move(refA, v1, v2), move(refB, v1, v2)))
		e.complete()
		prune := func(r refdb.PruneRequest) (total int) {
			e.Helper()
			for {
				p, err := e.b.Prune(e.Context(), r)
				e.must(err)
				total += p.Deleted
				if p.Next == (refdb.ChangeKey{}) {
					return total
				}
				if p.Next.Compare(r.After) <= 0 {
					e.Fatalf("after %+v comes %+v", r.After, p.Next)
				}
				r.After = p.Next
			}
		}
		const none = math.MinInt64
		all := e.log("")
		if s := e.history(); !s.PrunedTime.IsZero() {
			e.Errorf("before anything was pruned: %+v", s)
		}
		e.must(e.a.PutFollower(e.Context(), refdb.Follower{Name: "slow", Cursor: "c", Read: all[1].Position}))
		if n := prune(refdb.PruneRequest{Upto: first, EvenUnread: none, Keep: 2, Limit: 2}); n != 1 {
			e.Errorf("%d were pruned that the follower had read", n)
		}
		if s := e.history(); s.Pruned != all[1].Position+1 {
			e.Errorf("pruned up to %d: %+v", all[1].Position, s)
		}
		if n := prune(refdb.PruneRequest{Upto: first, EvenUnread: all[2].Position, Keep: 2, Limit: 1}); n != 1 {
			e.Errorf("%d were pruned even unread", n)
		}
		if found, err := e.b.RemoveFollower(e.Context(), "slow"); !found || err != nil {
			e.Errorf("the follower was removed: %t, %v", found, err)
		}
		if n := prune(refdb.PruneRequest{Upto: first, EvenUnread: none, Keep: 2, Limit: 3}); n != 1 {
			e.Errorf("%d were pruned beyond the two newest", n)
		}
		e.wantLog("b ->1", "a 3>1", "a 1>2", "b 1>2")
		if got := e.changes(e.a, refdb.ChangesRequest{Project: e.project, Limit: 10}); saidAll(got) != "a 3>1, a 1>2, b 1>2" {
			e.Errorf("a reader, who could not know that some are missing, gets %s", saidAll(got))
		}
		e.wantPast(all[3].Position, refdb.RefQuery{}, "a=3 b=1")
		e.wantPast(first, refdb.RefQuery{}, "a=1 b=1")
		if n := prune(refdb.PruneRequest{Upto: first, EvenUnread: none, Keep: 0, Limit: 1000}); n != 2 {
			e.Errorf("%d were pruned", n)
		}
		e.wantLog("a 1>2", "b 1>2")
		if s := e.history(); s.Pruned != first+1 || !s.PrunedTime.Equal(all[4].Time) {
			e.Errorf("pruned up to %d, of %s: %+v", first, all[4].Time, s)
		}
		e.wantPast(first, refdb.RefQuery{}, "a=1 b=1")
		if got := e.changes(e.a, refdb.ChangesRequest{Project: e.project, Limit: 10}); saidAll(got) != "a 1>2, b 1>2" {
			e.Errorf("a reader gets %s", saidAll(got))
		}
		if n := prune(refdb.PruneRequest{Upto: first, EvenUnread: none, Keep: 0, Limit: 1000}); n != 0 {
			e.Errorf("%d were pruned again", n)
		}
	}},
		{"followers are listed with their cursors", func(e *env) {
			before, err := e.a.Now(e.Context())
			e.must(err)
			name := func(s string) string { return e.project + s }
			for _, f := range []refdb.Follower{{Name: name("/b'"), Cursor: "1", Read: 1 << 60}, {Name: name("/a"), Cursor: "2", Read: 1 << 60}, {Name: name("/b'"), Cursor: "3", Read: 1<<60 + 1}} {
				e.must(e.a.PutFollower(e.Context(), f))
			}
			all, err := e.b.Followers(e.Context())
			e.must(err)
			mine := slices.DeleteFunc(all, func(f refdb.Follower) bool { return !strings.HasPrefix(f.Name, e.project+"/") })
			if len(mine) != 2 || mine[0].Name != name("/a") || mine[0].Cursor != "2" || mine[1].Name != name("/b'") || mine[1].Cursor != "3" || mine[1].Read != 1<<60+1 ||
				mine[0].Seen.Before(before) || mine[0].Age < 0 || mine[0].Age > time.Minute {
				e.Errorf("%+v", mine)
			}
			for i, want := range []bool{true, false} {
				if found, err := e.b.RemoveFollower(e.Context(), name("/a")); found != want || err != nil {
					e.Errorf("removal %d: %t, %v", i, found, err)
				}
			}
		}},
	}
}

// by is who makes the suite's recorded changes.
func by(p process, id string) refdb.Origin {
	return refdb.Origin{ID: id, Owner: p.owner, By: "o'brien <" + id + ">"}
}

// change makes an update through p under an ID.
func (e *env) change(p process, id string, updates ...refdb.Update) {
	e.Helper()
	e.must(e.sendUpdate(p, refdb.UpdateRequest{Origin: by(p, id), Updates: updates}))
}

// log returns all changes of a ref or, given "", of the row's project, oldest first.
func (e *env) log(ref string) []refdb.Change {
	e.Helper()
	return e.logOf(e.project, ref, 3)
}

func (e *env) logOf(project, ref string, limit int) (all []refdb.Change) {
	e.Helper()
	for r := (refdb.LogRequest{Project: project, Ref: ref, Limit: limit}); ; {
		page, err := e.b.Log(e.Context(), r)
		e.must(err)
		all = append(all, page.Changes...)
		if page.Next == (refdb.ChangeKey{}) {
			slices.Reverse(all)
			return all
		}
		if len(page.Changes) == 0 {
			e.Fatalf("before %+v is an empty page, and Next is %+v", r.Before, page.Next)
		}
		r.Before = page.Next
	}
}

// said is a change in short: of a ref, from one value to another.
func said(c refdb.Change) string {
	return fmt.Sprintf("%s %s>%s", strings.TrimPrefix(c.Ref, "refs/heads/"), short(c.Old), short(c.New))
}

func short(v refdb.Value) string {
	switch {
	case v == refdb.Unknown:
		return "-"
	case v.IsDeleted():
		return "0"
	}
	return string(v[:1])
}

func saidAll(changes []refdb.Change) string {
	all := make([]string, len(changes))
	for i, c := range changes {
		all[i] = said(c)
	}
	return strings.Join(all, ", ")
}

// wantLog checks the changes of the row's project, oldest first.
func (e *env) wantLog(want ...string) []refdb.Change {
	e.Helper()
	got := e.log("")
	if saidAll(got) != strings.Join(want, ", ") {
		e.Errorf("the log says %q, want %q", saidAll(got), want)
	}
	return got
}

// history returns the state of the history.
func (e *env) history() refdb.HistoryState {
	e.Helper()
	s, err := e.a.HistoryState(e.Context())
	e.must(err)
	return s
}

// completePatience is how long to wait until a change is complete. On some databases any open transaction holds that
// back, other tests' too.
const completePatience = 2 * time.Minute

// complete waits until the changes of the row's project so far are complete, and returns the last position.
func (e *env) complete() refdb.Position {
	e.Helper()
	return e.completeOf(e.log(""))
}

// completeOf waits until all of changes are complete, and returns the last position.
func (e *env) completeOf(changes []refdb.Change) refdb.Position {
	e.Helper()
	last := refdb.Position(math.MinInt64)
	for _, c := range changes {
		last = max(last, c.Position)
	}
	for deadline := time.Now().Add(completePatience); e.history().Upto < last; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			e.Fatalf("after %s, %d is not complete: %+v", completePatience, last, e.history())
		}
	}
	return last
}

// beginning is where the row's reading of changes begins: no change of its project is before that.
func (e *env) beginning() refdb.ChangeKey {
	e.Helper()
	return refdb.ChangeKey{Position: e.history().Upto + 1}
}

// changes reads all changes that r selects, page by page.
func (e *env) changes(p process, r refdb.ChangesRequest) (all []refdb.Change) {
	e.Helper()
	for {
		page, err := p.Changes(e.Context(), r)
		e.must(err)
		all = append(all, page.Changes...)
		if page.Next.Position > page.State.Upto {
			return all
		}
		if page.Next.Compare(r.After) <= 0 {
			e.Fatalf("after %+v, Next is %+v", r.After, page.Next)
		}
		r.After = page.Next
	}
}

// past returns the refs of the row's project as they were at a position, page by page.
func (e *env) past(at refdb.Position, q refdb.RefQuery) (all []refdb.Ref) {
	e.Helper()
	q.Project, q.Limit = e.project, 2
	for {
		page, err := e.b.Past(e.Context(), refdb.PastRequest{RefQuery: q, At: at})
		e.must(err)
		all = append(all, page.Refs...)
		if page.Next == "" {
			return all
		}
		if page.Next <= q.After {
			e.Fatalf("after %q, Next is %q", q.After, page.Next)
		}
		q.After = page.Next
	}
}

// wantPast checks what the row's project held at a position: "a=1 b=2".
func (e *env) wantPast(at refdb.Position, q refdb.RefQuery, want string) {
	e.Helper()
	var got []string
	for _, r := range e.past(at, q) {
		got = append(got, strings.TrimPrefix(r.Name, "refs/heads/")+"="+short(r.Value))
	}
	if strings.Join(got, " ") != want {
		e.Errorf("at %d the project held %q, want %q", at, strings.Join(got, " "), want)
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
