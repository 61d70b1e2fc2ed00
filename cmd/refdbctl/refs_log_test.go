package main

import (
	"strings"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/test/dbtest"
)

// newRecordedWorld is newWorld with a database that has a history.
func newRecordedWorld(tb testing.TB) *world {
	tb.Helper()
	db := dbtest.Postgres(tb)
	return &world{Database: db, env: map[string]string{"REFDB_URL": db.URL(), "REFDB_SITE": "here"}}
}

// puts changes a ref from one value to the next, each time on behalf of anna.
func (w *world) puts(tb testing.TB, ref string, digits ...string) {
	tb.Helper()
	db := w.open(tb)
	old, err := db.Get(tb.Context(), "p", ref)
	for _, digit := range digits {
		if err == nil {
			err = db.Update(tb.Context(), "p", []refdb.Update{{Ref: ref, Old: old, New: refdb.Value(id(digit))}}, refdb.By("anna"))
		}
		old = refdb.Value(id(digit))
	}
	if err != nil {
		tb.Fatal(err)
	}
}

type loggedJSON struct {
	Position                int64
	Project, Ref            *string
	Time                    *time.Time
	By, Owner, Old, New, Op *string
	Back                    *int
	Cursor                  string
}

// said is a change in short, such as "main a>b".
func (l loggedJSON) said() string {
	short := func(v *string) string {
		if v == nil {
			return "-"
		}
		return (*v)[:1]
	}
	return strings.TrimPrefix(*l.Ref, "refs/heads/") + " " + short(l.Old) + ">" + short(l.New)
}

func (w *world) log(tb testing.TB, args ...string) (rows []loggedJSON, said string) {
	tb.Helper()
	rows = decode[[]loggedJSON](tb, w.do(tb, append([]string{"refs", "log", "p", "-o", "json"}, args...)...))
	var all []string
	for _, r := range rows {
		all = append(all, r.said())
	}
	return rows, strings.Join(all, ", ")
}

func equalFields(line string, want []string) bool {
	return strings.Join(strings.Fields(line), " ") == strings.Join(want, " ")
}
