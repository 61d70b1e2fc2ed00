package postgres

import "github.com/jackc/pgx/v5/pgconn"

const warnedKey = "refdb.warned"

// warnedOn returns where it is noted that a warning came on conn: the same
// place each time.
func warnedOn(conn *pgconn.PgConn) *bool {
	data := conn.CustomData()
	warned, ok := data[warnedKey].(*bool)
	if !ok {
		warned = new(bool)
		data[warnedKey] = warned
	}
	return warned
}

// noteWarning is called with what the server says beside its answers. A commit
// that gives up waiting for its synchronous standby, because somebody cancels
// or terminates it, warns and then reports success: it is durable here but not
// there. It has no code of its own, so that any warning counts that comes with
// a commit; a statement's own warnings come earlier.
func noteWarning(conn *pgconn.PgConn, n *pgconn.Notice) {
	const (
		warning       = "01000" // canceling wait for synchronous replication
		adminShutdown = "57P01" // the same, and terminating the connection
	)
	if n.Code == warning || n.Code == adminShutdown {
		*warnedOn(conn) = true
	}
}
