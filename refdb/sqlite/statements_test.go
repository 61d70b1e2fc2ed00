package sqlite_test

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/sqlite"
)

// recordStatements records the statements that a driver executes. take returns the statements
// recorded since its last call.
func recordStatements(d *sqlite.Driver) (take func() []string) {
	var mu sync.Mutex
	var statements []string
	d.Hook(func(query string) error {
		mu.Lock()
		defer mu.Unlock()
		statements = append(statements, query)
		return nil
	})
	return func() []string {
		mu.Lock()
		defer mu.Unlock()
		taken := statements
		statements = nil
		return taken
	}
}

// P8. A beat or release of any number of locks is one transaction, and so one write to the disk,
// with a function call for each lock.
func TestP8ACallIsOneTransactionOfABoundedNumberOfStatements(t *testing.T) {
	d, _ := open(t)
	statements := recordStatements(d)
	ctx := t.Context()
	for _, n := range []int{1, 1000} {
		refs := make([]string, n)
		updates := make([]driver.Update, n)
		for i := range refs {
			refs[i] = fmt.Sprintf("refs/%d/%04d", n, i)
			updates[i] = driver.Update{Ref: refs[i], New: v1}
		}
		var token driver.Token
		held := func() []driver.LockID {
			var all []driver.LockID
			for _, ref := range refs {
				all = append(all, driver.LockID{Project: project, Ref: ref, Owner: owner, Token: token})
			}
			return all
		}
		lock := func() error {
			r := request(owner, refs...)
			r.Nonce = "nonce"
			a, err := d.Acquire(ctx, r)
			token = a.Token
			return err
		}
		unlock := func() error { return release(ctx, d, owner, token, refs...) }
		prepare := func() error {
			p, err := d.Prepare(ctx, preparation(updates...))
			token = p.Token
			return err
		}
		refused := func() error {
			if _, err := d.Acquire(ctx, request(owner, refs...)); !errors.Is(err, driver.ErrLocked) {
				return fmt.Errorf("got %w", err)
			}
			return nil
		}
		waiter := driver.Waiter{ID: "w", Channel: "c", Turn: time.Minute}
		wait := func() error {
			r := request("waiter", refs...)
			r.Waiter = waiter
			a, err := d.Acquire(ctx, r)
			waiter.Place = a.Place
			if !errors.Is(err, driver.ErrLocked) {
				return fmt.Errorf("got %w", err)
			}
			return nil
		}
		// After the BEGIN of each write, and in reads of the history or of values with locks, the
		// driver checks the admitted file; before intents, it also checks their site.
		for _, e := range []struct {
			name string
			want int
			call func() error
		}{
			{"Acquire", 7, lock},             // BEGIN, read, read the mark, insert, set the mark, COMMIT
			{"Acquire, refused", 4, refused}, // BEGIN, read, COMMIT
			{"Acquire, refused again", 1, refused},
			{"Acquire, refused and given a place", 5 + n, wait}, // read, BEGIN, read, the places, COMMIT
			{"Acquire, refused with its place", 1, wait},
			{"Abandon of a waiter", 5 + n, func() error { // BEGIN, delete, read, the places, COMMIT
				return d.Abandon(ctx, driver.AbandonRequest{Project: project, Refs: refs, Owner: "waiter", Waiter: waiter.ID})
			}},
			{"Get", 1, func() error { _, err := d.Get(ctx, project, refs); return err }},
			{"List", 1, func() error { _, err := d.List(ctx, driver.RefQuery{Project: project, Limit: n}); return err }},
			{"Locks", 1, func() error { _, err := d.Locks(ctx, driver.LockQuery{Limit: n}); return err }},
			{"Update under a fence", 6, func() error { // BEGIN, fence, read, put, COMMIT
				return change(ctx, d, driver.UpdateRequest{Updates: updates, Fence: &driver.Fence{Refs: refs, Owner: owner, Token: token}})
			}},
			{"Beat", 3 + n, func() error { _, err := d.Beat(ctx, held()); return err }},
			{"Release", 3 + n, unlock},
			{"Acquire, after a refusal", 8, lock}, // read, and as above
			{"Abandon", 4, func() error {
				return d.Abandon(ctx, driver.AbandonRequest{Project: project, Refs: refs, Owner: owner, Nonce: "nonce"})
			}},
			{"Acquire again", 7, lock},
			{"Purge", 3 + n, func() error {
				var all []driver.StandingLock
				for _, l := range held() {
					all = append(all, driver.StandingLock{LockID: l})
				}
				purged, err := d.Purge(ctx, all)
				if slices.Contains(purged, false) {
					err = errors.New("a lock was not released")
				}
				return err
			}},
			{"Remove", 7, func() error { // BEGIN, locks, sign refs, delete refs, delete locks, COMMIT
				_, err := d.Remove(ctx, driver.RemoveRequest{Project: project, Limit: n})
				return err
			}},
			{"PurgeTombstones", 1, func() error {
				_, err := d.PurgeTombstones(ctx, driver.TombstoneRequest{Project: project, Limit: n, OlderThan: time.Hour})
				return err
			}},
			{"Prepare", 11, prepare}, // BEGIN, read, names, revocations, read the mark, insert locks, insert intents, set the mark, COMMIT
			{"Finish, nothing done", 7, func() error { // BEGIN, fence, drop locks, drop intents, COMMIT
				return d.Finish(ctx, driver.FinishRequest{Project: project, Origin: driver.Origin{Owner: owner}, Token: token, Dropped: refs})
			}},
			{"Prepare again", 11, prepare},
			{"Intents", 1, func() error { _, err := d.Intents(ctx, driver.IntentQuery{Limit: n}); return err }},
			// BEGIN, check the admitted file, read, ROLLBACK
			{"States", 4, func() error { _, err := d.States(ctx, project, refs); return err }},
			{"Finish", 9, func() error { // BEGIN, fence, read, put, drop locks, drop intents, COMMIT
				return d.Finish(ctx, driver.FinishRequest{Project: project, Origin: driver.Origin{Owner: owner}, Token: token, Done: updates})
			}},
			{"Prepare moves", 10, func() error { // no ref is created, so names need no check
				moves := slices.Clone(updates)
				for i := range moves {
					moves[i].Old, moves[i].New = v1, v2
				}
				p, err := d.Prepare(ctx, preparation(moves...))
				token = p.Token
				return err
			}},
			{"Finish, nothing done again", 7, func() error {
				return d.Finish(ctx, driver.FinishRequest{Project: project, Origin: driver.Origin{Owner: owner}, Token: token, Dropped: refs})
			}},
			{"Prepare with wrong old values", 6, func() error { // BEGIN, read, names, COMMIT
				if _, err := d.Prepare(ctx, preparation(updates...)); !errors.Is(err, driver.ErrMismatch) {
					return fmt.Errorf("got %w", err)
				}
				return nil
			}},
			{"Remove again", 7, func() error {
				_, err := d.Remove(ctx, driver.RemoveRequest{Project: project, Limit: n, Locks: driver.AdvisoryLocks})
				return err
			}},
			// BEGIN, the state, the rows, ROLLBACK
			{"Changes", 5, func() error { _, err := d.Changes(ctx, driver.ChangesRequest{Limit: n}); return err }},
			{"Changes, after the last one read", 6, func() error {
				_, err := d.Changes(ctx, driver.ChangesRequest{Limit: n, Last: driver.ChangeKey{Position: 1, Project: project, Ref: refs[0]}})
				return err
			}},
			{"Log", 5, func() error { _, err := d.Log(ctx, driver.LogRequest{Project: project, Limit: n}); return err }},
			{"Past", 5, func() error {
				_, err := d.Past(ctx, driver.PastRequest{RefQuery: driver.RefQuery{Project: project, Limit: n}, At: 1})
				return err
			}},
			{"Tip", 5, func() error { _, err := d.Tip(ctx, project); return err }},
			{"Newest", 5, func() error { _, _, err := d.Newest(ctx); return err }},
			{"PositionAt", 5, func() error { _, _, err := d.PositionAt(ctx, time.Now()); return err }},
			{"Prune", 7, func() error { // BEGIN, the least read position, read, delete, raise the mark, COMMIT
				p, err := d.Prune(ctx, driver.PruneRequest{Upto: math.MaxInt64, EvenUnread: math.MinInt64, Limit: n})
				if p.Deleted != n {
					err = fmt.Errorf("pruned %d, %w", p.Deleted, err)
				}
				return err
			}},
			{"Now", 0, func() error { _, err := d.Now(ctx); return err }},
		} {
			statements() // drops the statements of the step before
			if err := e.call(); err != nil {
				t.Fatalf("%s: %v", e.name, err)
			}
			ran := statements()
			commits := 0
			for _, s := range ran {
				if s == "COMMIT" {
					commits++
				}
			}
			if commits > 1 {
				t.Errorf("%s of %d: %d commits", e.name, n, commits)
			}
			if got := len(ran); got != e.want {
				t.Errorf("%s of %d: %d statements, want %d:\n%.2000s", e.name, n, got, e.want, strings.Join(ran, "\n"))
			}
		}
	}
}

