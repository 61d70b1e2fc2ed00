package db

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/refdbtest/internal/suite"
)

// Equal keys mean equal values.
func stateKeyRows() []row {
	return []row{
		{"a key stays the same while nothing changes, and every change gives a new key", func(e *env) {
			db := e.Open(refdb.Options{})
			want := newKeys(e, db)
			want("an unknown project")
			e.Must(e.Update(e.A, suite.Move(refA, "", v1)))
			want("a ref")
			e.Must(e.Update(e.B, suite.Move(refB, "", v1)))
			want("another ref")
			e.Must(e.Update(e.A, suite.Move(refA, v1, v2)))
			want("another value")
			e.Must(e.Update(e.A, suite.Move(refA, v2, v1)))
			want("the value of before")
			e.Must(e.Update(e.A, suite.Move(refA, v1, driver.Deleted)))
			want("a deletion")
			l := e.Prepare(e.A, suite.Move(refC, "", v1))
			e.Must(suite.Retry(func() error { return e.TryFinish(e.A, l, []string{refC}, nil) }))
			want("the end of an intent")
			p := e.PutProject(e.A, e.ProjectRequest("1", 0))
			want("a row of the project")
			e.PutProject(e.A, e.ProjectRequest("2", p.Revision))
			want("another row of the project")
			e.Remove(driver.RemoveRequest{Limit: 10})
			want("a removed project")
		}},
		{"a key belongs to one project", func(e *env) {
			db := e.Open(refdb.Options{})
			e.Must(e.Update(e.A, suite.Move(refA, "", v1)))
			k := settledKey(e, db)
			for _, other := range []string{e.Project + "/a", "x" + e.Project} {
				e.Must(e.SendUpdate(e.A, driver.UpdateRequest{Project: other, Updates: []driver.Update{suite.Move(refA, "", v1)}}))
				if o, err := db.StateKey(e.Context(), other); err != nil || o == k {
					e.Errorf("%+v, %v", o, err)
				}
			}
			if again := settledKey(e, db); again != k {
				e.Errorf("after changes of other projects the key is another one")
			}
		}},
		{"while an intent is pending no key is settled, and none equals another", func(e *env) {
			db := e.Open(refdb.Options{})
			e.Must(e.Update(e.A, suite.Move(refA, "", v1)))
			before := settledKey(e, db)
			l := e.Prepare(e.A, suite.Move(refA, v1, v2))
			seen := map[refdb.StateKey]bool{before: true}
			for range 3 {
				k, err := db.StateKey(e.Context(), e.Project)
				if err != nil || k.Settled() || seen[k] {
					e.Errorf("%+v, %v", k, err)
				}
				seen[k] = true
			}
			e.Must(suite.Retry(func() error { return e.TryFinish(e.A, l, nil, []string{refA}) }))
			if k := settledKey(e, db); k != before {
				e.Errorf("an intent that was dropped changed the key")
			}
		}},
		{"a key does not recur when changes are pruned", suite.Alone(func(e *env) {
			db := e.Open(refdb.Options{})
			prune := func() {
				e.Helper()
				_, err := e.A.Prune(e.Context(), driver.PruneRequest{Upto: e.Complete(), EvenUnread: math.MinInt64, Limit: 100})
				e.Must(err)
			}
			want := newKeys(e, db)
			want("nothing")
			for i, to := range []driver.Value{v1, v2, v3} {
				e.Must(e.Update(e.A, suite.Move(refA, append([]driver.Value{""}, v1, v2)[i], to)))
				want("the value " + suite.Short(to))
				prune()
				want("the value " + suite.Short(to) + ", pruned")
			}
		})},
		{"a server that is not admitted has no key, and another server has another key", suite.Alone(func(e *env) {
			db := e.Open(refdb.Options{})
			e.Must(e.Update(e.A, suite.Move(refA, "", v1)))
			before, server := settledKey(e, db), e.Admission().Server
			e.Must(e.Update(e.A, suite.Move(refA, v1, v2)))
			after := settledKey(e, db)
			e.Witnesses("site-w")
			e.Restart()
			if refs, ok, err := db.ChangedBetween(e.Context(), before, after, 5); ok || err != nil {
				e.Errorf("what has changed is %v, %v, at a server that is not admitted", refs, err)
			}
			if k, err := db.StateKey(e.Context(), e.Project); !errors.Is(err, driver.ErrNotAdmitted) || k.Settled() {
				e.Errorf("%+v, %v", k, err)
			}
			e.Report(driver.Report{Witness: "site-w", Owner: "site-w/1"})
			if k := settledKey(e, db); k == after && e.Admission().Server != server { // on some databases the test's restart is none
				e.Error("the key is that of the server before")
			}
		})},
		{"the changes between two keys are known, unless they were pruned or are too many", suite.Alone(func(e *env) {
			db := e.Open(refdb.Options{})
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
			e.Must(e.Update(e.A, suite.Move(refA, "", v1), suite.Move(refB, "", v1)))
			one := settledKey(e, db)
			e.Must(e.Update(e.A, suite.Move(refB, v1, v2)))
			two := settledKey(e, db)
			e.Must(e.Update(e.B, suite.Move(refC, "", v1), suite.Move(refB, v2, driver.Deleted)))
			three := settledKey(e, db)
			e.Must(e.SendUpdate(e.A, driver.UpdateRequest{Project: e.Project + "/a", Updates: []driver.Update{suite.Move(refA, "", v1)}}))
			want(one, one, 5, "")
			want(one, two, 5, "%b")
			want(two, three, 5, "%b %c")
			want(one, three, 3, "%b %c")
			want(one, three, 2, "unknown")
			want(three, one, 5, "unknown")
			want(refdb.StateKey{}, one, 5, "unknown")
			other, err := db.StateKey(e.Context(), e.Project+"/a")
			e.Must(err)
			want(one, other, 5, "unknown")
			e.PutProject(e.A, e.ProjectRequest("1", 0))
			want(one, settledKey(e, db), 5, "unknown")
			_, err = e.A.Prune(e.Context(), driver.PruneRequest{Upto: e.Complete(), EvenUnread: math.MinInt64, Limit: 100})
			e.Must(err)
			want(one, three, 5, "unknown")
		})},
		{"a name that is not valid for a project has no key", func(e *env) {
			db := e.Open(refdb.Options{})
			if _, err := db.StateKey(e.Context(), ""); !errors.Is(err, driver.ErrInvalid) {
				e.Errorf("%v", err)
			}
		}},
		{"P12 equal keys mean equal values, whichever process writes meanwhile", suite.Alone(func(e *env) {
			db := e.Open(refdb.Options{})
			var writing sync.WaitGroup
			for w := range 3 {
				p := []process{e.A, e.B}[w%2]
				ref := fmt.Sprintf("refs/heads/%d", w)
				writing.Go(func() {
					old := driver.Unknown
					for i := range e.Scale(100) {
						to := []driver.Value{v1, v2, v3}[i%3]
						l, err := e.TryPrepare(p, suite.Move(ref, old, to))
						if err == nil {
							err = suite.Retry(func() error { return e.TryFinish(p, l, []string{ref}, nil) })
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
				k, err := db.StateKey(e.Context(), e.Project)
				var listed []string
				for r, lerr := range db.Refs(e.Context(), e.Project, "refs/") {
					err = errors.Join(err, lerr)
					listed = append(listed, r.Name+"="+suite.Short(r.Value))
				}
				again, kerr := db.StateKey(e.Context(), e.Project)
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
					settledKey(e, db)
					read()
					return
				default:
				}
			}
			<-done
		})},
	}
}

// settledKey waits until the key of the row's project is settled. On some databases any open
// transaction holds that back, other tests' too.
func settledKey(e *env, db *refdb.DB) refdb.StateKey {
	e.Helper()
	var k refdb.StateKey
	if !e.Poll(func() (settled bool) {
		var err error
		k, err = db.StateKey(e.Context(), e.Project)
		e.Must(err)
		return k.Settled()
	}) {
		e.Fatalf("after %s the key is not settled: %+v", e.Patience(), e.Tip())
	}
	return k
}

// newKeys returns a function that wants a key that no call of it has seen before, and that stays.
func newKeys(e *env, db *refdb.DB) func(what string) {
	seen := map[refdb.StateKey]string{}
	return func(what string) {
		e.Helper()
		k := settledKey(e, db)
		if before, ok := seen[k]; ok {
			e.Errorf("%s: it has the key of %s", what, before)
		}
		seen[k] = what
		if again := settledKey(e, db); again != k {
			e.Errorf("%s: the next key is another one", what)
		}
	}
}
