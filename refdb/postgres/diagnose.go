package postgres

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/globalrefdb/globalrefdb/refdb"
)

// Backends and standbys are counted, not looked into: an ordinary user may do that.
const diagnoseSQL = `
SELECT current_setting('server_version'), current_setting('server_version_num')::int,
       current_setting('fsync')::boolean, current_setting('full_page_writes')::boolean,
       current_setting('synchronous_commit'), current_setting('synchronous_standby_names'),
       current_setting('default_transaction_isolation'),
       pg_is_in_recovery() OR current_setting('transaction_read_only')::boolean,
       current_setting('autovacuum')::boolean,
       current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int,
       (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'),
       (SELECT count(*) FROM pg_stat_replication),
       (SELECT coalesce(string_agg(missing, '; ' ORDER BY tab), '') FROM (
          SELECT tab, format('GRANT %s ON %s TO %I', string_agg(privilege, ', ' ORDER BY n), tab, current_user) AS missing
          FROM (VALUES ('refs', 1, 'SELECT'), ('refs', 2, 'INSERT'), ('refs', 3, 'UPDATE'), ('refs', 4, 'DELETE'),
                       ('locks', 1, 'SELECT'), ('locks', 2, 'INSERT'), ('locks', 3, 'UPDATE'), ('locks', 4, 'DELETE'),
                       ('intents', 1, 'SELECT'), ('intents', 2, 'INSERT'), ('intents', 3, 'UPDATE'), ('intents', 4, 'DELETE'),
                       ('token_origin', 1, 'SELECT'), ('token_origin', 3, 'UPDATE')) AS needed (tab, n, privilege)
          WHERE NOT has_table_privilege(tab, privilege) GROUP BY tab) AS grants)`

// A setup is what Diagnose finds.
type setup struct {
	version             string
	number              int
	fsync, fullPages    bool
	synchronous         string // synchronous_commit
	standbyNames        string // synchronous_standby_names
	isolation           string
	readOnly            bool
	autovacuum          bool
	room, clients       int // connections that the server has for users, and those in use
	standbys            int
	grants              string // that are missing, "" for none
	pooled, readWrite   bool   // a pooler is in between; the URL asks for a server that takes writes
	hosts, connectsUpTo int    // in the URL; of this driver
}

// Diagnose checks the settings that the promises rest on.
func (d *Driver) Diagnose(ctx context.Context) ([]refdb.Diagnosis, error) {
	var s setup
	err := d.do(ctx, roundTrip{what: "diagnose"}.then(diagnoseSQL, func(rows pgx.Rows) error {
		return one(rows, &s.version, &s.number, &s.fsync, &s.fullPages, &s.synchronous, &s.standbyNames,
			&s.isolation, &s.readOnly, &s.autovacuum, &s.room, &s.clients, &s.standbys, &s.grants)
	}))
	if err != nil {
		return nil, err
	}
	config := d.pool.Config()
	hosts := map[string]bool{config.ConnConfig.Host: true}
	for _, f := range config.ConnConfig.Fallbacks {
		hosts[f.Host] = true
	}
	s.pooled, s.readWrite, s.hosts = d.pooled, config.ConnConfig.ValidateConnect != nil, len(hosts)
	s.connectsUpTo = int(config.MaxConns) + connectionsBeside
	return s.diagnoses(), nil
}

func (s setup) diagnoses() []refdb.Diagnosis {
	var all []refdb.Diagnosis
	check := func(name string, ok bool, good, bad string) {
		detail := good
		if !ok {
			detail = bad
		}
		all = append(all, refdb.Diagnosis{Name: name, OK: ok, Detail: detail})
	}

	check("server version", s.number >= oldestVersion, "PostgreSQL "+s.version,
		fmt.Sprintf("PostgreSQL %s is too old: upgrade to 13 or newer", s.version))
	check("read-write", !s.readOnly, "the server takes writes", errReadOnly.Error())
	check("privileges", s.grants == "", "all that sites and refdbctl need, but for migrate",
		"too few for a site, and for whatever changes refs or takes locks; a role that only looks needs no more than SELECT: "+s.grants)
	check("default isolation", s.isolation == readCommitted, s.isolation,
		fmt.Sprintf("%q: set default_transaction_isolation to %q for this user", s.isolation, readCommitted))
	check("fsync", s.fsync, "on", "off: a crash of the server's machine can corrupt the database: set fsync = on")
	check("full_page_writes", s.fullPages, "on",
		"off: a crash of the server's machine can corrupt the database: set full_page_writes = on, unless the file system writes pages atomically")

	switch s.synchronous {
	case "on", "remote_apply":
		check("synchronous_commit", true, s.synchronous, "")
	case "off":
		check("synchronous_commit", false, "",
			"off: a crash of the server loses updates and locks that were confirmed: set synchronous_commit = on for this user")
	default:
		check("synchronous_commit", s.standbyNames == "", s.synchronous+", which is enough without a synchronous standby",
			s.synchronous+": a failover loses updates and locks that were confirmed: set synchronous_commit = on for this user")
	}
	check("synchronous standby", s.standbyNames != "" || s.standbys == 0, standbyDetail(s),
		"standbys follow, none of them synchronously: a failover may lose updates and locks that were confirmed: name one in synchronous_standby_names, or never fail over")
	check("target_session_attrs", s.readWrite || s.hosts == 1 && s.standbys == 0, readWriteDetail(s),
		"not in the database URL: after a failover this program may stay with a server that takes no writes: add target_session_attrs=read-write")
	check("autovacuum", s.autovacuum, "on", "off: beats leave dead rows behind, and slow everything down: set autovacuum = on")

	// Others need connections too.
	used := fmt.Sprintf("%d of %d in use, this program takes up to %d", s.clients, s.room, s.connectsUpTo)
	check("connections", s.room-s.clients >= s.room/10, used,
		used+": raise max_connections, put a pooler in between, or lower pool_max_conns in the database URL")
	pooler := "none: notifications wake those who wait for a lock"
	if s.pooled {
		pooler = "in between: unless it pools sessions, notifications don't arrive, and those who wait for a lock poll"
	}
	check("pooler", true, pooler, "")
	return all
}

func standbyDetail(s setup) string {
	if s.standbyNames == "" {
		return "none: what was confirmed is as safe as this one server"
	}
	return s.standbyNames
}

func readWriteDetail(s setup) string {
	if s.readWrite {
		return "in the database URL"
	}
	return "not in the database URL, nor needed: there is one server"
}
