//go:build linux

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/cli"
	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/exit"
	"github.com/globalrefdb/globalrefdb/internal/testprogram"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
)

func TestLockRunsACommandAndReturnsItsStatus(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	binary := filepath.Join(dir, "binary")
	if err := testprogram.Write(binary, []byte("\x7fno program\x00\n")); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name    string
		command []string
		code    int
		says    string
	}{
		{"success", []string{"true"}, exit.OK, ""},
		{"failure", []string{"sh", "-c", "exit 42"}, 42, ""},
		{"a status that means something here too", []string{"sh", "-c", "exit 3"}, 3, ""},
		{"ended by a signal", []string{"sh", "-c", "kill -9 $$"}, 128 + 9, ""},
		{"not found", []string{"no-such-command-here"}, exitNotFound, `can't run "no-such-command-here"`},
		{"no such file", []string{dir + "/nothing"}, exitNotFound, "no such file"},
		{"a directory", []string{dir}, exitNotExecutable, "is a directory"},
		{"not a program", []string{binary}, exitNotExecutable, "exec format error"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			r := w.run(t, append([]string{"lock", "p", mainRef, "--"}, c.command...)...)
			r.is(t, c.code, c.says)
			if c.says != "" {
				r.isOneLine(t)
			}
			w.isFree(t, mainRef)
		})
	}
}

func TestTheCommandFindsItsLockInTheEnvironment(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	begin := time.Now()
	out := w.do(t, "lock", "p", "refs/heads/b", "refs/heads/a", "--", "sh", "-c",
		`printf '%s|%s|%s|%s|' "$REFDB_PROJECT" "$REFDB_REFS" "$REFDB_TOKEN" "$REFDB_OWNER"`)
	f := strings.Split(out, "|")
	if len(f) != 5 || f[0] != "p" || f[1] != "refs/heads/a\nrefs/heads/b" || !strings.HasPrefix(f[3], "here/") {
		t.Fatalf("got %q", out)
	}
	token, err := strconv.ParseInt(f[2], 10, 64)
	if at := refdb.Token(token).Time(); err != nil || at.Before(begin.Add(-time.Minute)) || at.After(time.Now().Add(time.Minute)) {
		t.Errorf("token %s: %v", f[2], err)
	}
}

func TestTheCommandPutsWithWhatItFindsInItsEnvironment(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, as string
		code     int
		says     string
	}{
		{"its own lock", "", exit.OK, ""},
		{"its token with another owner", "REFDB_OWNER=there/1", exit.Lost, "lock lost"},
		{"its token with no owner", "REFDB_OWNER=", exit.Misuse, "give --owner NAME"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			cmd := w.program(t, "lock", "p", mainRef, "--", "sh", "-c",
				`env $1 "$0" refs put "$REFDB_PROJECT" "$REFDB_REFS" "$2" --old none --token "$REFDB_TOKEN"`, self, c.as, id("a"))
			var messages strings.Builder
			cmd.Stderr = &messages
			cmd.Run()
			result{code: cmd.ProcessState.ExitCode(), err: messages.String()}.is(t, c.code, c.says)
			want := exit.OK
			if c.code != exit.OK {
				want = exit.Failed // no such ref
			}
			w.run(t, "refs", "get", "p", mainRef).is(t, want, "")
		})
	}
}

func TestStandardStreamsAreTheCommands(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	cmd := w.program(t, "lock", "p", mainRef, "--", "sh", "-c", "cat; echo oops >&2")
	cmd.Stdin = strings.NewReader("from stdin")
	var out, messages strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &messages
	if err := cmd.Run(); err != nil || out.String() != "from stdin" || messages.String() != "oops\n" {
		t.Errorf("%v: %q, %q", err, out.String(), messages.String())
	}
}

func TestABackgroundProcessOfTheCommandIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	out, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	cmd := w.program(t, "lock", "p", mainRef, "--", "sh", "-c", "sleep 1000 & echo $!")
	cmd.Stdout, cmd.Stderr = out, out
	cmd.Run()
	text, err := os.ReadFile(out.Name())
	pid, err2 := strconv.Atoi(strings.TrimSpace(string(text)))
	if errors.Join(err, err2) != nil || cmd.ProcessState.ExitCode() != exit.OK {
		t.Fatalf("%v: %s", cmd.ProcessState, text)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Errorf("the background process has not run on: %v", err)
	}
	w.isFree(t, mainRef)
}

func TestALockedRefIsWaitedForOrNot(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	lock, err := w.open(t).TryLock(t.Context(), "p", mainRef)
	if err != nil {
		t.Fatal(err)
	}
	r := w.run(t, "lock", "p", "refs/heads/other", mainRef, "--try", "--", "touch", filepath.Join(t.TempDir(), "x"))
	r.is(t, exit.Locked, "ref is locked: p "+mainRef+" by "+lock.Owner())
	r.isOneLine(t)
	w.isFree(t, "refs/heads/other")
	var out, messages screen
	a := w.app(cli.Streams{In: strings.NewReader(""), Out: &out, Err: &messages})
	code := make(chan int, 1)
	go func() {
		code <- a.Report(a.run(t.Context(), patient([]string{"lock", "p", mainRef, "--wait=10m", "--", "echo", "mine"})))
	}()
	eventually(t, "it waits", func() bool { return strings.Contains(messages.String(), "waiting: ref is locked: p "+mainRef) })
	if out.String() != "" {
		t.Error("it did not wait")
	}
	if err := lock.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := <-code; got != exit.OK || out.String() != "mine\n" {
		t.Errorf("status %d: %s%s", got, out.String(), messages.String())
	}
}

func TestALockedRefIsWaitedForWithinWait(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, w *world) {
		db := w.open(t)
		lock, err := db.TryLock(t.Context(), "p", mainRef)
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		r := w.run(t, "lock", "p", "refs/heads/other", mainRef, "--wait=1s", "--", "true")
		r.is(t, exit.Locked, "not within --wait 1s: ref is locked: p "+mainRef+" by "+lock.Owner())
		r.isTwoLines(t, "waiting: ref is locked: p "+mainRef+" by "+lock.Owner())
		if took := time.Since(start); took != time.Second {
			t.Errorf("it waited for %s", took)
		}
		for l, err := range db.Locks(t.Context(), refdb.LockFilter{Project: "p"}) {
			if err != nil || l.Ref != mainRef {
				t.Errorf("%s is locked by %s, %v", l.Ref, l.Owner, err)
			}
		}
	})
}

func TestAStaleLockIsTakenOver(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.InsertLock(t, refdb.LockInfo{Project: "p", Ref: mainRef, Owner: "dead", Age: time.Hour})
	w.do(t, "lock", "p", mainRef, "--try", "--", "true")
	w.isFree(t, mainRef)
}

// holder is refdbctl lock as a process, with a command that prints a line when it runs.
type holder struct {
	cmd      *exec.Cmd
	lines    *bufio.Scanner
	messages strings.Builder
	child    int // the command's process
}

// hold starts a command under a lock on main, and waits until it has printed
// its process ID.
func (w *world) hold(tb testing.TB, command []string, flags ...string) *holder {
	tb.Helper()
	args := append([]string{"lock", "p", mainRef}, flags...)
	args = append(args, "--")
	return w.holdIn(tb, w.program(tb, append(args, command...)...))
}

