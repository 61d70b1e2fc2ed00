package main

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/cli"
	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/exit"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/audit"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/intents"
)

// varying replaces what differs from run to run: the owner of a DB, and the width of the column
// that shows it.
func varying(text string) string {
	text = regexp.MustCompile(`(there|third)/[^\s",]+[0-9A-Z]`).ReplaceAllString(text, "$1/X")
	text = strings.ReplaceAll(text, cli.Operator(), "anna@host")
	return regexp.MustCompile(` {2,}`).ReplaceAllString(text, "  ")
}

// TestWhatOperationsPrint compares all that the commands print that list, confirm, act and print
// the results with testdata/operations.txt: a dry run, success, partial success, nothing to do, an
// error and an interruption.
func TestWhatOperationsPrint(t *testing.T) {
	t.Parallel()
	var transcript strings.Builder
	inBubble(t, func(t *testing.T, w *world) {
		s := &operationsScript{world: w, to: &transcript, recorded: make(map[string]bool)}
		s.prepareLocks(t)
		for _, format := range []string{"table", "json", "csv"} {
			s.run(t, "locks purge --stale --dry-run -o "+format)
			s.run(t, "locks purge --owner nobody --dry-run -o "+format)
			s.run(t, "locks resolve --site there --keep-old --reason x --dry-run -o "+format)
			s.run(t, "locks resolve --site nowhere --keep-old --reason x --yes -o "+format)
			s.run(t, "refs delete p --prefix refs/heads/d --dry-run -o "+format)
			s.run(t, "refs delete p --prefix refs/heads/none --yes -o "+format)
			s.run(t, "refs rollback p refs/heads/r1 refs/heads/r2 --dry-run -o "+format)
			s.run(t, "refs rollback p refs/heads/same@{2} --yes -o "+format)
			s.run(t, "refs purge-tombstones p --older-than 1d --dry-run -o "+format)
			s.run(t, "project remove q --dry-run --force -o "+format)

			w.wrap = func(d refdb.Driver) refdb.Driver { return failing{d} }
			s.run(t, "locks purge --stale --yes -o "+format)
			s.run(t, "locks resolve --site there --keep-old --reason x --yes -o "+format)
			s.run(t, "refs delete p --prefix refs/heads/d --yes -o "+format)
			s.run(t, "refs rollback p refs/heads/r1 refs/heads/r2 --yes -o "+format)
			s.run(t, "history prune --older-than 1d --yes -o "+format)
			s.run(t, "followers remove nobody --yes -o "+format)
			s.run(t, "refs purge-tombstones p --older-than 1d --yes -o "+format)
			s.run(t, "project remove s --yes -o "+format)
			w.wrap = nil
		}
		w.wrap = func(d refdb.Driver) refdb.Driver { return unrecordable{d} }
		for _, args := range []string{"locks purge --stale --yes", "locks resolve --site there --keep-old --reason x --yes",
			"refs delete p --prefix refs/heads/d --yes", "refs rollback p refs/heads/r1 --yes", "history prune --older-than 1d --yes",
			"refs purge-tombstones p --older-than 1d --yes", "project remove s --yes"} {
			s.run(t, args)
		}
		w.wrap = func(d refdb.Driver) refdb.Driver {
			return &meanwhile{Driver: d, do: func() { s.release(t, "refs/heads/a") }}
		}
		s.run(t, "locks purge --stale --yes")
		w.wrap = nil
		s.run(t, "locks purge --stale --yes")
		s.run(t, "locks purge --owner live --force --yes -o csv")
		w.wrap = func(d refdb.Driver) refdb.Driver { return &meanwhile{Driver: d, do: func() { s.finish(t) }} }
		s.run(t, "locks resolve --site there --keep-old --reason x --yes")
		w.wrap = nil
		s.run(t, "locks resolve --site there --take-new --reason x --yes -o json")
		w.wrap = func(d refdb.Driver) refdb.Driver {
			return &meanwhile{Driver: d, do: func() { s.put(t, "refs/heads/d3", "9") }}
		}
		s.run(t, "refs delete p --prefix refs/heads/d --yes -o csv")
		w.wrap = nil
		s.run(t, "refs delete p --prefix refs/heads/d --yes")
		w.wrap = func(d refdb.Driver) refdb.Driver {
			return &meanwhile{Driver: d, do: func() { s.put(t, "refs/heads/r2", "9") }}
		}
		s.run(t, "refs rollback p refs/heads/r1 refs/heads/r2 --yes")
		w.wrap = nil
		s.run(t, "refs rollback p refs/heads/r1 refs/heads/r2 --yes")
		s.interrupt(t, "refs rollback big --at "+s.past+" --yes -o csv")
		s.interrupt(t, "refs delete big --prefix refs/ --yes -o csv")
		s.lock(t, "p", "refs/heads/a", "dead/4")
		time.Sleep(time.Hour)
		s.interrupt(t, "locks purge --stale --yes -o json")
		s.run(t, "refs purge-tombstones p --older-than 1d --yes -o json")
		time.Sleep(72 * time.Hour)
		s.run(t, "refs purge-tombstones p --older-than 1d --yes")
		s.run(t, "history prune --older-than 1d --keep 0 --yes")
		s.run(t, "history prune --older-than 1d --keep 0 --yes -o csv")
		s.run(t, "project remove q --force --yes")
	})
	const file = "testdata/operations.txt"
	want, err := os.ReadFile(file)
	if err != nil {
		t.Error(err)
	}
	if got := varying(transcript.String()); got != string(want) {
		at := 0
		lines, wanted := strings.Split(got, "\n"), strings.Split(string(want), "\n")
		for at < min(len(lines), len(wanted))-1 && lines[at] == wanted[at] {
			at++
		}
		t.Errorf("%s:%d: got\n%s\ninstead of\n%s", file, at+1, lines[at], wanted[at])
		if err := os.WriteFile(t.ArtifactDir()+"/operations.txt", []byte(got), 0o644); err != nil {
			t.Error(err)
		}
	}
}

