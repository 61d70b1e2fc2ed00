package main

import (
	"bufio"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"testing"
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
		err = v.cmd.Start()
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
