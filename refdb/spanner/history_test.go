package spanner_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/spanner"
	"github.com/globalrefdb/globalrefdb/test/dbtest"
)

// logOf returns the changes of project, newest first.
func logOf(tb testing.TB, d driver.Driver) []driver.Change {
	tb.Helper()
	page, err := d.Log(tb.Context(), driver.LogRequest{Project: project, Limit: 1000})
	must(tb, err)
	return page.Changes
}

// past returns the values of refs of project at a position, as "name=first digit".
func past(tb testing.TB, d driver.Driver, at driver.Position, prefix string) (string, error) {
	tb.Helper()
	page, err := d.Past(tb.Context(), driver.PastRequest{RefQuery: driver.RefQuery{Project: project, Prefix: prefix, Limit: 10}, At: at})
	var all []string
	for _, r := range page.Refs {
		all = append(all, fmt.Sprintf("%s=%.1s", strings.TrimPrefix(r.Name, "refs/heads/"), r.Value))
	}
	return strings.Join(all, " "), err
}

func upto(tb testing.TB, d driver.Driver) driver.Position {
	tb.Helper()
	s, err := d.HistoryState(tb.Context())
	must(tb, err)
	return s.Upto
}

func TestAChangeHasThePositionOfItsRow(t *testing.T) {
	t.Parallel()
	d := dbtest.Spanner(t).Open(t)
	must(t, update(t, d, "u", move(branch, "", v1)))
	c, row := logOf(t, d)[0], get(t, d, branch)
	if !c.Time.Equal(row.Time) || int64(c.Position) != row.Time.UnixMicro() {
		t.Errorf("%+v, the row has the time %s", c, row.Time)
	}
}

func TestLostReplyAboutAChangeLeavesOneRecord(t *testing.T) {
	t.Parallel()
	w := &wire{}
	d := openWire(t, dbtest.Spanner(t), w)
	loseReply(w, codes.Internal)
	if err := update(t, d, "u", move(branch, "", v1)); !errors.Is(err, driver.ErrOutcomeUnknown) {
		t.Fatal(err)
	}
	must(t, update(t, d, "u", move(branch, "", v1)))
	p := prepare(t, d, "n", "HEAD")
	loseReply(w, codes.Internal)
	if err := d.Finish(t.Context(), finishing(p, "HEAD")); !errors.Is(err, driver.ErrOutcomeUnknown) {
		t.Fatal(err)
	}
	must(t, d.Finish(t.Context(), finishing(p, "HEAD")))
	if all := logOf(t, d); len(all) != 2 || all[0].Op != "finish" || all[1].Op != "u" {
		t.Errorf("%+v", all)
	}
}

// Gerrit's plugin writes refs without a record.
func TestThePastOfARefChangedByGerritIsReportedOnlyWhereKnown(t *testing.T) {
	t.Parallel()
	const other = "refs/heads/other"
	for _, row := range []struct {
		name   string
		gerrit func(*testing.T, *dbtest.Database) // runs after the library's change
		after  func(*testing.T, driver.Driver)    // unless nil, makes another change by the library
		want   string                             // the final value
		before bool                               // the values before the plugin's change are known, too
	}{
		{
			name:   "a value that was replaced",
			gerrit: func(t *testing.T, db *dbtest.Database) { db.InsertRef(t, project, branch, v2) },
			want:   "main=2 other=1",
		}, {
			name:   "the same value again",
			gerrit: func(t *testing.T, db *dbtest.Database) { db.InsertRef(t, project, branch, v1) },
			want:   "main=1 other=1",
		}, {
			name:   "a value that was replaced by a recorded one",
			gerrit: func(t *testing.T, db *dbtest.Database) { db.InsertRef(t, project, branch, v2) },
			after:  func(t *testing.T, d driver.Driver) { must(t, update(t, d, "u2", move(branch, v2, v1))) },
			want:   "main=1 other=1",
		}, {
			name:   "a deleted row",
			gerrit: func(t *testing.T, db *dbtest.Database) { db.Exec(t, `DELETE FROM refs WHERE ref = 'refs/heads/main'`) },
			want:   "unknown",
		}, {
			name:   "a ref of another name",
			gerrit: func(t *testing.T, db *dbtest.Database) { db.InsertRef(t, project, "refs/heads/z", v2) },
			after:  func(t *testing.T, d driver.Driver) { must(t, update(t, d, "u2", move("refs/heads/z", v2, v1))) },
			want:   "main=1 other=1 z=1",
			before: true,
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			db := dbtest.Spanner(t)
			d := db.Open(t)
			begin := upto(t, d)
			must(t, update(t, d, "u", move(branch, "", v1), move(other, "", v1)))
			recorded := upto(t, d)
			row.gerrit(t, db)
			if row.after != nil {
				row.after(t, d)
			}
			wantPast := func(at driver.Position, prefix, want string) {
				t.Helper()
				got, err := past(t, d, at, prefix)
				if want == "unknown" {
					if !errors.Is(err, driver.ErrUnrecorded) || !strings.Contains(err.Error(), branch) || driver.ClassOf(err) != driver.Permanent {
						t.Errorf("at %d: %q, %v", at, got, err)
					}
				} else if err != nil || got != want {
					t.Errorf("at %d: %q, %v, want %q", at, got, err, want)
				}
			}
			wantPast(begin, other, "")
			wantPast(recorded, other, "other=1")
			wantPast(upto(t, d), "", row.want)
			if row.before {
				wantPast(recorded, branch, "main=1")
			} else {
				wantPast(recorded, "", "unknown")
			}
		})
	}
}

