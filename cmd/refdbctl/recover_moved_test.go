package main

import (
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/exit"
	"github.com/globalrefdb/globalrefdb/test/dbtest"
)

// The restore of docs/OPERATIONS.md, into a cluster that has begun fewer transactions: all commands about the past go on as if nothing had happened.
func TestARestoreIntoANewClusterGoesOnWhereTheDumpEnded(t *testing.T) {
	t.Parallel()
	older := dbtest.OlderPostgres(t)
	w := &world{Database: older, env: map[string]string{"REFDB_URL": older.URL(), "REFDB_SITE": "here"}}
	w.puts(t, mainRef, "a", "b", "c")
	v := w.watch(t, "--since", "begin")
	cursor := v.says(t, "main ->a", "main a>b", "main b>c").Cursor
	v.stop(t, syscall.SIGTERM)

	w.Database = dbtest.RestoreIntoYounger(t, older)
	w.env["REFDB_URL"] = w.URL()
	w.do(t, "recover", "--reason", "the dump was restored", "--yes")
	w.puts(t, mainRef, "d")

	rows, said := w.log(t, mainRef)
	if said != "main c>d, main b>c, main a>b, main ->a" {
		t.Fatalf("the log: %s", said)
	}
	for i, value := range []string{"d", "c", "b", "a"} {
		if got := w.do(t, "refs", "list", "p", "--at", fmt.Sprint(rows[i].Position)); !strings.Contains(got, id(value)) {
			t.Errorf("at %d there was %s, want %s", rows[i].Position, got, value)
		}
	}
	for since, want := range map[string][]string{
		"begin": {"main ->a", "main a>b", "main b>c", "main c>d"},
		cursor:  {"main c>d"},
	} {
		v := w.watch(t, "--since", since)
		v.says(t, want...)
		v.stop(t, syscall.SIGTERM)
	}
	if said := w.rollback(t, exit.OK, mainRef+"@{1}", "--yes"); said != "moved main d>c" {
		t.Errorf("the value before the last change: %s", said)
	}
}