func TestNoStatementScansMoreThanNecessary(t *testing.T) {
	d, _ := open(t)
	plans, err := d.Plans(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(plans) == 0 {
		t.Error("no plans were returned")
	}
	for query, plan := range plans {
		for line := range strings.Lines(plan) {
			line = strings.TrimSpace(line)
			constant := line == "SCAN CONSTANT ROW" || line == "SCAN one_row"        // not a table
			page := line == "SCAN name" || strings.HasPrefix(line, "SCAN (subquery") // the rows that the statement has found
			if strings.HasPrefix(line, "SCAN") && !strings.Contains(line, "VIRTUAL TABLE") && !constant && !page {
				t.Errorf("%s\nreads a whole table: %s", query, line)
			}
			// SQLite reports this for a search for a minimum that reads the index from its
			// beginning.
			if strings.HasPrefix(line, "SEARCH") && strings.Contains(line, " USING ") && !strings.Contains(line, "(") {
				t.Errorf("%s\nmay read a whole index: %s", query, line)
			}
			// A search by the project alone is right if the statement is about the whole project,
			// and in projects, which has one row for it.
			if strings.Contains(query, "json_each") && strings.HasSuffix(line, "(project=?)") && !strings.HasPrefix(line, "SEARCH projects ") {
				t.Errorf("%s\nreads a whole project: %s", query, line)
			}
		}
	}
}
