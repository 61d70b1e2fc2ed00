package refdb_test

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
)

func TestCloseEndsAllReaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := inMemory(t)
		all := []*reading{follow(t, db, refdb.ChangeQuery{}), follow(t, db, refdb.ChangeQuery{Project: "p"})}
		settle()
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
		if feedRuns() {
			t.Error("the DB is closed, and the feed goes on")
		}
		synctest.Wait()
		for i, r := range all {
			if _, _, err := r.state(); !errors.Is(err, refdb.ErrClosed) {
				t.Errorf("reader %d ended with %v", i, err)
			}
		}
	})
}

func TestAnErrorEndsAllReaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db, d := observedInMemory(t)
		all := []*reading{follow(t, db, refdb.ChangeQuery{}), follow(t, db, refdb.ChangeQuery{}), follow(t, db, refdb.ChangeQuery{Project: "p"})}
		settle()
		failure := errors.New("a disk is full")
		d.set(func(driver.ChangesRequest, *driver.ChangesPage) error { return failure })
		settle()
		for i, r := range all {
			if _, _, err := r.state(); !errors.Is(err, failure) {
				t.Errorf("reader %d ended with %v", i, err)
			}
		}
	})
}

// Each looks up its own last change: the database may have been put back meanwhile.
func TestAfterAnOutageReadersGoOnWithTheirOwnCursors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db, d := observedInMemory(t)
		create(t, db, "refs/heads/a")
		p, q := follow(t, db, refdb.ChangeQuery{Project: "p"}), follow(t, db, refdb.ChangeQuery{Project: "q"})
		settle()
		if err := db.Update(t.Context(), "q", []refdb.Update{{Ref: "refs/heads/b", New: oldMain}}); err != nil {
			t.Fatal(err)
		}
		settle()
		d.set(func(driver.ChangesRequest, *driver.ChangesPage) error { return refdb.ErrUnavailable })
		settle()
		told, _, _ := p.state()
		settle()
		if now, _, err := p.state(); now != told || err != nil {
			t.Errorf("while the database is down a reader is told %d times how far it is, %v", now-told, err)
		}
		create(t, db, "refs/heads/c")
		d.set(func(r driver.ChangesRequest, page *driver.ChangesPage) error {
			if r.Last.Ref == "refs/heads/a" {
				page.LastFound = false
			}
			return nil
		})
		settle()
		if _, _, err := p.state(); !errors.Is(err, refdb.ErrRewound) {
			t.Errorf("who read what is gone: %v", err)
		}
		if _, _, err := q.state(); err != nil || q.refs() != "b" {
			t.Errorf("who did not: %q, %v", q.refs(), err)
		}
	})
}

// The database is asked about the last change of all, also if a reader brought it that came later.
func TestAChangeThatIsGoneEndsItsReaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db, d := observedInMemory(t)
		end, err := db.HistoryEnd(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		create(t, db, "refs/heads/a")
		behind, err := db.HistoryEnd(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		other := follow(t, db, refdb.ChangeQuery{After: knowingNoChange(t, behind)})
		settle()
		r := follow(t, db, refdb.ChangeQuery{Project: "p", After: end})
		settle()
		d.set(func(r driver.ChangesRequest, page *driver.ChangesPage) error {
			page.LastFound = page.LastFound && r.Last.Ref != "refs/heads/a"
			return nil
		})
		settle()
		if _, _, err := r.state(); !errors.Is(err, refdb.ErrRewound) {
			t.Errorf("it goes on: %v", err)
		}
		if _, _, err := other.state(); err != nil {
			t.Errorf("another one ended: %v", err)
		}
	})
}

// knowingNoChange returns a cursor as earlier programs made them at the end of the history.
func knowingNoChange(t *testing.T, c refdb.Cursor) refdb.Cursor {
	t.Helper()
	const prefix = "refdb-"
	var fields map[string]any
	text, err := base64.RawURLEncoding.DecodeString(strings.TrimPrefix(c.String(), prefix))
	if err == nil {
		err = json.Unmarshal(text, &fields)
	}
	if err != nil {
		t.Fatal(err)
	}
	delete(fields, "Last")
	text, _ = json.Marshal(fields)
	c, err = refdb.ParseCursor(prefix + base64.RawURLEncoding.EncodeToString(text))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Nothing was read yet, and still a cursor from the present is no good on a database that went
// back.
func TestWhoBeginsAtTheEndIsToldThatTheNewestChangeIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db, d := observedInMemory(t)
		create(t, db, "refs/heads/a")
		end, err := db.HistoryEnd(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		create(t, db, "refs/heads/b")
		d.set(func(_ driver.ChangesRequest, p *driver.ChangesPage) error {
			p.LastOp = "another" // of the same ref, at the same position
			return nil
		})
		r := follow(t, db, refdb.ChangeQuery{After: end})
		settle()
		if _, _, err := r.state(); !errors.Is(err, refdb.ErrRewound) || r.refs() != "" {
			t.Errorf("got %q, %v", r.refs(), err)
		}
	})
}

func TestAllReadersAreToldHowFarTheyAre(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := inMemory(t)
		all := []*reading{follow(t, db, refdb.ChangeQuery{}), follow(t, db, refdb.ChangeQuery{Project: "q"})}
		settle()
		create(t, db, "refs/heads/a")
		state, err := db.HistoryState(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for i, r := range all {
			before, _, _ := r.state()
			time.Sleep(10 * time.Second)
			if told, c, err := r.state(); told < before+5 || c.Position() != state.Upto || err != nil {
				t.Errorf("reader %d was told %d times in 10 s, and is at %d of %d; %v", i, told-before, c.Position(), state.Upto, err)
			}
		}
	})
}

// What one reader does with its changes is no matter of the others.
func TestReadersShareNoMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := inMemory(t)
		var all []*reading
		for range 10 {
			all = append(all, follow(t, db, refdb.ChangeQuery{}))
		}
		settle()
		create(t, db, "refs/heads/a", "refs/heads/b")
		settle()
		for _, r := range all {
			if got := r.refs(); got != "ab" {
				t.Errorf("it got %q", got)
			}
			r.mu.Lock()
			r.got[0].Ref, r.got[1].Ref = "x", "x"
			r.mu.Unlock()
		}
	})
}
