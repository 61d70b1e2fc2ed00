package main

import (
	"context"
	"encoding/csv"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/cli"
	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/exit"
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

func TestALogSaysWhoMovedARefNewestFirst(t *testing.T) {
	t.Parallel()
	w := newRecordedWorld(t)
	w.puts(t, mainRef, "a", "b")
	w.puts(t, "refs/heads/x", "c")
	w.do(t, "refs", "delete", "p", mainRef, "--old", id("b"))

	rows, said := w.log(t)
	if said != "main b>0, x ->c, main a>b, main ->a" {
		t.Errorf("the project: %s", said)
	}
	if r := rows[0]; *r.By != cli.Operator() || !strings.HasPrefix(*r.Owner, "here/") || r.Op == nil || *r.Project != "p" {
		t.Errorf("by refdbctl: %+v", r)
	}
	if r := rows[2]; *r.By != "anna" || !strings.HasPrefix(*r.Owner, "there/") || r.Time.IsZero() {
		t.Errorf("by anna: %+v", r)
	}
	for i := range rows[1:] {
		if rows[i].Position <= rows[i+1].Position {
			t.Errorf("positions %d, then %d", rows[i].Position, rows[i+1].Position)
		}
	}
	rows, said = w.log(t, mainRef)
	if said != "main b>0, main a>b, main ->a" || *rows[0].Back != 0 || *rows[2].Back != 2 {
		t.Errorf("one ref: %s, %+v", said, rows)
	}
	if _, said = w.log(t, "-n", "2"); said != "main b>0, x ->c" {
		t.Errorf("two: %s", said)
	}
	table := strings.Split(w.do(t, "refs", "log", "p", mainRef), "\n")
	if want := []string{"POSITION", "TIME", "BY", "OWNER", "OLD", "NEW", "REF", "BACK"}; !equalFields(table[0], want) {
		t.Errorf("the table begins with %q", table[0])
	}
	if !strings.Contains(table[1], " bbbbbbbbbbbb  deleted ") || !strings.HasSuffix(table[1], "@{0}") || strings.Contains(table[1], id("b")) {
		t.Errorf("then comes %q", table[1])
	}
	if rows, err := csv.NewReader(strings.NewReader(w.do(t, "refs", "log", "p", "-o", "csv"))).ReadAll(); err != nil || len(rows) != 5 {
		t.Errorf("CSV: %v, %v", rows, err)
	}
}

func equalFields(line string, want []string) bool {
	return strings.Join(strings.Fields(line), " ") == strings.Join(want, " ")
}

// Times need not have the order of positions: each change counts by its own.
func TestALogSinceATimeHasAllOfThatTimeAndLater(t *testing.T) {
	t.Parallel()
	w := newRecordedWorld(t)
	w.puts(t, mainRef, "a", "b", "c", "d")
	w.Exec(t, `UPDATE history SET time = now() - interval '5 days' WHERE new = $1`, id("a"))
	w.Exec(t, `UPDATE history SET time = now() - interval '1 day' WHERE new = $1`, id("b"))
	w.Exec(t, `UPDATE history SET time = now() - interval '3 days' WHERE new = $1`, id("c"))
	w.Exec(t, `UPDATE epochs SET began = now() - interval '9 days'`)
	for since, want := range map[string]string{
		"2h ago": "main c>d", "2d": "main c>d, main a>b", "4d ago": "main c>d, main b>c, main a>b", "100d": "main c>d, main b>c, main a>b, main ->a",
		"2001-01-31": "main c>d, main b>c, main a>b, main ->a", "2099-01-31": "",
	} {
		if _, said := w.log(t, "--since", since); said != want {
			t.Errorf("since %s: %s, want %s", since, said, want)
		}
	}
	rows, _ := w.log(t, mainRef)
	if _, said := w.log(t, "--since", rows[2].Time.Format(time.RFC3339Nano)); said != "main c>d, main a>b" {
		t.Errorf("since the very time of a change: %s", said)
	}
	if rows, _ := w.log(t, mainRef, "--since", "2d"); *rows[1].Back != 2 {
		t.Errorf("what is left out counts, too: %+v", rows[1])
	}
}

func TestWhatALogCannotShowIsExplained(t *testing.T) {
	t.Parallel()
	w := newRecordedWorld(t)
	w.puts(t, mainRef, "a")
	for args, want := range map[string]struct {
		code int
		says string
	}{
		"refs log q":                       {exit.Failed, "no such project: q"},
		"refs log p refs/heads/y":          {exit.OK, "the history has no change of refs/heads/y; it begins at 2"},
		"refs log p main":                  {exit.Misuse, "not a full name"},
		"refs log p -n 0":                  {exit.Misuse, "--number 0"},
		"refs log p --since yesterday":     {exit.Misuse, `--since "yesterday": give a time, such as`},
		"refs list p --at yesterday":       {exit.Misuse, "give a position, a time, such as"},
		"refs list p --at 2h0":             {exit.Misuse, "give a position, a time, such as"},
		"refs list p --at 2099-01-31":      {exit.Misuse, "that is in the future: it is 2"},
		"refs list p --at 2001-01-31":      {exit.Failed, "the history does not go back that far: 2001-01-31T00:00:00Z, it begins at 2"},
		"refs list p --at 999999999999999": {exit.Misuse, "it is in the future, the last complete one now is"},
		"refs list p --at 1":               {exit.Failed, "the history does not go back that far: position 1, it begins with"},
		"refs list q --at 1s":              {exit.Failed, ""},
	} {
		r := w.run(t, strings.Fields(args)...)
		r.is(t, want.code, want.says)
		if r.isOneLine(t); r.out != "" {
			t.Errorf("%s printed %q", args, r.out)
		}
	}
}

func TestRefsAreListedAsTheyWere(t *testing.T) {
	t.Parallel()
	w := newRecordedWorld(t)
	w.puts(t, mainRef, "a", "b")
	w.puts(t, "refs/heads/x", "c")
	w.do(t, "refs", "delete", "p", mainRef, "--old", id("b"))
	rows, _ := w.log(t)
	if got := w.do(t, "refs", "list", "p", "--at", fmt.Sprint(rows[0].Position), "--deleted", "--prefix", "refs/heads/m"); !strings.Contains(got, id("0")) || strings.Contains(got, "refs/heads/x") {
		t.Errorf("with deleted ones, below a prefix: %q", got)
	}
	w.do(t, "project", "remove", "p", "--yes")
	rows, _ = w.log(t)
	var positions []string
	for _, r := range rows {
		positions = append([]string{fmt.Sprint(r.Position)}, positions...)
	}
	// One change each, and the removal of the project's last ref.
	for i, want := range []string{"main a", "main b", "main b, x c", "x c", ""} {
		var got []string
		for _, r := range decode[[]refJSON](t, w.do(t, "refs", "list", "p", "--at", positions[i], "-o", "json")) {
			got = append(got, strings.TrimPrefix(r.Ref, "refs/heads/")+" "+(*r.Value)[:1])
		}
		if strings.Join(got, ", ") != want {
			t.Errorf("after change %d: %q, want %q", i, got, want)
		}
	}
	at := rows[len(rows)-2].Time.Format(time.RFC3339Nano) // of a>b
	if got := w.do(t, "refs", "list", "p", "--at", at); !strings.Contains(got, id("b")) {
		t.Errorf("at its time: %q", got)
	}
	w.run(t, "refs", "list", "q", "--at", positions[3]).is(t, exit.Failed, "no such project: q")
}

// A transaction that began early and has not ended holds the history back. What others have changed since then is not
// left out without a word.
func TestAMomentUpToWhichTheHistoryIsNotCompleteIsWaitedFor(t *testing.T) {
	t.Parallel()
	w := newRecordedWorld(t)
	w.puts(t, mainRef, "a")
	early, err := pgx.Connect(t.Context(), w.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer early.Close(context.WithoutCancel(t.Context()))
	if _, err := early.Exec(t.Context(), `BEGIN; SELECT pg_current_xact_id()`); err != nil {
		t.Fatal(err)
	}
	w.puts(t, mainRef, "b")
	rows, _ := w.log(t)
	at, position := rows[0].Time.Format(time.RFC3339Nano), fmt.Sprint(rows[0].Position)
	var waiting sync.WaitGroup
	for _, args := range []string{"refs list p --at " + at, "refs list p --at " + position, "refs rollback p --yes --at " + at} {
		waiting.Go(func() {
			r := within(2*time.Second, func(limit string) result {
				return w.run(t, append(strings.Fields(args), "--timeout", limit)...)
			}, "waiting: ", "has not ended: try again later")
			if r.is(t, exit.Failed, "a transaction that began before position "+position+" has not ended: try again later"); r.out != "" {
				t.Errorf("%s printed %q", args, r.out)
			}
			r.isTwoLines(t, "waiting: a transaction that began before position "+position)
		})
	}
	waiting.Wait()
	// Up to the first change nothing is missing.
	w.do(t, "refs", "list", "p", "--at", rows[1].Time.Format(time.RFC3339Nano))
	if _, err := early.Exec(t.Context(), `COMMIT`); err != nil {
		t.Fatal(err)
	}
	for _, at := range []string{at, position} {
		if got := w.do(t, "refs", "list", "p", "--at", at); !strings.Contains(got, id("b")) {
			t.Errorf("once it has ended: %q", got)
		}
	}
}

func TestALogWhoseReaderGoesAwayEndsWithoutAWord(t *testing.T) {
	t.Parallel()
	w := newRecordedWorld(t)
	db := w.open(t)
	updates := make([]refdb.Update, 5000)
	for i := range updates {
		updates[i] = refdb.Update{Ref: fmt.Sprintf("refs/heads/b%04d", i), New: refdb.Value(id("a"))}
	}
	if err := db.Update(t.Context(), "p", updates); err != nil {
		t.Fatal(err)
	}
	cmd := w.program(t, "refs", "log", "p")
	var messages screen
	cmd.Stderr = &messages
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 100)); err != nil {
		t.Error(err)
	}
	out.Close()
	if err := cmd.Wait(); err != nil || messages.String() != "" {
		t.Errorf("%v: %s", err, messages.String())
	}
}

func TestWhoIsRecordedFitsTheHistory(t *testing.T) {
	t.Parallel()
	w := newRecordedWorld(t)
	w.env["SUDO_USER"] = strings.Repeat("o'brien\n", 60)
	w.do(t, "refs", "put", "p", mainRef, id("a"), "--old=none")
	rows, _ := w.log(t)
	if !strings.HasPrefix(*rows[0].By, cli.Operator()+" (sudo by o'brien?o'brien") {
		t.Errorf("by %q", *rows[0].By)
	}
}
