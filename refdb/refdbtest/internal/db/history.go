package db

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/operator"
	"github.com/globalrefdb/globalrefdb/refdb/refdbtest/internal/suite"
)

func historyRows() []row {
	return []row{
		{"a change names its process and its requester", func(e *env) {
			db := e.Open(refdb.Options{By: "alice@host"})
			e.Must(db.Update(e.Context(), e.Project, []driver.Update{suite.Move(refA, "", v1)}))
			e.Must(db.Update(e.Context(), e.Project, []driver.Update{suite.Move(refA, v1, v2)}, refdb.By("bob, the builder")))
			l := e.Hold(db, refA)
			e.Must(l.UpdateAndRelease(e.Context(), []driver.Update{suite.Move(refA, v2, v3)}, refdb.By("carol")))
			p, err := db.Intents().Prepare(e.Context(), e.Project, []driver.Update{suite.Move(refB, "", v1)}, agent)
			e.Must(err)
			e.Must(db.Intents().Finish(e.Context(), p, []string{refB}, nil))
			if _, err := db.Projects().Remove(e.Context(), e.Project); err != nil {
				e.Error(err)
			}
			var by []string
			for c, err := range db.History(e.Context(), e.Project, "") {
				e.Must(err)
				by = append(by, c.By)
				if c.Owner != db.Owner() {
					e.Errorf("%s was made by %q, want %q", suite.Said(c), c.Owner, db.Owner())
				}
			}
			slices.Reverse(by)
			if want := []string{"alice@host", "bob, the builder", "carol", "alice@host", "alice@host", "alice@host"}; !slices.Equal(by, want) {
				e.Errorf("made for %q, want %q", by, want)
			}
		}},
		{"a name that can't be recorded is refused before anything is written", func(e *env) {
			db := e.Open(refdb.Options{})
			for _, name := range []string{"a\nb", "\t", "\xff", strings.Repeat("x", 201)} {
				if err := db.Update(e.Context(), e.Project, []driver.Update{suite.Move(refA, "", v1)}, refdb.By(name)); !errors.Is(err, driver.ErrInvalid) {
					e.Errorf("%q: %v", name, err)
				}
			}
			e.WantLog()
		}},
		{"the past is known from the beginning of the history to the last complete position", func(e *env) {
			db := e.Open(refdb.Options{})
			e.Must(e.Update(e.A, suite.Move(refA, "", v1)))
			at := e.Complete()
			e.Must(e.Update(e.A, suite.Move(refA, v1, v2)))
			for position, want := range map[driver.Position]error{at: nil, -1: driver.ErrPruned, 1 << 61: driver.ErrInvalid} {
				var got []string
				var failed error
				for r, err := range db.RefsAt(e.Context(), e.Project, "refs/heads/", position) {
					if failed = err; err == nil {
						got = append(got, r.Name+" "+suite.Short(r.Value))
					}
				}
				if !errors.Is(failed, want) || want == nil && !slices.Equal(got, []string{refA + " 1"}) {
					e.Errorf("at %d: %v, %v", position, got, failed)
				}
			}
			if _, err := db.PositionAt(e.Context(), time.Now().Add(-1000*time.Hour)); !errors.Is(err, driver.ErrPruned) {
				e.Errorf("long before the history: %v", err)
			}
			now, err := db.Now(e.Context())
			e.Must(err)
			if got, err := db.PositionAt(e.Context(), now.Add(time.Hour)); err != nil || got < at {
				e.Errorf("the position in an hour is %d, %v", got, err)
			}
		}},
		{"a reader gets each change once, and continues at its cursor", func(e *env) {
			db := e.Open(refdb.Options{})
			begin, err := db.HistoryEnd(e.Context())
			e.Must(err)
			const n = 20
			go func() {
				old := driver.Unknown
				for i := range n {
					to := []driver.Value{v1, v2}[i%2]
					_ = e.Update(e.A, suite.Move(refA, old, to))
					old = to
				}
			}()
			var got []driver.Change
			for cursor := begin; len(got) < n; {
				for c, err := range db.Changes(e.Context(), refdb.ChangeQuery{Project: e.Project, After: cursor}) {
					e.Must(err)
					got = append(got, c.Changes...)
					cursor, err = driver.ParseCursor(c.Cursor.String())
					e.Must(err)
					if len(c.Changes) > 0 {
						break // and go on with another reader
					}
				}
			}
			if want := e.ReadLog(refA); !slices.Equal(got, want) {
				e.Errorf("got %s, want %s", suite.SaidAll(got), suite.SaidAll(want))
			}
			all := 0
			for c, err := range db.Changes(e.Context(), refdb.ChangeQuery{Project: e.Project}) {
				e.Must(err)
				if all += len(c.Changes); all >= n {
					break
				}
			}
			if all != n {
				e.Errorf("from the beginning there are %d changes", all)
			}
		}},
		{"a reader gets its progress even if nothing changes", func(e *env) {
			db := e.Open(refdb.Options{})
			begin, err := db.HistoryEnd(e.Context())
			e.Must(err)
			told := 0
			last := begin.Position()
			for c, err := range db.Changes(e.Context(), refdb.ChangeQuery{Project: e.Project, After: begin}) {
				e.Must(err)
				if len(c.Changes) > 0 || c.Cursor.Position() < last {
					e.Errorf("from %d: %+v", last, c)
				}
				if told++; told == 2 {
					break
				}
			}
		}},
		{"a hundred readers that have caught up share one reader of the database, and get each change once", suite.Long(func(e *env) {
			d := e.Faulty()
			db := e.OpenOn(d, refdb.Options{})
			begin, err := db.HistoryEnd(e.Context())
			e.Must(err)
			const readers = 100
			caughtUp, received := make(chan error, readers), make(chan []driver.Change, readers)
			for range readers {
				go func() {
					var got []driver.Change
					told := false
					for c, err := range db.Changes(e.Context(), refdb.ChangeQuery{Project: e.Project, After: begin}) {
						if !told {
							told = true
							caughtUp <- err
						}
						if got = append(got, c.Changes...); err != nil || len(got) >= 2 {
							break
						}
					}
					received <- got
				}()
			}
			for range readers {
				e.Must(suite.Receive(e, caughtUp, "a reader has caught up"))
			}
			// From now on the row lets each request through.
			asked, through := make(chan struct{}, readers), make(chan struct{})
			defer close(through)
			d.Inject(func(c suite.Call) error {
				if c.Method == "Changes" {
					asked <- struct{}{}
					<-through
				}
				return c.Do()
			})
			suite.Receive(e, asked, "changes are asked for")
			e.Must(e.Update(e.A, suite.Move(refA, "", v1), suite.Move(refB, "", v1)))
			e.Complete()
			through <- struct{}{}
			more := 0
			for n := 0; n < readers; {
				select {
				case got := <-received:
					if n++; suite.SaidAll(got) != suite.SaidAll(e.ReadLog("")) {
						e.Errorf("a reader got %s", suite.SaidAll(got))
					}
				case <-asked:
					more++
					through <- struct{}{}
				case <-time.After(e.Patience()):
					e.Fatal("a reader got nothing")
				}
			}
			if more >= readers/2 {
				e.Errorf("for one page the database was asked %d times", more+1)
			}
		})},
		{"a reader ends with its context", func(e *env) {
			db := e.Open(refdb.Options{})
			ctx, cancel := context.WithCancel(e.Context())
			cancel()
			for _, err := range db.Changes(ctx, refdb.ChangeQuery{}) {
				if !errors.Is(err, context.Canceled) {
					e.Errorf("%v", err)
				}
			}
		}},
		{"a cursor is valid only for the history from which it was read", func(e *env) {
			db := e.Open(refdb.Options{})
			e.Must(e.Update(e.A, suite.Move(refA, "", v1)))
			var cursor driver.Cursor
			for c, err := range db.Changes(e.Context(), refdb.ChangeQuery{Project: e.Project}) {
				e.Must(err)
				if cursor = c.Cursor; len(c.Changes) > 0 {
					break
				}
			}
			read := func(text string) error {
				e.Helper()
				cursor, err := driver.ParseCursor(text)
				if err != nil {
					return err
				}
				for _, err := range db.Changes(e.Context(), refdb.ChangeQuery{Project: e.Project, After: cursor}) {
					return err
				}
				return nil
			}
			text := cursor.String()
			e.Must(read(text))
			op := e.ReadLog(refA)[0].Op
			for _, c := range []struct {
				name, old, new string
				want           error
			}{
				{"of another database", `"Epoch":"`, `"Epoch":"x`, driver.ErrRewound},
				{"behind a change that is gone", refA, refB, driver.ErrRewound},
				{"behind another change", `"Op":"` + op, `"Op":"x` + op, driver.ErrRewound},
				{"of the future", fmt.Sprintf(`"Mark":{"Position":%d`, cursor.Position()+1), `"Mark":{"Position":2305843009213693952`, driver.ErrRewound},
				{"before the beginning", fmt.Sprintf(`"Mark":{"Position":%d`, cursor.Position()+1), `"Mark":{"Position":-5`, driver.ErrPruned},
				{"of another version", `"Version":1`, `"Version":2`, driver.ErrInvalid},
			} {
				if err := read(edited(e, text, c.old, c.new)); !errors.Is(err, c.want) {
					e.Errorf("a cursor %s: %v, want %v", c.name, err, c.want)
				}
			}
			for _, text := range []string{"x", text[1:], text[:len(text)-5], "refdb-", "refdb-e30"} {
				if _, err := driver.ParseCursor(text); !errors.Is(err, driver.ErrInvalid) {
					e.Errorf("%s: %v", text, err)
				}
			}
			for _, q := range []refdb.ChangeQuery{{Prefix: refA}, {Project: "RECLAIM_x"}, {Project: "p", Prefix: "\x00"}} {
				for _, err := range db.Changes(e.Context(), q) {
					if !errors.Is(err, driver.ErrInvalid) {
						e.Errorf("%+v: %v", q, err)
					}
				}
			}
		}},
	}
}

