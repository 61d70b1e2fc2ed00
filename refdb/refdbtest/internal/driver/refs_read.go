package driver

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/refdbtest/internal/suite"
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
			e.Store(sortedNames())
			if got := e.Names(driver.RefQuery{}); !slices.Equal(got, sortedNames()) {
				e.Errorf("got %q", got)
			}
		}},
		{"a prefix is matched as bytes: no character is special", func(e *env) {
			all := sortedNames()
			e.Store(all)
			prefixes := []string{"", "H", "h", "refs/", "refs", "refs/heads/nothing", "refs/heads/A%", `refs/heads/a\`, "refs/heads/\U0010FFFF\U0010FFFF", "refs/tags/aa"}
			for _, prefix := range append(prefixes, all...) {
				want := slices.DeleteFunc(slices.Clone(all), func(n string) bool { return !strings.HasPrefix(n, prefix) })
				if got := e.Names(driver.RefQuery{Prefix: prefix}); !slices.Equal(got, want) {
					e.Errorf("prefix %q: got %q, want %q", prefix, got, want)
				}
			}
		}},
		{"a listing after a name contains all greater names, whether that name exists or not", suite.Long(func(e *env) {
			all := sortedNames()
			e.Store(all)
			afters := []string{"A", "refs/heads/a\x01", "refs/heads/zzz", "z", "\U0010FFFF", "refs/heads/\U0010FFFE"}
			for _, after := range append(afters, all...) {
				for _, prefix := range []string{"", "refs/heads/a"} {
					want := slices.DeleteFunc(slices.Clone(all), func(n string) bool { return n <= after || !strings.HasPrefix(n, prefix) })
					if got := e.Names(driver.RefQuery{Prefix: prefix, After: after}); !slices.Equal(got, want) {
						e.Errorf("prefix %q after %q: got %q, want %q", prefix, after, got, want)
					}
				}
			}
		})},
		{"pages of any size hold every ref once", func(e *env) {
			all := sortedNames()
			e.Store(all)
			for _, size := range []int{1, 2, 7, len(all) - 1, len(all), len(all) + 1} {
				if got := e.Names(driver.RefQuery{Limit: size}); !slices.Equal(got, all) {
					e.Errorf("pages of %d: got %q", size, got)
				}
			}
		}},
		{"tombstones are listed only on request, and hide no later refs", func(e *env) {
			var alive, all []string
			var updates []driver.Update
			for i := range 12 {
				name := fmt.Sprintf("refs/heads/%02d", i)
				value := []driver.Value{driver.Deleted, v1, driver.Deleted256}[i%3]
				updates = append(updates, suite.Move(name, "", value))
				all = append(all, name)
				if value == v1 {
					alive = append(alive, name)
				}
			}
			e.Must(e.Update(e.A, updates...))
			for _, size := range []int{1, 2, 3, 5} {
				if got := e.Names(driver.RefQuery{Limit: size}); !slices.Equal(got, alive) {
					e.Errorf("pages of %d without tombstones: %q, want %q", size, got, alive)
				}
				if got := e.Names(driver.RefQuery{Limit: size, Deleted: true}); !slices.Equal(got, all) {
					e.Errorf("pages of %d with tombstones: %q, want %q", size, got, all)
				}
			}
		}},
		{"a listing contains no refs of other projects", func(e *env) {
			neighbours := []string{"", "/b", "_b", "%", "-", " ", "A", "\U0010FFFF"}
			for _, n := range neighbours {
				e.Must(e.SendUpdate(e.A, driver.UpdateRequest{Project: e.Project + n, Updates: []driver.Update{suite.Move("refs/of/"+escape(n), "", v1)}}))
			}
			for _, n := range neighbours {
				if got := e.Names(driver.RefQuery{Project: e.Project + n}); !slices.Equal(got, []string{"refs/of/" + escape(n)}) {
					e.Errorf("project %q: got %q", e.Project+n, got)
				}
			}
			for _, none := range []string{strings.ToUpper(e.Project), e.Project[:len(e.Project)-1] + "%", "_" + e.Project[1:]} {
				if got := e.Names(driver.RefQuery{Project: none}); len(got) != 0 {
					e.Errorf("project %q: got %q, want none", none, got)
				}
			}
		}},
		{"a listed ref equals the one that Get returns", func(e *env) {
			e.Must(e.Update(e.A, suite.Move(refA, "", v1)))
			listed, got := e.List(e.Project)[0], e.GetOne(refA)
			if !listed.Time.Equal(got.Time) || listed.Time.IsZero() || listed.Op == "" || listed.Op != got.Op || listed.Value != v1 {
				e.Errorf("listed %+v, got %+v", listed, got)
			}
		}},
	}
}

// escape makes a valid last component of a ref name from any string.
func escape(s string) string { return fmt.Sprintf("%x.", s) + "x" }

func getRows() []row {
	return []row{
		{"a missing ref has no row", func(e *env) {
			if got := e.Get(refA); len(got) != 0 {
				e.Errorf("got %v", got)
			}
		}},
		{"a stored ref is returned, missing refs are not", func(e *env) {
			e.Must(e.Update(e.A, suite.Move(refA, "", v1), suite.Move(refC, "", v2)))
			if got, want := suite.ValuesOf(e.Get(refA, refB, refC)), (map[string]driver.Value{refA: v1, refC: v2}); !maps.Equal(got, want) {
				e.Errorf("got %v, want %v", got, want)
			}
		}},
		{"only the requested refs are returned", func(e *env) {
			e.Must(e.Update(e.A, suite.Move(refA, "", v1), suite.Move(refB, "", v2)))
			if got := e.Get(refB); len(got) != 1 || got[0].Name != refB {
				e.Errorf("got %v", got)
			}
		}},
		{"one process reads what another has stored", func(e *env) {
			e.Must(e.Update(e.B, suite.Move(refA, "", v1)))
			e.Must(e.Update(e.A, suite.Move(refA, v1, v2)))
			got, err := e.B.Get(e.Context(), e.Project, []string{refA})
			e.Must(err)
			if len(got) != 1 || got[0].Value != v2 {
				e.Errorf("got %v", got)
			}
		}},
		{"a deleted ref is returned with the zero ID of its deletion", func(e *env) {
			e.Must(e.Update(e.A, suite.Move(refA, "", driver.Deleted), suite.Move(refB, "", driver.Deleted256)))
			want := map[string]driver.Value{refA: driver.Deleted, refB: driver.Deleted256}
			if got := suite.ValuesOf(e.Get(refA, refB)); !maps.Equal(got, want) {
				e.Errorf("got %v, want %v", got, want)
			}
		}},
		{"refs of the same name in two projects are distinct", func(e *env) {
			e.Must(e.Update(e.A, suite.Move(refA, "", v1)))
			e.Must(e.SendUpdate(e.A, driver.UpdateRequest{Project: e.Project + "/x", Updates: []driver.Update{suite.Move(refA, "", v2)}}))
			if got := e.GetOne(refA); got.Value != v1 {
				e.Errorf("got %v", got)
			}
		}},
		{"a ref has the operation of the update that last wrote it", func(e *env) {
			for _, id := range []string{"first", "second"} {
				e.Must(e.SendUpdate(e.A, driver.UpdateRequest{Origin: driver.Origin{ID: id}, Updates: []driver.Update{suite.Move(refA, "", driver.Deleted), suite.Move(refB, "", driver.Deleted)}}))
				for _, r := range e.Get(refA, refB) {
					if r.Op != id {
						e.Errorf("%s was written by %q, want %q", r.Name, r.Op, id)
					}
				}
			}
		}},
		{"a ref's time is the database's, of its last change", func(e *env) {
			var last time.Time
			for range 3 {
				before := e.Now(e.A)
				e.Must(e.Update(e.A, suite.Move(refA, "", driver.Deleted)))
				after, r := e.Now(e.A), e.GetOne(refA)
				// Stored times are truncated to microseconds.
				if r.Time.Before(before.Truncate(time.Microsecond)) || r.Time.After(after) || !r.Time.After(last) {
					e.Errorf("written at %v, between %v and %v, last %v", r.Time, before, after, last)
				}
				last = r.Time
			}
		}},
		{"a ref that Gerrit wrote has a value and no operation", func(e *env) {
			e.DB.InsertRef(e, e.Project, refA, v1)
			if got := e.GetOne(refA); got.Value != v1 || got.Op != "" {
				e.Errorf("got %+v", got)
			}
			e.Must(e.Update(e.A, suite.Move(refA, v1, v2)))
		}},
		{"values of every kind are returned unchanged", everyValue},
		{"the error wraps that of the ended context", func(e *env) {
			ctx, cancel := context.WithCancel(e.Context())
			cancel()
			if _, err := e.A.Get(ctx, e.Project, []string{refA}); !errors.Is(err, context.Canceled) {
				e.Errorf("got %v", err)
			}
		}},
	}
}

func everyValue(e *env) {
	values := []driver.Value{
		v1, v1 + v1[:24], driver.Deleted, driver.Deleted256,
		"ref: refs/heads/main", "0", "1", "-1", "2147483648", "9223372036854775807", "1637000000000",
		" ", " x ", "x ", "a\nb\r\n\tc", `it's "quoted" \n \\ %s $1 @p ?`, "NULL", "'; --", "日本語 🚀 e\u0301 \u00e9",
		"{}", "[1]", driver.Value(strings.Repeat("x", driver.MaxValueBytes)), driver.Value(strings.Repeat("ü", driver.MaxValueBytes/2)),
	}
	var updates []driver.Update
	want := make(map[string]driver.Value)
	for i, v := range values {
		ref := fmt.Sprintf("refs/values/%02d", i)
		updates = append(updates, suite.Move(ref, "", v))
		want[ref] = v
	}
	e.Must(e.Update(e.A, updates...))
	e.WantRefs(want)

	// Each is what Old must be, to the byte.
	for i, u := range updates {
		if u.New.IsDeleted() {
			continue
		}
		e.WantMismatches(e.Update(e.B, suite.Move(u.Ref, u.New+"x", v2)), driver.Mismatch{Ref: u.Ref, Want: u.New + "x", Have: u.New})
		updates[i] = suite.Move(u.Ref, u.New, v2)
	}
	e.Must(e.Update(e.B, updates...))
}

func stateRows() []row {
	return []row{
		{"a state is the value and the lock of each ref that has one of them", func(e *env) {
			e.Must(e.Update(e.A, suite.Move(refA, "", v1), suite.Move(refB, "", v2), suite.Move("refs/dead", "", driver.Deleted)))
			l := e.Acquire(e.A, refB, refC)
			got := e.States(refA, refB, refC, "refs/dead", "refs/not/there")
			want := map[string]driver.Value{refA: v1, refB: v2, refC: driver.Unknown, "refs/dead": driver.Deleted}
			if len(got) != len(want) {
				e.Errorf("got %+v", got)
			}
			for ref, value := range want {
				s, ok := got[ref]
				if !ok || s.Value != value || (s.Lock != nil) != (ref == refB || ref == refC) {
					e.Errorf("%s is %+v (%v), want %q", ref, s, ok, value)
				}
				if s.Lock != nil && (s.Lock.Project != e.Project || s.Lock.Ref != ref || s.Lock.Owner != l.Owner || s.Lock.Token != l.Token ||
					s.Lock.StaleAfter != staleAfter || !s.Lock.Heartbeat.Equal(e.Row(ref).Heartbeat) || s.Lock.Age < 0 || s.Lock.Age > time.Hour) {
					e.Errorf("the lock on %s is %+v, want %+v", ref, s.Lock, l)
				}
			}
		}},
		{"states include stale locks and locks of intents", func(e *env) {
			e.Age(e.Acquire(e.A, refA), stale)
			e.Prepare(e.A, suite.Move(refB, "", v1))
			e.DB.InsertLock(e, driver.LockInfo{Project: e.Project, Ref: refC, Owner: gerrit, Age: 15 * time.Second})
			got := e.States(refA, refB, refC)
			if l := got[refA].Lock; l == nil || !l.Stale() || l.Age < stale {
				e.Errorf("got %+v", l)
			}
			if l := got[refB].Lock; l == nil || !l.Intended() || l.Stale() {
				e.Errorf("got %+v", l)
			}
			if l := got[refC].Lock; l == nil || l.StaleAfter != driver.DefaultStaleAfter || l.Owner != "gerrit" || l.Age < 15*time.Second {
				e.Errorf("got %+v", l)
			}
		}},
		{"states include no refs of other projects", func(e *env) {
			for _, p := range []string{"/b", "_", "A"} {
				r := e.PrepareRequest(e.A, suite.Move(refA, "", v1))
				r.Project += p
				_, err := e.SendPrepare(e.A, r)
				e.Must(err)
				e.Must(e.SendUpdate(e.A, driver.UpdateRequest{Project: e.Project + p, Updates: []driver.Update{suite.Move(refB, "", v1)}}))
			}
			if got := e.States(refA, refB); len(got) != 0 {
				e.Errorf("got %+v", got)
			}
		}},
		{"P10 every valid ref name has its state", func(e *env) {
			names := nastyRefs()
			e.Store(names)
			l := e.Acquire(e.A, "HEAD")
			got := e.States(names...)
			for _, name := range names {
				if s := got[name]; string(s.Value) != name || (s.Lock != nil) != (name == "HEAD") {
					e.Errorf("%q is %+v", name, s)
				}
			}
			if got["HEAD"].Lock.Token != l.Token || len(got) != len(names) {
				e.Errorf("got %d states of %d", len(got), len(names))
			}
		}},
		{"many states are returned at once", func(e *env) {
			names := suite.ManyNames(e.Scale(1000))
			e.Store(names[len(names)/4:])
			e.Acquire(e.A, names[:len(names)/2]...)
			got := e.States(names...)
			if len(got) != len(names) {
				e.Errorf("got %d states of %d", len(got), len(names))
			}
			for i, name := range names {
				if s := got[name]; (s.Lock != nil) != (i < len(names)/2) || (s.Value != driver.Unknown) != (i >= len(names)/4) {
					e.Fatalf("%s is %+v", name, s)
				}
			}
		}},
		{"a request whose context has ended returns its error", func(e *env) {
			ctx, cancel := context.WithCancel(e.Context())
			cancel()
			if _, err := e.A.States(ctx, e.Project, []string{refA}); !errors.Is(err, context.Canceled) {
				e.Errorf("got %v", err)
			}
		}},
	}
}
