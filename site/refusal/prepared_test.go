package refusal_test

import (
	"fmt"
	"io/fs"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/site/journal"
	"github.com/globalrefdb/globalrefdb/site/refusal"
	"github.com/globalrefdb/globalrefdb/site/wire"
)

func TestWhatIsHeldForLongIsNotTriedAgain(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	// An intent has no beats: its age is that of its last one, which is its token.
	intent := func(ref string, age time.Duration) refdb.LockInfo {
		since := now.Add(-age)
		return refdb.LockInfo{Project: "p", Ref: ref, Owner: "us/1", Token: driver.TokenOf(since), Heartbeat: since, Age: age, StaleAfter: driver.NeverStale}
	}
	for name, c := range map[string]struct {
		holders []refdb.LockInfo
		reason  refusal.Reason
		kind    string
	}{
		"a move of a moment ago":       {[]refdb.LockInfo{intent("refs/heads/a", time.Second)}, refusal.Locked, wire.Retry},
		"a move that a dead site left": {[]refdb.LockInfo{intent("refs/heads/a", time.Minute)}, refusal.Held, wire.Final},
		"one of each":                  {[]refdb.LockInfo{intent("refs/heads/a", time.Minute), intent("refs/heads/b", time.Second)}, refusal.Held, wire.Final},
		"and in the other order":       {[]refdb.LockInfo{intent("refs/heads/a", time.Second), intent("refs/heads/b", time.Minute)}, refusal.Held, wire.Final},
		"a lock that has beats, but is old": {[]refdb.LockInfo{{
			Project: "p", Ref: "refs/heads/a", Owner: "us/1", Token: driver.TokenOf(now.Add(-time.Hour)), Heartbeat: now.Add(-time.Second), Age: time.Second, StaleAfter: 30 * time.Second,
		}}, refusal.Held, wire.Final},
	} {
		t.Run(name, func(t *testing.T) {
			err := refusal.NotPrepared("eu", &refdb.LockedError{Holders: c.holders})
			if got := refusal.ReasonOf(err); got != c.reason {
				t.Errorf("the reason is %s, want %s", got, c.reason)
			}
			if got := refusal.KindOf(err); got != c.kind {
				t.Errorf("it is said to be %s, want %s", got, c.kind)
			}
		})
	}
}

func TestARefusalOfManyRefsIsShort(t *testing.T) {
	t.Parallel()
	var locked refdb.LockedError
	var differ refdb.MismatchError
	var excluded refdb.NameConflictError
	for i := range 100 {
		ref := fmt.Sprintf("refs/heads/%d", i)
		locked.Holders = append(locked.Holders, refdb.LockInfo{Project: "p", Ref: ref, Owner: "us/1", StaleAfter: driver.NeverStale})
		differ.Mismatches = append(differ.Mismatches, refdb.Mismatch{Ref: ref, Want: "a", Have: "b"})
		excluded.Conflicts = append(excluded.Conflicts, refdb.NameConflict{Ref: ref + "/x", With: ref})
	}
	for _, err := range []error{&locked, &differ, &excluded} {
		lines := refusal.LinesOf(refusal.NotPrepared("eu", err))
		if len(lines) != 21 || lines[20] != wire.AndMore(80) {
			t.Errorf("%T: there are %d lines, the last is %q", err, len(lines), lines[len(lines)-1])
		}
	}
}

func TestANameThatAnotherRefExcludesIsRefusedForGood(t *testing.T) {
	t.Parallel()
	err := refusal.NotPrepared("eu", &refdb.NameConflictError{Project: "p", Conflicts: []refdb.NameConflict{{Ref: "refs/heads/t/x", With: "refs/heads/t"}}})
	if got := refusal.ReasonOf(err); got != refusal.Excluded || refusal.KindOf(err) != wire.Final {
		t.Errorf("it is %s, %s", got, refusal.KindOf(err))
	}
	if got := refusal.LinesOf(err); len(got) != 1 || got[0] != wire.Excluded("refs/heads/t/x", "refs/heads/t") {
		t.Errorf("the pusher reads %q", got)
	}
}

func TestAStateThatCanNotBeWrittenIsNotCalledAnOutageOfTheDatabase(t *testing.T) {
	t.Parallel()
	for says, cause := range map[string]error{wire.StateFull: syscall.ENOSPC, wire.StateFailed: syscall.EROFS} {
		err := refusal.DatabaseFailed(fmt.Errorf("%w: it was written, but %w", refdb.ErrOutcomeUnknown, &journal.Error{Err: &fs.PathError{Op: "write", Path: "/var/lib/refdb/journal/changes", Err: cause}}))
		if got := refusal.LinesOf(err); len(got) != 1 || got[0] != says || refusal.ReasonOf(err) != refusal.State {
			t.Errorf("%v: the pusher reads %q, the reason is %s", cause, got, refusal.ReasonOf(err))
		}
	}
}

// A file of the database, or of its address, is none of the daemon's state.
func TestAFileThatIsNoneOfTheJournalIsTheDatabases(t *testing.T) {
	t.Parallel()
	err := refusal.DatabaseFailed(fmt.Errorf("%w: %w", refdb.ErrUnavailable, &fs.PathError{Op: "stat", Path: "/srv/refs.sqlite", Err: syscall.ENOENT}))
	if got := refusal.LinesOf(err); len(got) != 1 || got[0] != wire.DatabaseDown || refusal.ReasonOf(err) != refusal.Database {
		t.Errorf("the pusher reads %q", got)
	}
}

func TestAPusherReadsWhichSitesADatabaseWaitsFor(t *testing.T) {
	t.Parallel()
	seen := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	a := driver.Admission{Server: "new", Witnesses: []driver.Witness{
		{Name: "eu", Server: "new", Seen: seen}, {Name: "fr", Server: "old"}, {Name: "gone", Without: true}, {Name: "us", Server: "old", Seen: seen}, {Name: "za", Server: "old", Seen: seen.Add(time.Second)},
	}}
	for says, err := range map[string]error{
		": waiting for fr, us (last seen 2026-01-02 03:04:05 UTC), za (last seen 2026-01-02 03:04:06 UTC): nothing was changed": a.Err(),
		wire.DatabaseNotCompared + ": nothing was changed":                                                                      refdb.ErrNotAdmitted,
	} {
		got := refusal.LinesOf(refusal.DatabaseFailed(fmt.Errorf("preparing: %w", err)))
		if len(got) != 1 || !strings.HasPrefix(got[0], wire.DatabaseNotCompared) || !strings.Contains(got[0], says) || !refusal.Passes(refusal.DatabaseFailed(err)) {
			t.Errorf("%v: the pusher reads %q", err, got)
		}
	}
}
