package postgres_test

import (
	"net"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/test/dbtest"
)

// pretend makes a database claim that its server is another one.
func pretend(t *testing.T, db *dbtest.Database, version string) {
	t.Helper()
	db.Exec(t, `ALTER FUNCTION pg_catalog.version() RENAME TO hidden_version`)
	db.Exec(t, `CREATE FUNCTION pg_catalog.version() RETURNS text LANGUAGE sql AS $$ SELECT '`+version+`' $$`)
}

func TestAServerThatIsNotPostgreSQLIsRefusedByItsName(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name string
		as   func(t *testing.T, db *dbtest.Database)
		says string
	}{
		{"CockroachDB", func(t *testing.T, db *dbtest.Database) {
			pretend(t, db, "CockroachDB CCL v23.1.11 (x86_64-pc-linux-gnu, built 2023/09/27 01:53:43, go1.19.10)")
			hide(t, db, "pg_advisory_xact_lock")
		}, "the server is CockroachDB (CockroachDB CCL v23.1.11 (x86_64-pc-linux-gnu, built 2023/09…), which lacks one server with one log"},
		{"YugabyteDB", func(t *testing.T, db *dbtest.Database) {
			pretend(t, db, "PostgreSQL 15.2-YB-2025.1.0.0-b0 on x86_64-pc-linux-gnu, compiled by clang")
		}, "the server is YugabyteDB (PostgreSQL 15.2-YB-2025.1.0.0-b0), which lacks one server with one log"},
		{"Redshift", func(t *testing.T, db *dbtest.Database) {
			pretend(t, db, "PostgreSQL 8.0.2 on i686-pc-linux-gnu, compiled by GCC gcc (GCC) 3.4.2, Redshift 1.0.12103")
		}, "the server is Amazon Redshift"},
		{"Greenplum", func(t *testing.T, db *dbtest.Database) {
			pretend(t, db, "PostgreSQL 12.12 (Greenplum Database 7.1.0 build commit:e7c2b1f) on x86_64-pc-linux-gnu")
		}, "the server is Greenplum"},
		{"an unknown database", func(t *testing.T, db *dbtest.Database) {
			pretend(t, db, "NewDB 1.0\non Mars")
		}, `the server calls itself "NewDB 1.0"`},
		{"Citus", func(t *testing.T, db *dbtest.Database) {
			db.Exec(t, `SET allow_system_table_mods = on; INSERT INTO pg_extension
				SELECT 4000000000, 'citus', extowner, extnamespace, true, '12.1', NULL, NULL FROM pg_extension WHERE extname = 'plpgsql'`)
		}, "the database has the extension citus"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			db := dbtest.Postgres(t)
			row.as(t, db)
			for way, url := range map[string]string{"directly": db.URL(), "through PgBouncer": dbtest.PgBouncer(t, db.URL())} {
				for name, err := range openers(t.Context(), url) {
					wantLine(t, err, row.says)
					wantLine(t, err, "docs/DATABASES.md")
					if driver.ClassOf(err) != driver.Permanent {
						t.Errorf("%s, %s: %v is %s", name, way, err, driver.ClassOf(err))
					}
				}
			}
		})
	}
}

// A server may not even parse the queries for PostgreSQL.
func TestAServerThatReportsOnlyItsVersionIsRefusedByItsName(t *testing.T) {
	t.Parallel()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			serveVersionOnly(pgproto3.NewBackend(c, c), "CockroachDB CCL v26.3.0 (x86_64-pc-linux-gnu)")
			c.Close()
		}
	}()
	t.Cleanup(func() {
		ln.Close()
		<-done
	})
	for _, err := range openers(t.Context(), "postgres://u:"+secret+"@"+ln.Addr().String()+"/db?sslmode=disable&require_auth=none") {
		// docs/DATABASES.md quotes this error.
		wantLine(t, err, "open the database: the server is CockroachDB (CockroachDB CCL v26.3.0 (x86_64-pc-linux-gnu)), which lacks one server with one log and one sequence of transaction IDs: use PostgreSQL; docs/DATABASES.md lists the databases that work")
	}
}

// serveVersionOnly answers a client until it disconnects.
func serveVersionOnly(b *pgproto3.Backend, version string) {
	m, err := b.ReceiveStartupMessage()
	if _, ok := m.(*pgproto3.StartupMessage); err != nil || !ok {
		return
	}
	b.Send(&pgproto3.AuthenticationOk{})
	b.Send(&pgproto3.BackendKeyData{ProcessID: 1, SecretKey: []byte{0, 0, 0, 1}})
	for {
		b.Send(&pgproto3.ReadyForQuery{TxStatus: 'I'})
		if b.Flush() != nil {
			return
		}
		m, err := b.Receive()
		if err != nil {
			return
		}
		q, ok := m.(*pgproto3.Query)
		switch {
		case !ok:
			return // the client ends the connection
		case q.String == "SELECT pg_catalog.version()":
			b.Send(&pgproto3.RowDescription{Fields: []pgproto3.FieldDescription{{Name: []byte("version"), DataTypeOID: 25}}})
			b.Send(&pgproto3.DataRow{Values: [][]byte{[]byte(version)}})
			b.Send(&pgproto3.CommandComplete{CommandTag: []byte("SELECT 1")})
		default:
			b.Send(&pgproto3.ErrorResponse{Severity: "ERROR", SeverityUnlocalized: "ERROR", Code: "42601", Message: "at or near \"(\": syntax error"})
		}
	}
}

// If a hosting service runs the server, Diagnose names it. The service's role exists on the whole
// server.
func TestAServersServiceIsNamed(t *testing.T) {
	t.Parallel()
	s := dbtest.StartPostgres(t)
	says := func(want string, note bool) {
		t.Helper()
		found, err := open(t, s.URL()).Diagnose(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range found {
			if d.Name == "server version" && (!d.OK || d.Note != note || !strings.Contains(d.Detail, want)) {
				t.Errorf("%+v; want %q, a note: %v", d, want, note)
			}
		}
	}
	execute := func(sql ...string) {
		t.Helper()
		if err := s.Exec(t.Context(), "refdb", sql...); err != nil {
			t.Fatal(err)
		}
	}
	says("PostgreSQL ", false)
	execute(`CREATE ROLE supabase_admin`)
	says(", run by Supabase", false)
	execute(`CREATE ROLE rds_superuser`)
	says(", run by Amazon RDS", false)

	const version = `CREATE FUNCTION pg_catalog.aurora_version() RETURNS text LANGUAGE sql AS $$ SELECT '15.4.1' $$`
	execute(version)
	says("Amazon Aurora 15.4.1, PostgreSQL ", true)
	// Aurora without logical replication: https://github.com/jobinau/pg_gather/issues/9
	execute(`ALTER FUNCTION pg_catalog.pg_current_wal_lsn() RENAME TO hidden_pg_current_wal_lsn`,
		`CREATE FUNCTION pg_catalog.pg_current_wal_lsn() RETURNS pg_lsn LANGUAGE plpgsql AS $$ BEGIN RAISE object_not_in_prerequisite_state
			USING MESSAGE = 'wal_level must be set to ''logical''', HINT = 'WAL control functions cannot be executed when wal_level < logical.'; END $$`)
	for _, err := range openers(t.Context(), s.URL()) {
		wantLine(t, err, "the server is Amazon Aurora, which reports the end of its log, by which a failover is detected, only with logical replication: set rds.logical_replication to 1")
		wantLine(t, err, "wal_level must be set to 'logical'")
	}
}
