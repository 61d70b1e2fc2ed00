package postgres_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/test/dbtest"
)

func openDB(t *testing.T, s *dbtest.PostgresServer) *refdb.DB {
	t.Helper()
	db, err := refdb.New(open(t, s.URL()), refdb.Options{Site: "eu"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

// olderCursor returns the cursor that a program of version 10 of the schema would have printed
// instead of c: its mark is the last position that has ended.
func olderCursor(t *testing.T, c driver.Cursor, ended driver.Position) driver.Cursor {
	t.Helper()
	const prefix = "refdb-"
	decoded, err := base64.RawURLEncoding.DecodeString(strings.TrimPrefix(c.String(), prefix))
	var fields map[string]any
	if err == nil {
		err = json.Unmarshal(decoded, &fields)
	}
	if err != nil {
		t.Fatal(err)
	}
	delete(fields, "Durable")
	fields["Mark"] = driver.ChangeKey{Position: ended + 1}
	encoded, err := json.Marshal(fields)
	if err == nil {
		c, err = driver.ParseCursor(prefix + base64.RawURLEncoding.EncodeToString(encoded))
	}
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// After a crash, the server reuses IDs of transactions that no client waited for. Changes then have
// positions that had ended before.
func TestAReaderMissesNoChangeAfterACrashWithoutLoss(t *testing.T) {
	t.Parallel()
	s := dbtest.StartPostgres(t)
	db, writer := openDB(t, s), openDB(t, s)
	create := func(refs ...string) {
		t.Helper()
		for _, name := range refs {
			project, ref, _ := strings.Cut(name, " ")
			// The first writer after a crash compares the database with the changes that its
			// process knows.
			if err := writer.Update(t.Context(), project, []driver.Update{{Ref: "refs/heads/" + ref, New: "x"}}); err != nil {
				t.Fatal(err)
			}
		}
	}
	create("q zero", "p zero")
	newest := newestOf(t, db, "p")
	queries := map[string]refdb.ChangeQuery{"of all": {}, "of p": {Project: "p"}, "of q": {Project: "q"}, "of a prefix": {Project: "q", Prefix: "refs/heads/b"}}
	readers := make(map[string]refdb.ChangeQuery)
	following := make(map[string]chan []string)
	var past driver.Position
	s.ReuseIDs(40, func() {
		state, err := db.HistoryState(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if state.Ended < newest+40 {
			t.Fatalf("40 transactions have ended since the last change: %+v", state)
		}
		past = state.Upto
		end, err := db.HistoryEnd(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for name, q := range queries {
			c := lastCursor(t, db, q)
			for kind, c := range map[string]driver.Cursor{"that read all": c, "from the end": end, "of the older program": olderCursor(t, c, state.Ended)} {
				q.After = c
				readers["a reader "+name+" "+kind] = q
			}
		}
		for name, q := range readers {
			if strings.HasSuffix(name, "that read all") {
				following[name] = follow(t, db, q)
			}
		}
	})

	wanted := func(q refdb.ChangeQuery, refs ...string) []string {
		return slices.DeleteFunc(slices.Clone(refs), func(name string) bool {
			project, ref, _ := strings.Cut(name, " ")
			return q.Project != "" && project != q.Project || !strings.HasPrefix("refs/heads/"+ref, q.Prefix)
		})
	}
	check := func(refs ...string) {
		t.Helper()
		for name, q := range readers {
			want := wanted(q, refs...)
			if got, err := changesTo(t, db, q); err != nil || !slices.Equal(got, want) {
				t.Errorf("%s got %q, %v, want %q", name, got, err, want)
			}
		}
	}
	check()
	created := []string{"p b1", "q b2", "p b3", "q b4"}
	create(created...)
	if at := newestOf(t, db, "q"); at > newest+40 {
		t.Fatalf("the last change should have a position that had ended before the crash, at most %d, but has %d", newest+40, at)
	}
	check(created...)
	s.UseIDs(60)
	created = append(created, "p later", "q later")
	create(created[4:]...)
	check(created...)
	for name, got := range following {
		want := wanted(readers[name], created...)
		for i, ref := range want {
			if changes := <-got; changes[0] != ref {
				t.Errorf("%s, across the crash, got %q, want %q of %q", name, changes, ref, want[i:])
				break
			}
		}
	}

	var then []string
	for ref, err := range db.RefsAt(t.Context(), "p", "", past) {
		if err != nil {
			t.Fatal(err)
		}
		then = append(then, ref.Name)
	}
	if !slices.Equal(then, []string{"refs/heads/zero"}) {
		t.Errorf("at position %d, which was the last complete one before the crash, the refs are now %q", past, then)
	}
}

// lastCursor returns the cursor of a reader that has read all changes.
func lastCursor(t *testing.T, db *refdb.DB, q refdb.ChangeQuery) driver.Cursor {
	t.Helper()
	for page, err := range db.Changes(t.Context(), q) {
		if err != nil {
			t.Fatal(err)
		}
		if len(page.Changes) == 0 {
			return page.Cursor
		}
	}
	panic("not reached")
}

// changesTo returns the changes that a reader gets until it has read all of them.
func changesTo(t *testing.T, db *refdb.DB, q refdb.ChangeQuery) (got []string, err error) {
	t.Helper()
	end, err := db.HistoryEnd(t.Context())
	if err != nil {
		return nil, err
	}
	for page, err := range db.Changes(t.Context(), q) {
		if err != nil {
			return got, err
		}
		got = append(got, named(page.Changes)...)
		if page.Cursor.Position() >= end.Position() {
			break
		}
	}
	return got, nil
}

func named(changes []driver.Change) (names []string) {
	for _, c := range changes {
		names = append(names, c.Project+" "+strings.TrimPrefix(c.Ref, "refs/heads/"))
	}
	return names
}

// follow sends the changes that a reader gets, one by one, and its error.
func follow(t *testing.T, db *refdb.DB, q refdb.ChangeQuery) chan []string {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	got, ended := make(chan []string, 100), make(chan struct{})
	t.Cleanup(func() { stop(); <-ended })
	go func() {
		defer close(ended)
		for page, err := range db.Changes(ctx, q) {
			if err != nil {
				got <- []string{fmt.Sprint(err)}
				return
			}
			for _, name := range named(page.Changes) {
				got <- []string{name}
			}
		}
	}()
	return got
}

func TestAPositionThatIsNotDurableIsInTheFuture(t *testing.T) {
	t.Parallel()
	db := dbtest.Postgres(t)
	d, err := refdb.New(open(t, db.URL()), refdb.Options{Site: "eu"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	if err := d.Update(t.Context(), "p", []driver.Update{{Ref: "refs/heads/a", New: "x"}}); err != nil {
		t.Fatal(err)
	}
	newest := newestOf(t, d, "p")
	c := session(t, db.URL())
	for ended := newest; ended <= newest; { // transactions of other tests hold the position back
		query[string](t, c, "SELECT pg_current_xact_id()::text")
		s, err := d.HistoryState(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		ended = s.Ended
	}
	for at, want := range map[driver.Position]error{newest: nil, newest + 1: driver.ErrInvalid} {
		var err error
		for _, failed := range d.RefsAt(t.Context(), "p", "", at) {
			err = failed
		}
		if !errors.Is(err, want) {
			t.Errorf("the refs at %d, the last change is at %d: %v, want %v", at, newest, err, want)
		}
	}
}

// newestOf returns the position of a project's last change.
func newestOf(t *testing.T, db *refdb.DB, project string) driver.Position {
	t.Helper()
	for c, err := range db.History(t.Context(), project, "") {
		if err != nil {
			t.Fatal(err)
		}
		return c.Position
	}
	t.Fatalf("%s has no change", project)
	return 0
}

// Readers see a change once it is committed. If a crash could undo the change, its position would
// be used again.
func TestChangesOfEveryProgramAreDurable(t *testing.T) {
	t.Parallel()
	db := dbtest.Postgres(t)
	c := session(t, db.URL())
	exec(t, c, `CREATE TABLE at_commit (setting text)`)
	exec(t, c, `CREATE FUNCTION note_setting() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN INSERT INTO at_commit VALUES (current_setting(''synchronous_commit'')); RETURN NULL; END'`)
	exec(t, c, `CREATE CONSTRAINT TRIGGER note_setting AFTER INSERT OR UPDATE OR DELETE ON refs DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION note_setting()`)
	for setting, want := range map[string]string{"off": "on", "local": "on", "remote_write": "on", "on": "on", "remote_apply": "remote_apply"} {
		exec(t, c, `SET synchronous_commit = `+setting)
		for _, sql := range []string{
			`INSERT INTO refs (project, ref, value) VALUES ('p', 'refs/heads/a', '1')`,
			`UPDATE refs SET value = '2' WHERE project = 'p'`,
			`DELETE FROM refs WHERE project = 'p'`,
		} {
			tx, err := c.Begin(t.Context())
			if err == nil {
				_, err = tx.Exec(t.Context(), sql)
			}
			if err == nil {
				_, err = tx.Exec(t.Context(), `CREATE TEMPORARY TABLE other (x int) ON COMMIT DROP`) // later statements don't affect it
			}
			if err == nil {
				err = tx.Commit(t.Context())
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := query[string](t, c, `DELETE FROM at_commit RETURNING setting`); !slices.Equal(got, []string{want}) {
				t.Errorf("%s with synchronous_commit = %s is committed with %q, want %q", sql, setting, got, want)
			}
			if got := query[string](t, c, `SHOW synchronous_commit`); got[0] != setting {
				t.Errorf("after the commit it is %q, and was %q", got[0], setting)
			}
		}
	}
}
