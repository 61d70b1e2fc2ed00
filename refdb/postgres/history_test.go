package postgres_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/postgres"
	"github.com/globalrefdb/globalrefdb/test/dbtest"
)

// A transaction gets its position at its first write, and may commit after many transactions with
// larger ones.
func TestAnOpenTransactionDelaysReadersOfChanges(t *testing.T) {
	t.Parallel()
	db := dbtest.Postgres(t)
	d := open(t, db.URL())
	c := session(t, db.URL())
	read := func() (said string) {
		t.Helper()
		page, err := d.Changes(t.Context(), driver.ChangesRequest{Project: project, Limit: 10})
		if err != nil {
			t.Fatal(err)
		}
		for _, change := range page.Changes {
			said += change.Ref + " "
		}
		return said
	}
	exec(t, c, `BEGIN; INSERT INTO refs (project, ref, value) VALUES ('`+project+`', 'refs/heads/first', 'x')`)
	if err := try(t.Context(), d, update("refs/heads/second")); err != nil {
		t.Fatal(err)
	}
	if got := read(); got != "" {
		t.Errorf("while an older transaction is open, a reader gets %s", got)
	}
	if log, err := d.Log(t.Context(), driver.LogRequest{Project: project, Limit: 10}); err != nil || len(log.Changes) != 1 {
		t.Errorf("the log has %+v, %v", log, err)
	}
	if holders := query[string](t, session(t, db.URL()), `SELECT holder FROM (`+postgres.HoldingSQL+`) AS holding`); len(holders) != 1 {
		t.Errorf("the holder of the oldest transaction: %q", holders)
	}
	exec(t, c, `COMMIT`)
	eventually(t, "both are complete", func() bool { return read() == "refs/heads/first refs/heads/second " })
}

