package sqlite_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/sqlite"
)

// said returns all changes of the project, oldest first, as "ref old>new op", with "-" for no row
// and for no operation.
func said(t *testing.T, d *sqlite.Driver) string {
	t.Helper()
	page, err := d.Log(t.Context(), driver.LogRequest{Project: project, Limit: 1000})
	if err != nil {
		t.Fatal(err)
	}
	orNone := func(s string) string {
		if s == "" {
			return "-"
		}
		return s
	}
	var all []string
	for _, c := range slices.Backward(page.Changes) {
		all = append(all, fmt.Sprintf("%s %s>%s %s", strings.TrimPrefix(c.Ref, "refs/heads/"), orNone(string(c.Old)), orNone(string(c.New)), orNone(c.Op)))
	}
	return strings.Join(all, ", ")
}

// Each statement writes in its own way to "a", which holds X since operation "one".
func TestEveryWriteOfTheTableIsRecordedWithTheOldValue(t *testing.T) {
	const zeros = "0000000000000000000000000000000000000000"
	for name, c := range map[string]struct {
		write []string
		want  string
	}{
		"an insert":                         {[]string{`INSERT INTO refs (project, ref, value, op) VALUES ('project', 'refs/heads/b', 'Y', 'two')`}, "b ->Y two"},
		"an insert without an operation":    {[]string{`INSERT INTO refs (project, ref, value) VALUES ('project', 'refs/heads/b', 'Y')`}, "b ->Y -"},
		"an upsert":                         {[]string{`INSERT INTO refs (project, ref, value, op) VALUES ('project', 'refs/heads/a', 'Y', 'two') ON CONFLICT DO UPDATE SET value = excluded.value, op = excluded.op`}, "a X>Y two"},
		"an upsert that keeps op":           {[]string{`INSERT INTO refs (project, ref, value) VALUES ('project', 'refs/heads/a', 'Y') ON CONFLICT DO UPDATE SET value = excluded.value`}, "a X>Y -"},
		"a program of the previous version": {[]string{`INSERT OR REPLACE INTO refs (project, ref, value, time, op) VALUES ('project', 'refs/heads/a', 'Y', 5, 'two')`}, "a X>Y two"},
		"a decision by a program of the previous version": {
			[]string{`INSERT OR REPLACE INTO refs (project, ref, value, time) VALUES ('project', 'refs/heads/a', 'Y', 5)`}, "a X>Y -",
		},
		"a program of the previous version, several refs": {
			[]string{`INSERT OR REPLACE INTO refs (project, ref, value, time, op) VALUES ('project', 'refs/heads/a', 'Y', 5, 'two'), ('project', 'refs/heads/b', 'Y', 5, 'two'), ('project', 'refs/heads/a', 'Z', 5, 'two')`},
			"a X>Y two, b ->Y two, a Y>Z two",
		},
		"a replacement with recursive triggers": {
			[]string{`PRAGMA recursive_triggers = on`, `INSERT OR REPLACE INTO refs (project, ref, value, op) VALUES ('project', 'refs/heads/a', 'Y', 'two')`}, "a X>- -, a ->Y two",
		},
		"an ignored insert, and another one": {
			[]string{
				`INSERT OR IGNORE INTO refs (project, ref, value, op) VALUES ('project', 'refs/heads/a', 'Y', 'two')`,
				`INSERT INTO refs (project, ref, value, op) VALUES ('project', 'refs/heads/b', 'Y', 'two')`,
			}, "b ->Y two",
		},
		"an update":                   {[]string{`UPDATE refs SET value = 'Y', op = 'two'`}, "a X>Y two"},
		"an update of one value":      {[]string{`UPDATE refs SET value = 'Y'`}, "a X>Y -"},
		"an update to the same value": {[]string{`UPDATE refs SET value = 'X'`}, "a X>X -"},
		"an update of other columns":  {[]string{`UPDATE refs SET time = 7, op = 'two'`}, ""},
		"a removal":                   {[]string{`DELETE FROM refs`}, "a X>- -"},
		"a removal, and another row": {
			[]string{`DELETE FROM refs`, `INSERT INTO refs (project, ref, value) VALUES ('project', 'refs/heads/a', 'Y')`}, "a X>- -, a ->Y -",
		},
		"a tombstone is purged, and its ref set again": {
			[]string{`UPDATE refs SET value = '` + zeros + `'`, `DELETE FROM refs`, `INSERT OR REPLACE INTO refs (project, ref, value) VALUES ('project', 'refs/heads/a', 'Y')`},
			"a X>" + zeros + " -, a ->Y -",
		},
		"zeros of another length are a value": {[]string{`UPDATE refs SET value = '000'`, `DELETE FROM refs`}, "a X>000 -, a 000>- -"},
		"an update that is rolled back":       {[]string{`SAVEPOINT s`, `UPDATE refs SET value = 'Y'`, `ROLLBACK TO s`, `RELEASE s`}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			d, _ := open(t)
			if err := change(t.Context(), d, driver.UpdateRequest{Origin: driver.Origin{ID: "one"}, Updates: []driver.Update{{Ref: refA, New: "X"}}}); err != nil {
				t.Fatal(err)
			}
			before, err := d.Now(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if err := d.Write(t.Context(), func(exec func(string, ...any) error) error {
				for _, statement := range c.write {
					if err := exec(statement); err != nil {
						return fmt.Errorf("%s: %w", statement, err)
					}
				}
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			want := "a ->X one"
			if c.want != "" {
				want += ", " + c.want
			}
			if got := said(t, d); got != want {
				t.Errorf("recorded %s\nwant     %s", got, want)
			}
			page, err := d.Changes(t.Context(), driver.ChangesRequest{Limit: 100})
			if err != nil {
				t.Fatal(err)
			}
			var last driver.Position
			for i, c := range page.Changes {
				if c.Op != "two" && c.Position <= last {
					t.Errorf("%d follows position %d: %+v", i, last, c)
				}
				last = c.Position
				// For statements without a time, it is the database's time in milliseconds.
				if i > 0 && c.Op == "" && c.Time.UnixMicro() != 5 && c.Time.Before(before.Truncate(time.Millisecond)) {
					t.Errorf("%+v was made after %s", c, before)
				}
			}
			if page.State.Upto != last {
				t.Errorf("complete up to %d, the last is %d", page.State.Upto, last)
			}
		})
	}
}

func TestTheNameOfARowCannotBeChanged(t *testing.T) {
	d, _ := open(t)
	update(t, d, refA, "", v1)
	for _, statement := range []string{`UPDATE refs SET ref = 'refs/heads/b'`, `UPDATE OR REPLACE refs SET project = 'other', value = 'x'`} {
		err := d.Write(t.Context(), func(exec func(string, ...any) error) error { return exec(statement) })
		if err == nil || !strings.Contains(err.Error(), "insert a row and delete the other") {
			t.Errorf("%s: %v", statement, err)
		}
	}
	write(t, d, `UPDATE refs SET ref = ref, value = value`)
	if got, want := said(t, d), "a ->"+string(v1)+" op, a "+string(v1)+">"+string(v1)+" -"; got != want {
		t.Errorf("recorded %s", got)
	}
}

// A ref may change several times in one commit.
func TestRequestsThatShareACommitHavePositionsOfTheirOwn(t *testing.T) {
	d, _ := open(t)
	both := func(id string, from, to driver.Value) func() error {
		return func() error {
			return change(t.Context(), d, driver.UpdateRequest{
				Origin: driver.Origin{ID: id}, Updates: []driver.Update{{Ref: refA, Old: from, New: to}, {Ref: refB, Old: from, New: to}},
			})
		}
	}
	executed := record(d, nothing)
	refused := both("refused", v1, v2)
	if errs := together(t, d, both("one", "", v1), both("two", v1, v2), refused, both("three", v2, v1)); errors.Join(errs[0], errs[1], errs[3]) != nil || !errors.Is(errs[2], driver.ErrMismatch) {
		t.Fatal(errs)
	}
	if n := times(executed(), "COMMIT"); n != 2 { // the one that was waited for, and one more
		t.Fatalf("%d commits", n)
	}
	page, err := d.Changes(t.Context(), driver.ChangesRequest{Project: project, Limit: 10})
	if err != nil || len(page.Changes) != 6 {
		t.Fatalf("%+v, %v", page, err)
	}
	first := page.Changes[0].Position
	for i, c := range page.Changes {
		if want := first + driver.Position(i/2); c.Position != want || c.Op != []string{"one", "two", "three"}[i/2] || c.Ref != []string{refA, refB}[i%2] {
			t.Errorf("change %d: %+v, want position %d", i, c, want)
		}
	}
}

// Each chunk is a transaction: its changes come after those that readers may already have read.
func TestTheChunksOfARemovalHavePositionsOfTheirOwn(t *testing.T) {
	d, _ := open(t)
	now := time.Now()
	d.SetClock(func() time.Time { now = now.Add(time.Microsecond); return now })
	for _, ref := range []string{"refs/1", "refs/2", "refs/3"} {
		update(t, d, ref, "", v1)
	}
	for i, want := range []int{2, 1} {
		before, err := d.HistoryState(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		n, err := d.Remove(t.Context(), driver.RemoveRequest{Origin: driver.Origin{ID: "remove", By: "x"}, Project: project, Limit: 2})
		if n != want || err != nil {
			t.Fatalf("removed %d, %v", n, err)
		}
		page, err := d.Changes(t.Context(), driver.ChangesRequest{After: driver.ChangeKey{Position: before.Upto + 1}, Limit: 10})
		if err != nil || len(page.Changes) != want {
			t.Fatalf("chunk %d: %+v, %v", i, page, err)
		}
		for _, c := range page.Changes {
			if c.Position != before.Upto+1 || c.Op != "remove" || c.By != "x" || c.New != driver.Unknown || c.Time.UnixMicro() != now.UnixMicro() {
				t.Errorf("chunk %d: %+v", i, c)
			}
		}
	}
}

// In these cases a write must fail rather than go unrecorded.
func TestNothingIsWrittenIfItCannotBeRecorded(t *testing.T) {
	for _, damage := range []string{`DELETE FROM history_state`, `DROP TABLE history`, `DROP VIEW new_change`} {
		d, _ := open(t)
		update(t, d, refA, "", v1)
		write(t, d, damage)
		for _, err := range []error{
			put(t.Context(), d, refA, v1, v2), put(t.Context(), d, refB, "", v1),
			func() error {
				_, err := d.Remove(t.Context(), driver.RemoveRequest{Project: project, Limit: 10})
				return err
			}(),
		} {
			if err == nil {
				t.Errorf("%s: no error", damage)
			}
		}
		if got := value(t, d, refA); got != v1 {
			t.Errorf("%s: the ref holds %q", damage, got)
		}
	}
}

func TestDiagnoseFindsThatWritesAreNotRecorded(t *testing.T) {
	for _, trigger := range []string{"history_replaced", "history_inserted", "history_updated", "history_deleted", "history_renamed"} {
		d, _ := open(t)
		write(t, d, "DROP TRIGGER "+trigger)
		if got := faults(t, d)["tables"]; !strings.Contains(got, "there is no trigger "+trigger+" on refs") {
			t.Errorf("found %q", got)
		}
	}
}
