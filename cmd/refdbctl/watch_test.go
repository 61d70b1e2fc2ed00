package main

import (
	"bufio"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/exit"
	"github.com/globalrefdb/globalrefdb/refdb"
)

// watching is a watch that runs.
type watching struct {
	cmd      *exec.Cmd
	out      io.ReadCloser
	lines    *bufio.Scanner
	messages screen
}

// watch starts a watch, which has begun when it returns.
func (w *world) watch(tb testing.TB, args ...string) *watching {
	tb.Helper()
	v := &watching{cmd: w.program(tb, append([]string{"watch", "-o", "json"}, args...)...)}
	v.cmd.Stderr = &v.messages
	var err error
	if v.out, err = v.cmd.StdoutPipe(); err == nil {
		err = startForeground(v.cmd)
	}
	if err != nil {
		tb.Fatal(err)
	}
	v.lines = bufio.NewScanner(v.out)
	return v
}

// next returns the next line.
func (v *watching) next(tb testing.TB) (row loggedJSON) {
	tb.Helper()
	if !v.lines.Scan() {
		tb.Fatalf("the watch has ended: %v, %s", v.lines.Err(), v.messages.String())
	}
	if err := json.Unmarshal(v.lines.Bytes(), &row); err != nil {
		tb.Fatalf("%v in %q", err, v.lines.Text())
	}
	return row
}

func (v *watching) says(tb testing.TB, want ...string) (last loggedJSON) {
	tb.Helper()
	for _, want := range want {
		if last = v.next(tb); last.said() != want {
			tb.Errorf("%s, want %s", last.said(), want)
		}
	}
	return last
}

// ends checks that the watch ends without an error.
func (v *watching) ends(tb testing.TB) {
	tb.Helper()
	if err := v.cmd.Wait(); err != nil || v.messages.String() != "" {
		tb.Errorf("%v: %s", err, v.messages.String())
	}
}

func (v *watching) stop(tb testing.TB, s os.Signal) {
	tb.Helper()
	if err := v.cmd.Process.Signal(s); err != nil {
		tb.Fatal(err)
	}
	v.ends(tb)
}

// complete waits until the changes of a project are complete: other tests have transactions on the same server.
func (w *world) complete(tb testing.TB, project string) {
	tb.Helper()
	db := w.open(tb)
	for last, err := range db.History(tb.Context(), project, "") {
		if err != nil {
			tb.Fatal(err)
		}
		eventually(tb, "the history is complete", func() bool {
			s, err := db.HistoryState(tb.Context())
			return err == nil && s.Upto >= last.Position
		})
		return
	}
}

func TestAWatchPrintsChangesAsTheyHappen(t *testing.T) {
	t.Parallel()
	w := newRecordedWorld(t)
	w.puts(t, "refs/heads/before", "a")
	w.complete(t, "p")
	v := w.watch(t, "--progress")
	if first := v.next(t); first.Ref != nil || first.Cursor == "" || first.Position == 0 {
		t.Errorf("the progress: %+v", first)
	}
	w.puts(t, mainRef, "a", "b")
	row := v.next(t)
	for row.Ref == nil {
		row = v.next(t)
	}
	if row.said() != "main ->a" || *row.By != "anna" || *row.Project != "p" || row.Cursor == "" || row.Time == nil {
		t.Errorf("%+v", row)
	}
	v.stop(t, syscall.SIGINT)
}