// holdIn is hold for a process that is not yet started.
func (w *world) holdIn(tb testing.TB, cmd *exec.Cmd) *holder {
	tb.Helper()
	h := &holder{cmd: cmd}
	h.cmd.Stderr = &h.messages
	out, err := h.cmd.StdoutPipe()
	if err != nil {
		tb.Fatal(err)
	}
	h.lines = bufio.NewScanner(out)
	if err := startForeground(h.cmd); err != nil {
		tb.Fatal(err)
	}
	if h.child, err = strconv.Atoi(h.next(tb)); err != nil {
		tb.Fatalf("%v: %s", err, h.messages.String())
	}
	tb.Cleanup(func() {
		syscall.Kill(-h.child, syscall.SIGKILL)
		h.cmd.Process.Kill()
		h.cmd.Wait()
	})
	return h
}

// child returns a command that runs childMain with a role.
func child(tb testing.TB, role string) []string {
	tb.Helper()
	self, err := os.Executable()
	if err != nil {
		tb.Fatal(err)
	}
	return []string{self, childArgument, role}
}

// sleeper prints its process ID and does nothing.
var sleeper = []string{"sh", "-c", "echo $$; exec sleep 1000"}

// next returns the next line that the command prints.
func (h *holder) next(tb testing.TB) string {
	tb.Helper()
	if !h.lines.Scan() {
		tb.Fatalf("the command printed nothing more: %v", h.lines.Err())
	}
	return h.lines.Text()
}

// end waits until refdbctl has ended.
func (h *holder) end(tb testing.TB) result {
	tb.Helper()
	var out strings.Builder
	for h.lines.Scan() {
		out.WriteString(h.lines.Text() + "\n")
	}
	return result{exitOf(tb, h.cmd), out.String(), h.messages.String()}
}

// groupIsGone reports whether no process of the command's group runs any more. Dead processes may
// be listed until their parent reaps them.
func (h *holder) groupIsGone() bool {
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, file := range stats {
		stat, err := os.ReadFile(file)
		if err != nil {
			continue // ended meanwhile
		}
		// The name, in parentheses, may hold anything.
		f := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
		if state, group := f[0], f[2]; group == strconv.Itoa(h.child) && state != "Z" && state != "X" {
			return false
		}
	}
	return true
}

func TestSignalsAreForwarded(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	h := w.hold(t, child(t, "listener"))
	for _, s := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1} {
		if err := h.cmd.Process.Signal(s); err != nil {
			t.Fatal(err)
		}
		if got := h.next(t); got != s.String() {
			t.Errorf("got %s, want %s", got, s)
		}
		if _, ok := w.RowLock(t, "p", mainRef); !ok {
			t.Fatalf("%s ended the lock", s)
		}
	}
	h.cmd.Process.Signal(syscall.SIGUSR2)
	if r := h.end(t); r.code != 9 || r.err != "" {
		t.Errorf("%+v", r)
	}
	w.isFree(t, mainRef)
}

func TestASignalThatEndsTheCommandIsItsStatus(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	h := w.hold(t, sleeper)
	h.cmd.Process.Signal(syscall.SIGTERM)
	if r := h.end(t); r.code != -int(syscall.SIGTERM) || r.err != "" {
		t.Errorf("%+v", r)
	}
	w.isFree(t, mainRef)
}

func TestASignalEndsTheWait(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	lock, err := w.open(t).TryLock(t.Context(), "p", mainRef)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
		cmd := w.program(t, "lock", "p", mainRef, "--", "true")
		var messages screen
		cmd.Stderr = &messages
		if err := startForeground(cmd); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the program waits", func() bool { return strings.Contains(messages.String(), "waiting") })
		cmd.Process.Signal(s)
		r := result{code: exitOf(t, cmd), err: messages.String()}
		r.is(t, -int(s), "interrupted")
		r.isTwoLines(t, "waiting: ")
	}
	if err := lock.Err(); err != nil {
		t.Error(err)
	}
}

