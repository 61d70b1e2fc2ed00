package postgres

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/globalrefdb/globalrefdb/migrations"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/postgres/internal/roundtrip"
	"github.com/globalrefdb/globalrefdb/refdb/postgres/internal/schema"
)

// diagnoseSQL counts backends and standbys, for which a user needs no privilege.
const diagnoseSQL = missingSQL + `
SELECT current_setting('server_version'), current_setting('server_version_num')::int,
       current_setting('fsync')::boolean, current_setting('full_page_writes')::boolean,
       (SELECT reset_val FROM pg_settings WHERE name = 'synchronous_commit'), current_setting('synchronous_standby_names'),
       current_setting('default_transaction_isolation'),
       pg_is_in_recovery(), current_setting('transaction_read_only')::boolean,
       current_setting('autovacuum')::boolean,
       current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int,
       (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'),
       (SELECT count(*) FROM pg_stat_replication),
       (SELECT coalesce(string_agg(DISTINCT command, ', '), '') FROM missing, regexp_split_to_table(stops, ', ') AS command),
       ` + grantsSQL + `,
       (SELECT CASE WHEN has_database_privilege('public', current_database(), 'CONNECT') OR has_database_privilege('public', current_database(), 'TEMPORARY')
          THEN coalesce((SELECT string_agg(format('GRANT CONNECT ON DATABASE %I TO %I; ', current_database(), rolname), '' ORDER BY rolname)
            FROM pg_roles WHERE oid IN (SELECT grantee FROM pg_class, aclexplode(relacl) WHERE pg_class.oid = to_regclass('locks') AND grantee <> relowner)), '')
            || format('REVOKE CONNECT, TEMPORARY ON DATABASE %I FROM PUBLIC', current_database())
          ELSE '' END),
       session_user::text`

// holdingSQL finds the oldest open transaction with a transaction ID: changes made since it began
// are not complete. For sessions of other users, the columns are visible only to some roles
// (pg_read_all_stats).
const holdingSQL = `
SELECT holder, coalesce(extract(epoch FROM clock_timestamp() - since), 0)::float8, awaits_standby FROM (
  SELECT format('the prepared transaction %L of database %s', gid, database) AS holder, prepared AS since, transaction AS id,
         false AS awaits_standby FROM pg_prepared_xacts
  UNION ALL
  SELECT format('process %s in database %s', pid, coalesce(datname, '?')), xact_start, backend_xid,
         wait_event IS NOT DISTINCT FROM 'SyncRep' FROM pg_stat_activity
  WHERE backend_xid IS NOT NULL AND pid <> pg_backend_pid()
) AS open ORDER BY age(id) DESC LIMIT 1`

// longOpen is how long a transaction may delay the readers of changes before Diagnose reports it.
const longOpen = time.Minute

// A setup holds the findings of Diagnose.
type setup struct {
	version             string
	number              int
	server              server
	fsync, fullPages    bool
	synchronous         string // synchronous_commit
	standbyNames        string // synchronous_standby_names
	isolation           string
	standby, readOnly   bool
	autovacuum          bool
	room, clients       int // connections that the server has for users, and those in use
	standbys            int
	stopped             string // the commands that fail for lack of privileges
	grants              string // the statements that grant what is missing, "" for none
	closing             string // the statements that exclude the server's other roles, "" if they are excluded
	role, user          string // session_user; the user that the URL names
	mapping             mapping
	tables              string // what is wrong with them, or that they are intact
	intact              bool   // the tables are as they should be
	pooled, readWrite   bool   // connections go through a pooler; the URL requires a server that accepts writes
	hosts, connectsUpTo int    // in the URL; of this driver
	holder              string // the oldest open transaction that this user can see, or ""
	held                time.Duration
	awaitsStandby       bool // the holder has committed, but the synchronous standby has not confirmed the commit
	encryption          driver.Diagnosis
	settings            []driver.Diagnosis // those that transactions verify or set
}

