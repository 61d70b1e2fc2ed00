package roundtrip

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/puddle/v2"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
)

// SQLSTATEs, as the server's errcodes.txt lists them.
const (
	warning             = "01000"
	featureNotSupported = "0A000"
	divisionByZero      = "22012"
	readOnlyTransaction = "25006"
	idleInTransaction   = "25P03" // for longer than idle_in_transaction_session_timeout
	longTransaction     = "25P04" // than transaction_timeout
	noSuchStatement     = "26000"
	wrongAuthorization  = "28000"
	wrongPassword       = "28P01"
	noSuchDatabase      = "3D000"
	noSuchSchema        = "3F000"
	serialization       = "40001"
	deadlock            = "40P01"
	NoPrivilege         = "42501"
	noSuchColumn        = "42703"
	NoSuchTable         = "42P01"
	noSuchFunction      = "42883"
	duplicateStatement  = "42P05"
	diskFull            = "53100"
	outOfMemory         = "53200"
	LockNotAvailable    = "55P03"
	queryCanceled       = "57014"
	adminShutdown       = "57P01"
	crashShutdown       = "57P02"
	databaseDropped     = "57P04"
	idleSessionTimeout  = "57P05"
	notAdmitted         = "RDB01" // of our trigger: see migrations/postgres

	// These are prefixes of SQLSTATEs.
	ConnectionException = "08"
	transactionRollback = "40"
	lackOfResources     = "53"
	intervention        = "57P"
)

// A verdict is the meaning of a failed round trip.
type verdict struct {
	err    error
	again  bool // it changed nothing, and may succeed right now
	waited bool // it changed nothing, and waited for a lock for as long as the server allows
}

// Failure returns the error that driver.Driver requires for a read-only operation that reached the
// given stage and failed with err.
func Failure(ctx context.Context, what string, came Stage, err error) error {
	return judge(ctx, Read(what), came, err).err
}

// judge returns the outcome of a round trip that reached the given stage and failed with err.
//
// The server answers a statement before it reads the next message, and commits at the Sync. So an
// error instead of a statement's answer means that the transaction was rolled back, even if the
// error ends the connection (FATAL): deadlock, shutdown, termination by an administrator. After the
// last answer, only class 40 means that, with which the server refuses to commit; any other error
// may come after the commit. Class 08 does not come from the server: a pooler uses it to report
// that it lost the server.
func judge(ctx context.Context, work Pipeline, came Stage, err error) verdict {
	code := Code(err)
	broken := code == "" || strings.HasPrefix(code, ConnectionException)
	nothing := came < Executing ||
		came == Executing && !broken ||
		came == Committing && strings.HasPrefix(code, transactionRollback)
	over := ctx.Err() // why the caller no longer waits
	if over != nil && context.Cause(ctx) == errEnded {
		over = errEnded
		if errors.Is(err, context.Canceled) {
			err = errEnded // the caller cancelled nothing
		}
	}

	var v verdict
	switch {
	case !nothing && work.writes:
		v.err = driver.ErrOutcomeUnknown
	case errors.Is(err, puddle.ErrClosedPool):
		v.err = driver.ErrClosed
	case errors.As(err, new(*wrongSetting)), errors.Is(err, ErrNoLocks): // err is complete
	case over != nil && (broken || code == queryCanceled || code == LockNotAvailable):
		if !errors.Is(err, over) {
			v.err = over
		}
	case errors.Is(err, pgconn.ErrReadOnlyConnection):
		v.err = fmt.Errorf("%w: %w", driver.ErrUnavailable, errNoPrimary)
	case broken:
		v = verdict{err: driver.ErrUnavailable, again: came != Connecting}
	default:
		v = refused(code)
	}
	if v.err == nil || errors.Is(err, v.err) { // err already says so
		v.err = fmt.Errorf("%s: %w", work.What, oneLine{err})
	} else {
		v.err = fmt.Errorf("%s: %w: %w", work.What, v.err, oneLine{err})
	}
	if over != nil && !errors.Is(v.err, over) {
		v.err = fmt.Errorf("%w (%w)", v.err, over)
	}
	return v
}

