package refdbtest

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
)

// Equal keys mean equal values.
func dbStateKeyRows() []row {
	return []row{
		{"a key stays while nothing changes, and every change gives another one", func(e *env) {
			db := e.open(refdb.Options{})
			want := e.newKeys(db)
			want("an unknown project")
			e.must(e.update(e.a, move(refA, "", v1)))
			want("a ref")
			e.must(e.update(e.b, move(refB, "", v1)))
			want("another ref")
			e.must(e.update(e.a, move(refA, v1, v2)))
			want("another value")
			e.must(e.update(e.a, move(refA, v2, v1)))
			want("the value of before")
			e.must(e.update(e.a, move(refA, v1, refdb.Deleted)))
			want("a deletion")
			l := e.prepare(e.a, move(refC, "", v1))
			e.must(retry(func() error { return e.tryFinish(e.a, l, []string{refC}, nil) }))
			want("the end of an intent")
			p := e.putProject(e.a, e.projectRequest("1", 0))
			want("a row of the project")
			e.putProject(e.a, e.projectRequest("2", p.Revision))
			want("another row of the project")
			e.remove(refdb.RemoveRequest{Limit: 10})
			want("a removed project")
		}},
		{"a key is that of one project", func(e *env) {
			db := e.open(refdb.Options{})
			e.must(e.update(e.a, move(refA, "", v1)))
			k := e.settledKey(db)
			for _, other := range []string{e.project + "/a", "x" + e.project} {
				e.must(e.sendUpdate(e.a, refdb.UpdateRequest{Project: other, Updates: []refdb.Update{move(refA, "", v1)}}))
				if o, err := db.StateKey(e.Context(), other); err != nil || o == k {
					e.Errorf("%+v, %v", o, err)
				}
			}
			if again := e.settledKey(db); again != k {
				e.Errorf("after changes of other projects the key is another one")
			}
		}},
		{"while an intent is pending no key is settled, and none equals another", func(e *env) {
			db := e.open(refdb.Options{})
			e.must(e.update(e.a, move(refA, "", v1)))
			before := e.settledKey(db)
			l := e.prepare(e.a, move(refA, v1, v2))
			seen := map[refdb.StateKey]bool{before: true}
			for range 3 {
				k, err := db.StateKey(e.Context(), e.project)
				if err != nil || k.Settled() || seen[k] {
					e.Errorf("%+v, %v", k, err)
				}
				seen[k] = true
			}
			e.must(retry(func() error { return e.tryFinish(e.a, l, nil, []string{refA}) }))
			if k := e.settledKey(db); k != before {
				e.Errorf("an intent that was dropped changed the key")
			}
		}},
		{"a key does not come back when changes are pruned", alone(func(e *env) {
			db := e.open(refdb.Options{})
			prune := func() {
				e.Helper()
				_, err := e.a.Prune(e.Context(), refdb.PruneRequest{Upto: e.complete(), EvenUnread: math.MinInt64, Limit: 100})
				e.must(err)
			}
			want := e.newKeys(db)
			want("nothing")
			for i, to := range []refdb.Value{v1, v2, v3} {
				e.must(e.update(e.a, move(refA, append([]refdb.Value{""}, v1, v2)[i], to)))
				want("the value " + short(to))
				prune()
				want("the value " + short(to) + ", pruned")
			}
		})},
		{"a server that is not admitted has no key, and another server has another one", alone(func(e *env) {
			db := e.open(refdb.Options{})
			e.must(e.update(e.a, move(refA, "", v1)))
			before, server := e.settledKey(db), e.admission().Server
			e.must(e.update(e.a, move(refA, v1, v2)))
			after := e.settledKey(db)
			e.witnesses("site-w")
			e.restart()
			if refs, ok, err := db.ChangedBetween(e.Context(), before, after, 5); ok || err != nil {
				e.Errorf("what has changed is %v, %v, at a server that is not admitted", refs, err)
			}
			if k, err := db.StateKey(e.Context(), e.project); !errors.Is(err, refdb.ErrNotAdmitted) || k.Settled() {
				e.Errorf("%+v, %v", k, err)
			}
			e.report(refdb.Report{Witness: "site-w", Owner: "site-w/1"})
			if k := e.settledKey(db); k == after && e.admission().Server != server { // on some databases the test's restart is none
				e.Error("the key is that of the server before")
			}
		})},
		{"what has changed between two keys is known, unless it was pruned or is too much", alone(func(e *env) {
			db := e.open(refdb.Options{})
			want := func(from, to refdb.StateKey, limit int, want string) {
				e.Helper()
				refs, ok, err := db.ChangedBetween(e.Context(), from, to, limit)
				got := strings.Join(refs, " ")
				if !ok {
					got = "unknown"
				}
				if err != nil || got != strings.ReplaceAll(want, "%", "refs/heads/") {
					e.Errorf("%q, %v, want %q", got, err, want)
				}
			}
			e.must(e.update(e.a, move(refA, "", v1), move(refB, "", v1)))
			one := e.settledKey(db)
			e.must(e.update(e.a, move(refB, v1, v2)))
			two := e.settledKey(db)
			e.must(e.update(e.b, move(refC, "", v1), move(refB, v2, refdb.Deleted)))
			three := e.settledKey(db)
			e.must(e.sendUpdate(e.a, refdb.UpdateRequest{Project: e.project + "/a", Updates: []refdb.Update{move(refA, "", v1)}}))
			want(one, one, 5, "")
			want(one, two, 5, "%b")
			want(two, three, 5, "%b %c")
			want(one, three, 3, "%b %c")
			want(one, three, 2, "unknown")
			want(three, one, 5, "unknown")
			want(refdb.StateKey{}, one, 5, "unknown")
			other, err := db.StateKey(e.Context(), e.project+"/a")
			e.must(err)
			want(one, other, 5, "unknown")
			e.putProject(e.a, e.projectRequest("1", 0))
			want(one, e.settledKey(db), 5, "unknown")
			_, err = e.a.Prune(e.Context(), refdb.PruneRequest{Upto: e.complete(), EvenUnread: math.MinInt64, Limit: 100})
			e.must(err)
			want(one, three, 5, "unknown")
		})},
		{"a name that can't be a project's has no key", func(e *env) {
			db := e.open(refdb.Options{})
			if _, err := db.StateKey(e.Context(), ""); !errors.Is(err, refdb.ErrInvalid) {
				e.Errorf("%v", err)
			}
		}},
		{"P12 equal keys are of equal values, whoever writes meanwhile", alone(func(e *env) {
			db := e.open(refdb.Options{})
			var writing sync.WaitGroup
			for w := range 3 {
				p := []process{e.a, e.b}[w%2]
				ref := fmt.Sprintf("refs/heads/%d", w)
				writing.Go(func() {
					old := refdb.Unknown
					for i := range e.scale(100) {
						to := []refdb.Value{v1, v2, v3}[i%3]
						l, err := e.tryPrepare(p, move(ref, old, to))
						if err == nil {
							err = retry(func() error { return e.tryFinish(p, l, []string{ref}, nil) })
						}
						if err != nil {
							e.Errorf("%v", err)
							return
						}
						old = to
					}
				})
			}
			done := make(chan struct{})
			go func() {
				defer close(done)
				writing.Wait()
			}()
			values := map[refdb.StateKey]string{}
			read := func() bool {
				k, err := db.StateKey(e.Context(), e.project)
				var listed []string
				for r, lerr := range db.Refs(e.Context(), e.project, "refs/") {
					err = errors.Join(err, lerr)
					listed = append(listed, r.Name+"="+short(r.Value))
				}
				again, kerr := db.StateKey(e.Context(), e.project)
				if err = errors.Join(err, kerr); err != nil {
					e.Errorf("%v", err)
					return false
				}
				said := strings.Join(listed, " ")
				if was, ok := values[k]; k == again && ok && was != said {
					e.Errorf("one key was of %q and is of %q", was, said)
				}
				if k == again { // two keys that are not settled never are
					values[k] = said
				}
				return true
			}
			for read() {
				select {
				case <-done:
					e.settledKey(db)
					read()
					return
				default:
				}
			}
			<-done
		})},
	}
}

// settledKey waits until the key of the row's project is settled. On some databases any open transaction holds that back, other
// tests' too.
func (e *env) settledKey(db *refdb.DB) refdb.StateKey {
	e.Helper()
	for deadline := time.Now().Add(completePatience); ; time.Sleep(time.Millisecond) {
		k, err := db.StateKey(e.Context(), e.project)
		e.must(err)
		if k.Settled() {
			return k
		}
		if time.Now().After(deadline) {
			e.Fatalf("after %s the key is not settled: %+v", completePatience, e.tip())
		}
	}
}

// newKeys returns a function that wants a key that no call of it has seen before, and that stays.
func (e *env) newKeys(db *refdb.DB) func(what string) {
	seen := map[refdb.StateKey]string{}
	return func(what string) {
		e.Helper()
		k := e.settledKey(db)
		if before, ok := seen[k]; ok {
			e.Errorf("%s: it has the key of %s", what, before)
		}
		seen[k] = what
		if again := e.settledKey(db); again != k {
			e.Errorf("%s: the next key is another one", what)
		}
	}
}