// operationsScript runs commands, and writes them and what they print to a transcript.
type operationsScript struct {
	*world
	to      *strings.Builder
	db      *refdb.DB
	pending intents.Preparation
	past    string // a position before project big had refs

	recorded map[string]bool // acts, by ID
}

func (s *operationsScript) prepareLocks(tb testing.TB) {
	tb.Helper()
	s.db = s.open(tb)
	ctx := tb.Context()
	s.lock(tb, "p", "refs/heads/a", "dead/1")
	s.lock(tb, "p", "refs/heads/b", "dead/2")
	s.lock(tb, "big", "refs/heads/lock", "dead/3")
	for _, ref := range []string{"d1", "d2", "d3", "r1", "r2", "same"} {
		s.put(tb, "refs/heads/"+ref, "1")
		s.put(tb, "refs/heads/"+ref, "2")
	}
	s.put(tb, "refs/heads/same", "1")
	s.put(tb, "refs/heads/same", "2")
	s.putIn(tb, "q", mainRef, "1")
	s.putIn(tb, "s", mainRef, "1")
	s.past = fmt.Sprint(s.newest(tb))
	var updates []refdb.Update
	for _, ref := range branches(3000) {
		updates = append(updates, refdb.Update{Ref: ref, New: refdb.Value(id("1"))})
	}
	if err := s.db.Update(ctx, "big", updates); err != nil {
		tb.Fatal(err)
	}
	time.Sleep(time.Hour)
	s.lock(tb, "p", "refs/heads/d2", "live/1")
	s.lock(tb, "q", "refs/heads/x", "live/1")
	var err error
	s.pending, err = s.db.Intents().Prepare(ctx, "i", []refdb.Update{{Ref: mainRef, New: refdb.Value(id("3"))}, {Ref: "refs/sequences/n", New: refdb.Value(id("4"))}}, "agent")
	if err != nil {
		tb.Fatal(err)
	}
	if _, err := s.db.Intents().Prepare(ctx, "j", []refdb.Update{{Ref: mainRef, New: refdb.Value(id("5"))}}, "agent"); err != nil {
		tb.Fatal(err)
	}
}

// lock takes a lock on behalf of a process that does not renew it.
func (s *operationsScript) lock(tb testing.TB, project, ref, owner string) {
	tb.Helper()
	r := driver.AcquireRequest{Project: project, Refs: []string{ref}, Owner: owner, Nonce: owner, StaleAfter: 30 * time.Second}
	if _, err := s.memory.Open().Acquire(tb.Context(), r); err != nil {
		tb.Fatal(err)
	}
}

func (s *operationsScript) put(tb testing.TB, ref, digit string) {
	tb.Helper()
	s.putIn(tb, "p", ref, digit)
}

func (s *operationsScript) putIn(tb testing.TB, project, ref, digit string) {
	tb.Helper()
	if _, err := s.db.Put(tb.Context(), project, ref, refdb.Value(id(digit))); err != nil {
		tb.Error(err)
	}
}

func (s *operationsScript) newest(tb testing.TB) refdb.Position {
	tb.Helper()
	for c, err := range s.db.History(tb.Context(), "s", "") {
		if err != nil {
			tb.Fatal(err)
		}
		return c.Position
	}
	return 0
}