// While an older transaction is open, which may still insert an earlier change, caches can't rely
// on the change.
func TestAnOpenTransactionKeepsKeysOfLaterChangesUnsettled(t *testing.T) {
	t.Parallel()
	db := dbtest.Postgres(t)
	d := open(t, db.URL())
	refs, err := refdb.New(d, refdb.Options{Site: "site"})
	if err != nil {
		t.Fatal(err)
	}
	defer refs.Close()
	key := func() refdb.StateKey {
		t.Helper()
		k, err := refs.StateKey(t.Context(), project)
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	settled := func() (k refdb.StateKey) {
		t.Helper()
		eventually(t, "the key is settled", func() bool { k = key(); return k.Settled() })
		return k
	}
	before := settled()
	c := session(t, db.URL())
	exec(t, c, `BEGIN; INSERT INTO refs (project, ref, value) VALUES ('`+project+`', 'refs/heads/first', 'x')`)
	if k := settled(); k != before {
		t.Error("a transaction that is still open changed the key")
	}
	if err := try(t.Context(), d, update("refs/heads/second")); err != nil {
		t.Fatal(err)
	}
	one, two := key(), key()
	if one.Settled() || two.Settled() || one == two {
		t.Errorf("%+v, %+v", one, two)
	}
	exec(t, c, `COMMIT`)
	if k := settled(); k == before || k == one || k == two {
		t.Errorf("%+v", k)
	}
}

// Changes that people write by hand are recorded as well, and restoring a dump records nothing
// twice.
func TestEveryWriteOfRefsIsRecorded(t *testing.T) {
	t.Parallel()
	db := dbtest.Postgres(t)
	d := open(t, db.URL())
	for _, sql := range []string{
		`INSERT INTO refs (project, ref, value) VALUES ('p', 'refs/heads/a', '1'), ('p', 'refs/heads/b', '1')`,
		`INSERT INTO refs (project, ref, value) VALUES ('p', 'refs/heads/a', '2') ON CONFLICT (project, ref) DO UPDATE SET value = excluded.value`,
		`UPDATE refs SET ref = 'refs/heads/c' WHERE ref = 'refs/heads/b'`,
		`DELETE FROM refs WHERE ref = 'refs/heads/a'`,
	} {
		db.Exec(t, sql)
	}
	log, err := d.Log(t.Context(), driver.LogRequest{Project: "p", Limit: 10})
	if err != nil {
		t.Fatal(err)
	}
	var said []string
	for _, c := range log.Changes {
		said = append(said, fmt.Sprintf("%s %s>%s", strings.TrimPrefix(c.Ref, "refs/heads/"), c.Old, c.New))
		if c.Time.IsZero() || c.Op != "" {
			t.Errorf("%+v", c)
		}
	}
	if got, want := strings.Join(said, ", "), "a 2>, c >1, b 1>, a 1>2, b >1, a >1"; got != want {
		t.Errorf("the log, newest first, is %s, want %s", got, want)
	}
}

func TestReadingTheHistoryReadsNoMoreRowsThanItReturns(t *testing.T) {
	t.Parallel()
	db := dbtest.Postgres(t)
	c := session(t, db.URL())
	exec(t, c, `INSERT INTO refs (project, ref, value) SELECT 'p', 'refs/heads/' || to_char(n, 'FM000'), 'y' FROM generate_series(0, 499) AS n`)
	exec(t, c, `DELETE FROM history`)
	exec(t, c, `INSERT INTO history (project, ref, position, old, new, time)
SELECT 'p', 'refs/heads/' || to_char(n % 500, 'FM000'), n, 'x', 'y', timestamptz '2020-01-01' + n * interval '1 second' FROM generate_series(1, 50000) AS n`)
	exec(t, c, `INSERT INTO intents (project, ref, token, owner, agent, old_value, new_value, time)
SELECT p, 'refs/heads/' || n, clock_timestamp(), 'other', 'agent', '', 'x', clock_timestamp() FROM generate_series(1, 5000) AS n, unnest(ARRAY['a', 'p', 'z']) AS p`)
	exec(t, c, `INSERT INTO projects (project, id, rules, mode, revision, time, op) SELECT 'p' || n, 'id', '', '', n, clock_timestamp(), '' FROM generate_series(1, 5000) AS n`)
	exec(t, c, `VACUUM ANALYZE`)
	exec(t, c, `SELECT brin_summarize_new_values('history_blocks')`)
	for _, row := range []struct {
		name, sql, args string
		most            int // rows read from history and refs
	}{
		{"ten refs of the past", postgres.PastOfRangeSQL, `'p', 'refs/heads/', 'refs/heads/100', 10, 25000, true, 'refs/heads0'`, 10 * 6},
		{"ten changes of a ref", postgres.LogOfRefSQL, `'p', 40000, '', 10, 'refs/heads/100'`, 10 * 2},
		{"ten changes of a project", postgres.ChangesSQL, `20000, 'p', 'refs/heads/100', 10, 20000, 'p', 'refs/heads/000', 'p'`, 10 * 2},
		// One row more than the statement returns: the newest change, up to which the history is
		// complete.
		{"the newest change", postgres.NewestSQL, ``, 2},
		{"the tip of a project", postgres.TipSQL, `'p'`, 3},
		{"the tip of a project without any", postgres.TipSQL, `'q'`, 1},
		{"the packs of a project", postgres.PacksSQL, `'p', 0, '', 10, 0`, 1},
		// The changes in the table block next to the boundary are read, too.
		{"a position at a time", postgres.PositionAtSQL, `'2020-01-01 06:00'`, 3 * 16 * 120},
	} {
		t.Run(row.name, func(t *testing.T) {
			types := map[string]string{
				"ten refs of the past": "text, text, text, bigint, bigint, boolean, text", "ten changes of a ref": "text, bigint, text, bigint, text",
				"ten changes of a project": "bigint, text, text, bigint, bigint, text, text, text", "a position at a time": "timestamptz",
				"the tip of a project": "text", "the tip of a project without any": "text", "the packs of a project": "text, bigint, text, bigint, bigint",
			}[row.name]
			name := "plan_" + strings.ReplaceAll(row.name, " ", "_")
			call := name
			if types != "" {
				name, call = name+` (`+types+`)`, name+` (`+row.args+`)`
			}
			exec(t, c, `PREPARE `+name+` AS `+row.sql)
			exec(t, c, `SET plan_cache_mode = force_generic_plan`)
			plan := query[string](t, c, `EXPLAIN (ANALYZE, TIMING off, FORMAT json) EXECUTE `+call)
			var plans []struct{ Plan planNode }
			if err := json.Unmarshal([]byte(plan[0]), &plans); err != nil {
				t.Fatal(err)
			}
			if n := plans[0].Plan.read(); n > row.most {
				t.Errorf("the statement reads %d rows, want at most %d:\n%s", n, row.most, plan[0])
			}
		})
	}
}

// After each start of the server, all sites check whether it has the newest changes that they know,
// and meanwhile nothing is written.
func TestTheNewestChangesOfABusyRefAreSearchedFromTheEnd(t *testing.T) {
	t.Parallel()
	db := dbtest.Postgres(t)
	c := session(t, db.URL())
	const changes, known = 20_000, 100
	exec(t, c, fmt.Sprintf(`INSERT INTO history (project, ref, position, old, new, time, op)
SELECT 'p', 'refs/heads/main', n, 'x', 'y', clock_timestamp(), 'op' || n || E'\towner\t' FROM generate_series(1, %d) AS n`, changes))
	exec(t, c, `VACUUM ANALYZE`)
	array := func(kind string, value func(n int) string) string {
		var values []string
		for n := changes; n > changes-known; n-- {
			values = append(values, value(n))
		}
		return "ARRAY[" + strings.Join(values, ", ") + "]::" + kind + "[]"
	}
	always := func(v string) func(int) string { return func(int) string { return v } }
	exec(t, c, `PREPARE look (text, text[], text[], text[], bigint[], timestamptz[]) AS `+postgres.LookSQL)
	exec(t, c, `SET plan_cache_mode = force_generic_plan`)
	plan := query[string](t, c, `EXPLAIN (ANALYZE, TIMING off, FORMAT json) EXECUTE look ('', `+array("text", always("'p'"))+`, `+array("text", always("'refs/heads/main'"))+`, `+
		array("text", func(n int) string { return fmt.Sprintf("'op%d'", n) })+`, `+array("bigint", always("0"))+`, `+array("timestamptz", always("now()"))+`)`)
	var plans []struct{ Plan planNode }
	if err := json.Unmarshal([]byte(plan[0]), &plans); err != nil {
		t.Fatal(err)
	}
	// The plan contains averages, which are rounded.
	if n, most := plans[0].Plan.read(), known*(known+1)/2+known; n > most {
		t.Errorf("the statement reads %d rows of %d changes, want at most %d", n, changes, most)
	}
}

// A planNode is a node of a plan that was executed.
type planNode struct {
	Relation string  `json:"Relation Name"`
	Rows     float64 `json:"Actual Rows"`
	Filtered float64 `json:"Rows Removed by Filter"`
	Recheck  float64 `json:"Rows Removed by Index Recheck"`
	Loops    float64 `json:"Actual Loops"`
	Plans    []planNode
}

// read returns how many rows were read from the tables that grow.
func (n planNode) read() (rows int) {
	if slices.Contains([]string{"history", "refs", "intents", "projects"}, n.Relation) {
		rows = int((n.Rows + n.Filtered + n.Recheck) * n.Loops)
	}
	for _, below := range n.Plans {
		rows += below.read()
	}
	return rows
}

func TestATimeOutOfOrderEndsThePast(t *testing.T) {
	t.Parallel()
	db := dbtest.Postgres(t)
	d := open(t, db.URL())
	c := session(t, db.URL())
	exec(t, c, `INSERT INTO history (project, ref, position, old, new, time) VALUES
('p', 'refs/heads/a', 1, '', 'x', now() + interval '1 hour'), ('p', 'refs/heads/a', 2, '', 'x', now() + interval '3 hours'), ('p', 'refs/heads/a', 3, '', 'x', now() + interval '2 hours')`)
	for at, want := range map[time.Duration]driver.Position{90 * time.Minute: 1, 150 * time.Minute: 1, 30 * time.Minute: 0} {
		if got, _, err := d.PositionAt(t.Context(), time.Now().Add(at)); got != want || err != nil {
			t.Errorf("in %s the position is %d, %v; want %d", at, got, err, want)
		}
	}
}