func TestThePastOfARefFromBeforeTheHistoryIsItsValue(t *testing.T) {
	t.Parallel()
	db := spannerKind(t).Empty(t)
	to(t, db, 7)
	db.InsertRef(t, project, branch, v1)
	db.InsertRef(t, project, "refs/heads/old", v1)
	to(t, db, 11)
	d := db.Open(t)
	s, err := d.HistoryState(t.Context())
	must(t, err)
	must(t, update(t, d, "u", move(branch, v1, v2)))
	for at, want := range map[driver.Position]string{s.Pruned - 1: "main=1 old=1", s.Upto: "main=1 old=1", upto(t, d): "main=2 old=1"} {
		if got, err := past(t, d, at, ""); err != nil || got != want {
			t.Errorf("at %d: %q, %v, want %q", at, got, err, want)
		}
	}
}

func TestTheNewestChangeIsFoundHoweverOldItIs(t *testing.T) {
	t.Parallel()
	db := dbtest.Spanner(t)
	d := db.Open(t)
	db.Exec(t, `UPDATE history_state SET begun = TIMESTAMP '2001-01-01T00:00:00Z', pruned = TIMESTAMP '2001-01-01T00:00:00Z' WHERE true`)
	if c, _, err := d.Newest(t.Context()); c != (driver.Change{}) || err != nil {
		t.Errorf("without a change: %+v, %v", c, err)
	}
	for i, hours := range []int{100_000, 3_000, 50, 2} {
		op := fmt.Sprint("op", i)
		for shard, name := range map[int]string{3: "refs/heads/b", 7: "refs/heads/a"} {
			db.Exec(t, fmt.Sprintf(`INSERT INTO history (project, ref, position, old_value, new_value, op, shard)
VALUES ('p', '%s', TIMESTAMP_SUB(TIMESTAMP_TRUNC(CURRENT_TIMESTAMP(), DAY), INTERVAL %d HOUR), '', 'x', '%s', %d)`, name, hours, op, shard))
		}
		c, state, err := d.Newest(t.Context())
		must(t, err)
		if c.Op != op || c.Ref != "refs/heads/b" || c.Position > state.Upto {
			t.Errorf("%d hours ago: %+v of %+v", hours, c, state)
		}
	}
}

// to migrates a database to a version of the schema.
func to(tb testing.TB, db *dbtest.Database, version uint) {
	tb.Helper()
	m, err := spanner.Migrator(tb.Context(), db.URL())
	must(tb, err)
	defer m.Close()
	must(tb, m.To(tb.Context(), version))
}

func TestTheHistoryBeginsOnce(t *testing.T) {
	t.Parallel()
	db := dbtest.Spanner(t)
	d := db.Open(t)
	first, err := d.HistoryState(t.Context())
	must(t, err)
	m, err := spanner.Migrator(t.Context(), db.URL())
	must(t, err)
	defer m.Close()
	must(t, m.Force(t.Context(), 7))
	must(t, m.Up(t.Context()))
	again, err := d.HistoryState(t.Context())
	must(t, err)
	if len(again.Epochs) != 1 || again.Epochs[0] != first.Epochs[0] || again.Pruned != first.Pruned || first.Pruned > first.Upto {
		t.Errorf("first %+v, then %+v", first, again)
	}
	db.Exec(t, `DELETE FROM epochs WHERE true`)
	if _, err := d.HistoryState(t.Context()); !errors.Is(err, driver.ErrSchema) || !strings.Contains(err.Error(), "migrate force 7") {
		t.Errorf("without an epoch: %v", err)
	}
}