// release ends another owner's lock.
func (s *operationsScript) release(tb testing.TB, ref string) {
	tb.Helper()
	for l, err := range s.db.Locks(tb.Context(), refdb.LockFilter{Project: "p", Ref: ref}) {
		if err == nil {
			_, err = s.db.Operator().Purge(tb.Context(), []refdb.LockInfo{l})
		}
		if err != nil {
			tb.Error(err)
		}
	}
}

// finish ends the intents on project i, as their site does.
func (s *operationsScript) finish(tb testing.TB) {
	tb.Helper()
	if err := s.db.Intents().Finish(tb.Context(), s.pending, nil, []string{mainRef}); err != nil {
		tb.Error(err)
	}
}

func (s *operationsScript) run(tb testing.TB, args string) {
	tb.Helper()
	s.runIn(tb, tb.Context(), args)
}

func (s *operationsScript) runIn(tb testing.TB, ctx context.Context, args string) {
	tb.Helper()
	r := s.world.runIn(tb, ctx, strings.Fields(args)...)
	fmt.Fprintf(s.to, "$ refdbctl %s\n", args)
	if n := strings.Count(r.out, "\n"); n > 100 {
		fmt.Fprintf(s.to, "(%d lines)\n", n)
	} else {
		s.to.WriteString(r.out)
	}
	for line := range strings.Lines(r.err) {
		s.to.WriteString("! " + line)
	}
	fmt.Fprintf(s.to, "(exit status %d)\n", r.code)
	for e, err := range s.db.Audit().All(tb.Context(), audit.Filter{}) {
		if err != nil {
			tb.Fatal(err)
		}
		if !s.recorded[e.ID] {
			s.recorded[e.ID] = true
			fmt.Fprintf(s.to, "(audit: %s; project %q; %s; reason %q; %s)\n", e.Action, e.Project, e.Detail, e.Reason, e.Outcome)
		}
	}
	s.to.WriteString("\n")
}

// interrupt runs a command that is interrupted while it makes its first change.
func (s *operationsScript) interrupt(tb testing.TB, args string) {
	tb.Helper()
	ctx, cancel := context.WithCancelCause(tb.Context())
	s.wrap = func(d refdb.Driver) refdb.Driver {
		return modest{&meanwhile{Driver: d, do: func() { cancel(&exit.Interrupted{Signal: syscall.SIGINT}) }}, 1000}
	}
	s.runIn(tb, ctx, args)
	s.wrap = nil
}

// meanwhile is a driver that does something once, before the first change.
type meanwhile struct {
	refdb.Driver
	do func()
}

func (m *meanwhile) once() {
	if m.do != nil {
		m.do()
		m.do = nil
	}
}

func (m *meanwhile) Update(ctx context.Context, r driver.UpdateRequest) error {
	m.once()
	return m.Driver.Update(ctx, r)
}

func (m *meanwhile) Purge(ctx context.Context, locks []driver.StandingLock) ([]bool, error) {
	m.once()
	return m.Driver.Purge(ctx, locks)
}

func (m *meanwhile) Resolve(ctx context.Context, r driver.ResolveRequest) ([]bool, error) {
	m.once()
	return m.Driver.Resolve(ctx, r)
}

// failing is a driver that makes no change.
type failing struct{ refdb.Driver }

var errFull = fmt.Errorf("disk full")

func (failing) Update(context.Context, driver.UpdateRequest) error { return errFull }

func (failing) Purge(context.Context, []driver.StandingLock) ([]bool, error) { return nil, errFull }

func (failing) Resolve(context.Context, driver.ResolveRequest) ([]bool, error) { return nil, errFull }

func (failing) PurgeTombstones(context.Context, driver.TombstoneRequest) (int, error) {
	return 0, errFull
}

func (failing) Remove(context.Context, driver.RemoveRequest) (int, error) { return 0, errFull }

func (failing) Prune(context.Context, driver.PruneRequest) (driver.Pruned, error) {
	return driver.Pruned{}, errFull
}

// unrecordable is a driver that can't record acts.
type unrecordable struct{ refdb.Driver }

func (unrecordable) Record(context.Context, driver.AuditEntry) (time.Time, error) {
	return time.Time{}, errFull
}

// modest is a driver that takes few refs at once.
type modest struct {
	refdb.Driver
	most int
}

func (m modest) Update(ctx context.Context, r driver.UpdateRequest) error {
	if n := len(r.Updates); n > m.most {
		return fmt.Errorf("%w: %d refs", refdb.ErrTooMany, n)
	}
	return m.Driver.Update(ctx, r)
}