func TestALostLockEndsTheWholeGroup(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	db := w.open(t)
	purge := func(t *testing.T) {
		r := w.run(t, "locks", "purge", "p", mainRef, "--force", "--yes")
		r.is(t, exit.OK, "purged 1 lock")
	}
	t.Run("with SIGTERM", func(t *testing.T) {
		h := w.hold(t, child(t, "obedient"), "--heartbeat=50ms", "--kill-after=10m")
		purge(t)
		r := h.end(t)
		r.is(t, exit.Lost, "the command was stopped: lock lost: p "+mainRef)
		r.isOneLine(t)
		if r.out != syscall.SIGTERM.String()+"\n" {
			t.Errorf("printed %q", r.out)
		}
		if !h.groupIsGone() {
			t.Error("processes are left")
		}
	})
	t.Run("also when another has it already", func(t *testing.T) {
		h := w.hold(t, sleeper, "--heartbeat=50ms")
		var lock *refdb.Lock
		// A beat may come between Age and TryLock.
		eventually(t, "the lock is taken over", func() (ok bool) {
			w.Age(t, "p", mainRef, 2*time.Hour)
			var err error
			lock, err = db.TryLock(t.Context(), "p", mainRef)
			return err == nil
		})
		r := h.end(t)
		r.is(t, exit.Lost, "lock lost")
		if err := lock.Release(t.Context()); err != nil {
			t.Errorf("the loser took its successor's lock along: %v", err)
		}
	})
}

// unrenewable is a driver whose database can't be reached for beats.
type unrenewable struct{ refdb.Driver }

func (unrenewable) Beat(context.Context, []driver.LockID) ([]driver.BeatResult, error) {
	return nil, fmt.Errorf("%w: no route to host", refdb.ErrUnavailable)
}

func TestALockThatCannotBeRenewedIsGivenUpInTime(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.wrap = func(d refdb.Driver) refdb.Driver { return unrenewable{d} }
	const says = "could not be renewed in time"
	r := within(time.Second, func(limit string) result {
		return w.run(t, "lock", "p", mainRef, "--stale-after", limit, "--", "sh", "-c", "exec sleep 1000")
	}, says)
	r.is(t, exit.Lost, says)
	r.isOneLine(t)
}

func TestKillingTheHolderKillsTheCommand(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	h := w.hold(t, sleeper)
	if err := h.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	h.end(t)
	eventually(t, "the command is gone", h.groupIsGone)
	// Its lock stands until it is stale, and is taken over then.
	if _, ok := w.RowLock(t, "p", mainRef); !ok {
		t.Error("no process was left to release the lock, but it is gone")
	}
	w.run(t, "lock", "p", mainRef, "--try", "--", "true").is(t, exit.Locked, "ref is locked")
	w.Age(t, "p", mainRef, 2*time.Hour)
	w.do(t, "lock", "p", mainRef, "--try", "--", "true")
}

func TestALockLostAtTheEnd(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	out := w.run(t, "lock", "p", mainRef, "--heartbeat=9s", "--", "sh", "-c", "exit 7")
	out.is(t, 7, "")
	w.wrap = func(d refdb.Driver) refdb.Driver {
		return interfering{d, func() { w.Exec(t, `DELETE FROM locks`) }}
	}
	r := w.run(t, "lock", "p", mainRef, "--", "sh", "-c", "exit 7")
	r.is(t, exit.Lost, "lock lost")
	r.isOneLine(t)
}

func TestALockThatCannotBeReleased(t *testing.T) {
	t.Parallel()
	for script, code := range map[string]int{"exit 0": exit.Failed, "exit 7": 7} {
		w := newWorld(t)
		w.wrap = func(d refdb.Driver) refdb.Driver {
			return unreleasable{d}
		}
		r := w.run(t, "lock", "p", mainRef, "--", "sh", "-c", script)
		r.is(t, code, "not released and stands until it is stale")
		r.isOneLine(t)
	}
}

// unreleasable is a driver that can't release locks.
type unreleasable struct{ refdb.Driver }

func (unreleasable) Release(context.Context, driver.ReleaseRequest) (driver.Released, error) {
	return driver.Released{}, fmt.Errorf("disk full")
}
