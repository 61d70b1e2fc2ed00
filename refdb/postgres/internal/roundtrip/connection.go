package roundtrip

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// notes hold what is known about a connection, and are stored with it.
type notes struct {
	warned bool  // a warning has arrived
	number int64 // its number among the driver's connections, from 1 on
	// described holds the statements that the server has described on it, behind a pooler.
	described map[string]bool
}

const notesKey = "refdb"

// notesOn returns the notes on conn. All calls return the same ones.
func notesOn(conn *pgconn.PgConn) *notes {
	data := conn.CustomData()
	n, ok := data[notesKey].(*notes)
	if !ok {
		n = new(notes)
		data[notesKey] = n
	}
	return n
}

// noteWarning receives the server's notices. A commit that stops waiting for its synchronous
// standby, because it is cancelled or terminated, warns and then reports success: it is durable on
// the server but not on the standby. The warning has no code of its own. So any warning that
// arrives with a commit counts; a statement's own warnings arrive earlier.
func noteWarning(conn *pgconn.PgConn, n *pgconn.Notice) {
	// The codes of a cancelled wait, and of a wait that ends because the connection is terminated.
	if n.Code == warning || n.Code == adminShutdown {
		notesOn(conn).warned = true
	}
}

// probeSQL takes an advisory lock in each of the ways in which keys are taken, and looks for these
// locks in the server's list, because servers that only speak PostgreSQL's protocol may report
// success without taking a lock. The keys are this connection's own, so nothing waits. The
// statements are one message, and so one transaction, which a transaction pooler doesn't split.
const probeSQL = `
pg_catalog.pg_advisory_xact_lock(own OPERATOR(pg_catalog.+) 1), pg_catalog.pg_advisory_xact_lock_shared(own OPERATOR(pg_catalog.+) 2),
       pg_catalog.pg_try_advisory_xact_lock(own OPERATOR(pg_catalog.+) 3), pg_catalog.pg_try_advisory_xact_lock_shared(own OPERATOR(pg_catalog.+) 4)
  FROM (SELECT CAST(pg_catalog.pg_backend_pid() AS pg_catalog.int8) OPERATOR(pg_catalog.<<) 32 AS own) AS keys;
SELECT pg_catalog.set_config('search_path', 'pg_catalog', true);
SELECT count(*) = 4, pg_is_in_recovery() FROM pg_locks
 WHERE locktype = 'advisory' AND granted AND pid = pg_backend_pid() AND classid = pid::oid AND objsubid = 1
   AND (objid, mode) IN ((1, 'ExclusiveLock'), (2, 'ShareLock'), (3, 'ExclusiveLock'), (4, 'ShareLock'))`

// Probe is the first round trip of a new connection. It refuses a session or a server that can't
// keep requests apart and, once the database is open, a standby.
func (s *Settings) Probe(ctx context.Context, conn *pgx.Conn) error {
	results, err := conn.PgConn().Exec(ctx, s.guarded(probeSQL)).ReadAll()
	if Code(err) == divisionByZero {
		err = s.explain(ctx, conn, err)
	}
	if err != nil {
		return err
	}
	found := results[len(results)-1].Rows
	if len(found) != 1 || len(found[0]) != 2 || string(found[0][0]) != "t" {
		return ErrNoLocks
	}
	if string(found[0][1]) == "t" && s.searchPath != "" { // otherwise the caller reports more
		return ErrStandby // its data may be old
	}
	return nil
}
