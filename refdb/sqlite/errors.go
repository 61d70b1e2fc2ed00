package sqlite

import (
	"context"
	"errors"
	"fmt"

	lib "modernc.org/sqlite/lib"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
)

const needsAccess = "this process needs write access to the file, its directory and its file system"

// code returns SQLite's result code of an error, and 0 if it has none.
func code(err error) int {
	if coded, ok := errors.AsType[interface {
		error
		Code() int
	}](err); ok {
		return coded.Code()
	}
	return 0
}

// busy reports whether err means that another connection kept the file locked.
func busy(err error) bool {
	switch code(err) & 0xff {
	case lib.SQLITE_BUSY, lib.SQLITE_LOCKED, lib.SQLITE_PROTOCOL:
		return true
	}
	return false
}

// explain converts an error of SQLite into one of driver.Driver, and adds the operation, the file,
// and what to do. The request was certainly not carried out.
func explain(path, doing string, err error) error {
	if busy(err) {
		err = fmt.Errorf("%w: %w", driver.ErrUnavailable, err)
	}
	if advice := advise(err); advice != "" {
		err = fmt.Errorf("%w: %s", err, advice)
	}
	return fmt.Errorf("sqlite file %q: %s: %w", path, doing, err)
}

// explainCommit is explain for a COMMIT that failed. The transaction was rolled back.
func explainCommit(path, doing string, err error) error {
	if !certain(err) {
		err = fmt.Errorf("%w: %w", driver.ErrOutcomeUnknown, err)
	}
	return explain(path, doing+": commit", err)
}

// certain reports whether a COMMIT that failed with err certainly did nothing, and never will.
//
// A COMMIT takes its locks, and then writes in three steps:
//   - The transaction's pages go to the log. The last one marks the commit, with a checksum over all.
//   - The log is synced.
//   - The index in shared memory is updated. Only then do others see the transaction.
//
// Before the last page is completely written, nothing has happened, so a COMMIT certainly did nothing
// if it failed at a lock or a write. If the sync or the index fails, no process sees the transaction,
// but its pages are in the log. The next commit overwrites them. If the machine crashes before that,
// the recovery of the log finds them and takes the transaction for committed.
func certain(err error) bool {
	switch c := code(err); {
	case busy(err), c == lib.SQLITE_IOERR_WRITE:
		return true
	default:
		return c&0xff == lib.SQLITE_FULL
	}
}

// advise returns what to do about an error of SQLite.
func advise(err error) string {
	switch code(err) & 0xff {
	case lib.SQLITE_BUSY, lib.SQLITE_LOCKED, lib.SQLITE_PROTOCOL:
		return "other processes keep the file locked; look for one that was stopped"
	case lib.SQLITE_FULL:
		return "nothing was written; free some space on the file's disk"
	case lib.SQLITE_IOERR:
		return "check the file's disk, its space and quota"
	case lib.SQLITE_READONLY:
		return needsAccess
	case lib.SQLITE_CANTOPEN, lib.SQLITE_PERM:
		return needsAccess + ", and file descriptors to spare"
	case lib.SQLITE_CORRUPT:
		return "the file is damaged; stop its processes and restore it from a backup"
	case lib.SQLITE_NOTADB:
		return "name another file"
	}
	return ""
}

// ended puts ctx's error before err if ctx has ended.
func ended(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil && !errors.Is(err, ctx.Err()) {
		return fmt.Errorf("%w: %w", ctx.Err(), err)
	}
	return err
}