// Diagnose checks the settings that the driver's promises depend on.
func (d *Driver) Diagnose(ctx context.Context) ([]driver.Diagnosis, error) {
	var s setup
	if err := d.connected(ctx, &s); err != nil {
		return nil, err
	}
	version, err := schema.Version(ctx, d.pools, "diagnose")
	if err != nil {
		return nil, err
	}
	err = d.pools.Do(ctx, roundtrip.Read("diagnose").Query(diagnoseSQL, func(rows pgx.Rows) error {
		return one(rows, &s.version, &s.number, &s.fsync, &s.fullPages, &s.synchronous, &s.standbyNames,
			&s.isolation, &s.standby, &s.readOnly, &s.autovacuum, &s.room, &s.clients, &s.standbys, &s.stopped, &s.grants, &s.closing, &s.role)
	}, "").Query(migrations.CatalogueSQL(migrations.Postgres), func(rows pgx.Rows) error {
		found := migrations.NewCatalogue(migrations.Postgres)
		err := schema.AddAll(found, rows)
		s.tables, s.intact = found.Examine(version)
		return err
	}).Query(settingsSQL, func(rows pgx.Rows) error {
		found := make(map[string]string)
		var name, value string
		_, err := pgx.ForEachRow(rows, []any{&name, &value}, func() error {
			found[name] = value
			return nil
		})
		s.settings = settings(d.pools.Settings(), found)
		return err
	}, d.pools.Settings().Names()).Query(holdingSQL, func(rows pgx.Rows) error {
		var seconds float64
		_, err := pgx.ForEachRow(rows, []any{&s.holder, &seconds, &s.awaitsStandby}, func() error {
			s.held = time.Duration(seconds * float64(time.Second)).Round(time.Second)
			return nil
		})
		return err
	}))
	if err == nil {
		s.mapping, err = d.siteRoles(ctx)
	}
	if err != nil {
		return nil, err
	}
	if s.intact && s.grants == "" {
		if err := d.findRows(ctx, &s); err != nil {
			return nil, err
		}
	}
	config := d.pools.Config()
	s.user = config.ConnConfig.User
	hosts := map[string]bool{config.ConnConfig.Host: true}
	for _, f := range config.ConnConfig.Fallbacks {
		hosts[f.Host] = true
	}
	s.pooled, s.readWrite, s.hosts = d.pools.Path() == roundtrip.Pooled, config.ConnConfig.ValidateConnect != nil, len(hosts)
	s.connectsUpTo = d.pools.MaxConns() + listenConns
	return s.diagnoses(), nil
}

// findRows checks for the rows that migrations insert into the tables. The tables must exist and be
// readable.
func (d *Driver) findRows(ctx context.Context, s *setup) error {
	return d.pools.Do(ctx, roundtrip.Read("diagnose").Query(migrations.RowsSQL(migrations.Postgres), func(rows pgx.Rows) error {
		missing, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err == nil && len(missing) > 0 {
			s.intact, s.tables = false, migrations.MissingRows(migrations.Postgres, missing)
		}
		return err
	}))
}

// settingsSQL reads the values that the session began with, because this transaction has set some
// of them.
const settingsSQL = `SELECT name, reset_val FROM pg_settings WHERE name = ANY ($1::text[])`

// settings reports the session's settings, except for those that have checks of their own.
func settings(all *roundtrip.Settings, found map[string]string) (shown []driver.Diagnosis) {
	all.Each(func(name, right string, set bool) {
		value, ok := found[name]
		if !ok || name == "synchronous_commit" || name == roundtrip.DefaultIsolation {
			return
		}
		detail := value + ", which each transaction verifies"
		switch {
		case set && value == right:
			detail = value
		case set:
			detail = fmt.Sprintf("%s; each transaction sets %s", value, right)
		}
		shown = append(shown, driver.Diagnosis{Name: name, OK: true, Detail: strings.TrimSpace(detail)})
	})
	return shown
}

// connected sets the fields of s that are read from a single connection.
func (d *Driver) connected(ctx context.Context, s *setup) error {
	conn, err := d.pools.Acquire(ctx)
	if err != nil {
		return roundtrip.Failure(ctx, "diagnose", roundtrip.Connecting, err)
	}
	defer conn.Release()
	s.encryption = encryption(conn.Conn().PgConn().Conn())
	if s.server, err = identify(ctx, conn.Conn().PgConn()); err != nil {
		return roundtrip.Failure(ctx, "diagnose", roundtrip.Executing, err)
	}
	return nil
}

// encryption reports whether a connection uses TLS with a verified server.
func encryption(conn net.Conn) driver.Diagnosis {
	found := driver.Diagnosis{Name: "encryption", OK: true}
	const write = "write sslmode=verify-full in the database URL"
	switch c := conn.(type) {
	case *tls.Conn:
		state := c.ConnectionState()
		found.Detail = tls.VersionName(state.Version) + ", and the server's certificate is verified"
		if len(state.VerifiedChains) == 0 {
			found.Note = true
			found.Detail = tls.VersionName(state.Version) + ", but the name in the server's certificate is not verified: an attacker can impersonate the server: " + write
		}
	case interface{ NetConn() net.Conn }:
		to, isTCP := c.NetConn().RemoteAddr().(*net.TCPAddr)
		found.Detail = "none: the connection stays on this machine"
		if isTCP && !to.IP.IsLoopback() {
			found.Note = true
			found.Detail = "none: anyone on the network path can read and change the traffic: " + write
		}
	}
	return found
}