// refused returns the verdict on a refusal by the server, after which certainly nothing was
// changed. A verdict without an error keeps the server's own message.
func refused(code string) verdict {
	switch code {
	case serialization, deadlock, adminShutdown, crashShutdown, idleSessionTimeout, idleInTransaction, longTransaction, outOfMemory:
		return verdict{err: driver.ErrUnavailable, again: true}
	case LockNotAvailable: // by lock_timeout
		return verdict{err: driver.ErrUnavailable, waited: true}
	case queryCanceled: // by statement_timeout or by an administrator
		return verdict{err: driver.ErrUnavailable}
	case readOnlyTransaction:
		return verdict{err: fmt.Errorf("%w: %w", driver.ErrUnavailable, ErrReadOnly), again: true}
	case notAdmitted:
		return verdict{err: driver.ErrNotAdmitted}
	case divisionByZero: // see Settings
		return verdict{err: errSettings, again: true}
	case featureNotSupported: // of a prepared statement: its tables were altered
		return verdict{again: true}
	case noSuchStatement, duplicateStatement:
		return verdict{err: errPooler, again: true}
	case NoSuchTable, noSuchColumn, noSuchSchema:
		return verdict{err: fmt.Errorf("%w: run `refdbctl migrate up`", driver.ErrSchema)}
	case noSuchFunction:
		return verdict{err: fmt.Errorf("%w: run `refdbctl doctor`", driver.ErrSchema)}
	case diskFull:
		return verdict{err: errDiskFull}
	case NoPrivilege:
		return verdict{err: errPrivilege}
	case wrongPassword:
		return verdict{err: errPassword}
	case wrongAuthorization:
		return verdict{err: errAuthorization}
	case noSuchDatabase, databaseDropped:
		return verdict{err: errDatabase}
	}
	if strings.HasPrefix(code, lackOfResources) || strings.HasPrefix(code, intervention) {
		return verdict{err: driver.ErrUnavailable}
	}
	return verdict{}
}

// resetReadOnly says how to make a server that is not a standby accept writes again.
const resetReadOnly = "reset default_transaction_read_only where it is set: ALTER ROLE … RESET, ALTER DATABASE … RESET, or postgresql.conf"

// These errors persist until an operator acts, and say what to do.
var (
	ErrReadOnly      = errors.New("the server is read-only: if it is a standby, add target_session_attrs=read-write to the database URL, and name all servers there; if it is not, " + resetReadOnly)
	ErrStandby       = errors.New("the server is a standby, which accepts no writes: add target_session_attrs=read-write to the database URL, and name all servers there")
	ErrLeftReadOnly  = errors.New("default_transaction_read_only is on, but the server is not a standby: " + resetReadOnly)
	errPooler        = errors.New("the pooler in between does not support prepared statements: add default_query_exec_mode=cache_describe to the database URL")
	errDiskFull      = errors.New("the server's disk is full: free some space")
	errPrivilege     = errors.New("the database user lacks a privilege: grant it what the check privileges of refdbctl doctor names; refdbctl migrate, history prune and recover need the owner of the tables")
	errPassword      = error(credentialsError("the server refused the user or the password: check the database URL"))
	errAuthorization = error(credentialsError("the server does not let this user in from this machine: check pg_hba.conf there, and that the role exists and has LOGIN"))
	errNoPrimary     = errors.New("no server in the database URL accepts writes, but target_session_attrs requires one: name the primary there, or wait until one is promoted; if the primary is there, " + resetReadOnly)
	errDatabase      = errors.New("no such database: create it, or check the database URL")

	// ErrNoLocks is the error for a server that Probe refused.
	ErrNoLocks = errors.New("the server reports advisory locks as taken but doesn't keep them, so nothing would exclude concurrent writers: " +
		"use PostgreSQL")

	errEnded = fmt.Errorf("%w before the answer came", driver.ErrClosed)

	errNotConfirmed = errors.New("the wait for the standby's confirmation was cancelled: the transaction is committed on this server, but perhaps not on the standby")
)

// A credentialsError replaces the message of driver.ErrCredentials.
type credentialsError string

func (e credentialsError) Error() string        { return string(e) }
func (e credentialsError) Is(target error) bool { return target == driver.ErrCredentials }

// Code returns the SQLSTATE of a server's or pooler's error, or "".
func Code(err error) string {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return pg.Code
	}
	return ""
}

// oneLine is an error whose text is put on one line: pgx reports one line per address that it
// tried. It omits TLS attempts that were followed by an attempt in plaintext.
type oneLine struct{ error }

func (e oneLine) Error() string {
	lines := strings.Split(e.error.Error(), "\n")
	kept := lines[:0:0]
	for i, line := range lines {
		address, ok := strings.CutSuffix(line, "tls error: server refused TLS connection")
		if ok && i+1 < len(lines) && strings.HasPrefix(lines[i+1], address) {
			continue
		}
		kept = append(kept, line)
	}
	return strings.Join(strings.Fields(strings.Join(kept, " ")), " ")
}
func (e oneLine) Unwrap() error { return e.error }
