package sqlite

import (
	"context"
	"errors"
	"strings"
	"testing"

	lib "modernc.org/sqlite/lib"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
)

// coded is an error of SQLite, whose text must not matter.
type coded int

func (c coded) Error() string { return "database is locked, or full, or whatever" }
func (c coded) Code() int     { return int(c) }

func TestErrorsAreDistinguishedByTheirCodes(t *testing.T) {
	const (
		permanent   = driver.Permanent
		unknown     = driver.OutcomeUnknown
		unavailable = driver.Retryable
	)
	for _, e := range []struct {
		name           string
		code           int
		before, commit driver.Class
	}{
		{"BUSY", lib.SQLITE_BUSY, unavailable, unavailable},
		{"BUSY_SNAPSHOT", lib.SQLITE_BUSY_SNAPSHOT, unavailable, unavailable},
		{"BUSY_RECOVERY", lib.SQLITE_BUSY_RECOVERY, unavailable, unavailable},
		{"LOCKED", lib.SQLITE_LOCKED, unavailable, unavailable},
		{"PROTOCOL", lib.SQLITE_PROTOCOL, unavailable, unavailable},
		{"FULL", lib.SQLITE_FULL, permanent, permanent},
		{"IOERR_WRITE", lib.SQLITE_IOERR_WRITE, permanent, permanent},
		{"IOERR_FSYNC", lib.SQLITE_IOERR_FSYNC, permanent, unknown},
		{"IOERR_SHMSIZE", lib.SQLITE_IOERR_SHMSIZE, permanent, unknown},
		{"IOERR_READ", lib.SQLITE_IOERR_READ, permanent, unknown},
		{"IOERR", lib.SQLITE_IOERR, permanent, unknown},
		{"NOMEM", lib.SQLITE_NOMEM, permanent, unknown},
		{"CORRUPT", lib.SQLITE_CORRUPT, permanent, unknown},
		{"NOTADB", lib.SQLITE_NOTADB, permanent, unknown},
		{"READONLY", lib.SQLITE_READONLY, permanent, unknown},
		{"READONLY_DIRECTORY", lib.SQLITE_READONLY_DIRECTORY, permanent, unknown},
		{"CANTOPEN", lib.SQLITE_CANTOPEN, permanent, unknown},
		{"CONSTRAINT", lib.SQLITE_CONSTRAINT, permanent, unknown},
		{"ERROR", lib.SQLITE_ERROR, permanent, unknown},
	} {
		err := explain("/a.db", "beat", coded(e.code))
		if got := driver.ClassOf(err); got != e.before {
			t.Errorf("%s is %v, want %v", e.name, got, e.before)
		}
		if got := errors.Is(err, driver.ErrUnavailable); got != (e.before == unavailable) {
			t.Errorf("%s is ErrUnavailable: %v", e.name, got)
		}
		err = explainCommit("/a.db", "beat", coded(e.code))
		if got := driver.ClassOf(err); got != e.commit {
			t.Errorf("%s of a COMMIT is %v, want %v", e.name, got, e.commit)
		}
		if !strings.HasPrefix(err.Error(), `sqlite file "/a.db": beat: commit: `) {
			t.Errorf("%s: %v", e.name, err)
		}
		if !errors.Is(err, coded(e.code)) {
			t.Errorf("%s: SQLite's own error is lost: %v", e.name, err)
		}
	}
}

func TestAnInterruptedReadReturnsItsContextsError(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := ended(ctx, coded(lib.SQLITE_INTERRUPT)); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if err := ended(ctx, nil); err != nil {
		t.Errorf("a completed read returns %v", err)
	}
	if err := ended(t.Context(), coded(lib.SQLITE_INTERRUPT)); err != coded(lib.SQLITE_INTERRUPT) {
		t.Errorf("got %v", err)
	}
}