// Each line has a cursor with which a reader continues at the next line, also between changes of
// one transaction.
func TestAWatchGoesOnAfterAnyOfItsLines(t *testing.T) {
	t.Parallel()
	w := newRecordedWorld(t)
	w.puts(t, mainRef, "a")
	updates := []refdb.Update{{Ref: "refs/heads/x", New: refdb.Value(id("b"))}, {Ref: "refs/heads/y", New: refdb.Value(id("b"))}}
	if err := w.open(t).Update(t.Context(), "p", updates); err != nil {
		t.Fatal(err)
	}
	w.puts(t, mainRef, "c")
	all := []string{"main ->a", "x ->b", "y ->b", "main a>c"}
	v := w.watch(t, "--since=begin")
	var cursors []string
	for _, want := range all {
		cursors = append(cursors, v.says(t, want).Cursor)
	}
	v.stop(t, syscall.SIGTERM)
	for i, cursor := range cursors[:3] {
		v := w.watch(t, "--since", cursor)
		v.says(t, all[i+1:]...)
		v.stop(t, syscall.SIGTERM)
	}
}

func TestAWatchOfAProjectOrAPrefixLeavesOutTheRest(t *testing.T) {
	t.Parallel()
	w := newRecordedWorld(t)
	w.puts(t, "refs/tags/v1", "a")
	w.puts(t, mainRef, "b")
	w.InsertRef(t, "q", mainRef, refdb.Value(id("c")))
	for args, want := range map[string]string{"p": "refs/tags/v1 ->a, main ->b", "q": "main ->c", "p --prefix=refs/heads/": "main ->b"} {
		v := w.watch(t, append(strings.Fields(args), "--since=begin")...)
		v.says(t, strings.Split(want, ", ")...)
		v.stop(t, syscall.SIGINT)
	}
}

// Nothing happens any more: a write would not tell that the reader has gone.
func TestAWatchEndsWhenItsReaderHasGone(t *testing.T) {
	t.Parallel()
	w := newRecordedWorld(t)
	w.puts(t, mainRef, "a")
	v := w.watch(t, "--since=begin")
	v.says(t, "main ->a")
	v.out.Close()
	v.ends(t)
}

func TestAWatchInATable(t *testing.T) {
	t.Parallel()
	w := newRecordedWorld(t)
	w.puts(t, mainRef, "a")
	w.complete(t, "p")
	v := w.watch(t, "--since=begin", "-o", "table", "--progress")
	for _, want := range []string{"PROJECT  OLD  NEW", "-    aaaaaaaaaaaa  refs/heads/main", "-        -    -"} {
		if !v.lines.Scan() || !strings.Contains(v.lines.Text(), want) {
			t.Errorf("%q does not have %q", v.lines.Text(), want)
		}
	}
	v.stop(t, syscall.SIGINT)
}

func TestAWatchRefusesWhatItCannotGoOnFrom(t *testing.T) {
	t.Parallel()
	w := newRecordedWorld(t)
	w.puts(t, mainRef, "a", "b")
	v := w.watch(t, "--since=begin")
	first, second := v.next(t).Cursor, v.next(t).Cursor
	v.stop(t, syscall.SIGINT)
	other := newRecordedWorld(t)
	for args, want := range map[string]struct {
		code int
		says string
	}{
		"--since=":                {exit.Misuse, `--since "": give the cursor of the last change that was read, or begin`},
		"--since=yesterday":       {exit.Misuse, "invalid cursor"},
		"--since=" + first[:20]:   {exit.Misuse, "incomplete"},
		"--prefix=refs/":          {exit.Misuse, "give the PROJECT, too"},
		"RECLAIM_p --since=begin": {exit.Misuse, "reserved"},
	} {
		r := w.run(t, append([]string{"watch"}, strings.Fields(args)...)...)
		r.is(t, want.code, want.says)
		r.isOneLine(t)
	}
	other.run(t, "watch", "--since", first).is(t, exit.Failed, "the database's history is not the one that was read")
	w.Exec(t, `DELETE FROM history WHERE new = $1`, id("b"))
	w.run(t, "watch", "--since", second).is(t, exit.Failed, "the database's history is not the one that was read")
	w.Exec(t, `UPDATE history_state SET pruned = (SELECT max(position) FROM history) + 1`)
	w.run(t, "watch", "--since", first).is(t, exit.Failed, "the history does not go back that far")
}