// edited returns a cursor's text with another part.
func edited(e *env, text, old, new string) string {
	e.Helper()
	encoded, _ := strings.CutPrefix(text, "refdb-")
	decoded, err := base64.RawURLEncoding.DecodeString(encoded)
	e.Must(err)
	if !strings.Contains(string(decoded), old) {
		e.Fatalf("no %s in %s", old, decoded)
	}
	return "refdb-" + base64.RawURLEncoding.EncodeToString([]byte(strings.Replace(string(decoded), old, new, 1)))
}

// What is pruned is pruned in all projects: this topic has a database of its own.
func pruneRows() []row {
	return []row{{"old changes are pruned except unread ones, and a late reader gets an error", func(e *env) {
		db := e.Open(refdb.Options{})
		begin, err := db.HistoryEnd(e.Context())
		e.Must(err)
		for _, v := range [][2]driver.Value{{"", v1}, {v1, v2}, {v2, v3}} {
			e.Must(e.Update(e.A, suite.Move(refA, v[0], v[1])))
		}
		e.Complete()
		prune := func(o operator.PruneOptions) int {
			e.Helper()
			n, err := db.Operator().PruneHistory(e.Context(), o)
			e.Must(err)
			return n
		}
		if n := prune(operator.PruneOptions{OlderThan: time.Hour}); n != 0 {
			e.Errorf("%d young changes were pruned", n)
		}
		e.Must(e.A.PutFollower(e.Context(), driver.Follower{Name: "f", Cursor: begin.String(), Read: begin.Position()}))
		if n := prune(operator.PruneOptions{}); n != 0 {
			e.Errorf("%d unread changes were pruned", n)
		}
		if n := prune(operator.PruneOptions{EvenUnread: time.Hour}); n != 0 {
			e.Errorf("%d unread young changes were pruned", n)
		}
		if n := prune(operator.PruneOptions{EvenUnread: time.Nanosecond, Keep: 1}); n != 2 {
			e.Errorf("%d changes were pruned though unread, but the last", n)
		}
		e.WantLog("a 2>3")
		for _, err := range db.Changes(e.Context(), refdb.ChangeQuery{After: begin}) {
			if !errors.Is(err, driver.ErrPruned) {
				e.Errorf("a reader who comes too late: %v", err)
			}
			break
		}
		for _, o := range []operator.PruneOptions{{OlderThan: -1}, {Keep: -1}, {EvenUnread: -1}} {
			if _, err := db.Operator().PruneHistory(e.Context(), o); !errors.Is(err, driver.ErrInvalid) {
				e.Errorf("%+v: %v", o, err)
			}
		}
	}}}
}