func (s setup) diagnoses() []driver.Diagnosis {
	var all []driver.Diagnosis
	check := func(name string, ok bool, good, bad string) {
		detail := good
		if !ok {
			detail = bad
		}
		all = append(all, driver.Diagnosis{Name: name, OK: ok, Detail: detail})
	}

	all = append(all, s.serverVersion(), s.encryption)
	why := roundtrip.ErrLeftReadOnly
	if s.standby {
		why = roundtrip.ErrStandby
	}
	check("read-write", !s.standby && !s.readOnly, "the server accepts writes", why.Error())
	check("tables", s.intact, s.tables, s.tables)
	check("privileges", s.grants == "", "all that sites and refdbctl need, except for migrate, history prune and recover", s.tooFew())
	all = append(all, s.connectPrivilege(), s.siteRoles())
	check("default isolation", s.isolation == roundtrip.ReadCommitted, s.isolation,
		fmt.Sprintf("%q: set default_transaction_isolation to %q for this user", s.isolation, roundtrip.ReadCommitted))
	all = append(all, s.settings...)
	check("fsync", s.fsync, "on", "off: a crash of the server's machine can corrupt the database: set fsync = on")
	check("full_page_writes", s.fullPages, "on",
		"off: a crash of the server's machine can corrupt the database: set full_page_writes = on, unless the file system writes pages atomically")

	switch s.synchronous {
	case "on", "remote_apply":
		check("synchronous_commit", true, s.synchronous, "")
	case "off":
		check("synchronous_commit", false, "",
			"off: a crash of the server loses confirmed updates and locks: set synchronous_commit = on for this user")
	default:
		check("synchronous_commit", s.standbyNames == "", s.synchronous+", which is enough without a synchronous standby",
			s.synchronous+": a failover loses confirmed updates and locks: set synchronous_commit = on for this user")
	}
	check("synchronous standby", s.standbyNames != "" || s.standbys == 0, standbyDetail(s),
		"standbys follow, none of them synchronously: a failover may lose confirmed updates and locks: name one in synchronous_standby_names, or never fail over")
	check("target_session_attrs", s.readWrite || s.hosts == 1 && s.standbys == 0, readWriteDetail(s),
		"not in the database URL: after a failover this program may stay connected to a server that accepts no writes: add target_session_attrs=read-write")
	check("history", s.held < longOpen, "no transaction that this user can see delays the readers of changes", s.holding())
	check("autovacuum", s.autovacuum, "on", "off: beats leave dead rows behind, and slow everything down: set autovacuum = on")

	// Other programs need connections, too.
	used := fmt.Sprintf("%d of %d in use, this program takes up to %d", s.clients, s.room, s.connectsUpTo)
	check("connections", s.room-s.clients >= s.room/10, used,
		used+": raise max_connections, put a pooler in between, or lower pool_max_conns in the database URL")
	pooler := "none: notifications wake the waiters of a lock"
	if s.pooled {
		pooler = "in between: unless it pools sessions, notifications don't arrive, and the waiters of a lock poll"
	}
	check("pooler", true, pooler, "")
	return all
}

// serverVersion reports the server's product and version.
func (s setup) serverVersion() driver.Diagnosis {
	d := driver.Diagnosis{Name: "server version", OK: true, Detail: s.server.String()}
	switch {
	case s.number < oldestVersion:
		d.OK, d.Detail = false, fmt.Sprintf("PostgreSQL %s is too old: upgrade to 14 or newer", s.version)
	case s.server.aurora != "":
		d.Note = true
		d.Detail += ": this project's tests have not run on it: see docs/DATABASES.md"
	case s.number/10000 > newestTested:
		d.Note = true
		d.Detail += fmt.Sprintf(": this program's tests ran on PostgreSQL 14 to %d: look for a newer program", newestTested)
	}
	return d
}

// tooFew describes what fails for lack of privileges, and how to grant them.
func (s setup) tooFew() string {
	what := "too few for a site"
	if s.stopped != "" {
		what += ", and for refdbctl " + s.stopped
	}
	return what + "; a read-only role needs only SELECT: " + s.grants
}

// holding advises what to do about the oldest open transaction. A commit that waits for its standby
// must not be terminated: it would become visible although a failover loses it.
func (s setup) holding() string {
	if s.awaitsStandby {
		return fmt.Sprintf("%s has waited for its synchronous standby for %s, and delays the readers of changes: bring the standby back, and don't end the process", s.holder, s.held)
	}
	return fmt.Sprintf("%s has been open for %s, and delays the readers of changes: end it with pg_terminate_backend or, if it is prepared, COMMIT or ROLLBACK PREPARED", s.holder, s.held)
}

func standbyDetail(s setup) string {
	if s.standbyNames == "" {
		return "none: confirmed changes are as safe as this one server"
	}
	return s.standbyNames
}

func readWriteDetail(s setup) string {
	if s.readWrite {
		return "in the database URL"
	}
	return "not in the database URL, nor needed: there is one server"
}
