package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/globalrefdb/globalrefdb/refdb/postgres/internal/roundtrip"
)

// newestTested is the newest major version of PostgreSQL that this program's tests run on.
const newestTested = 18

// supported names the page about databases, for errors.
const supported = "docs/DATABASES.md lists the databases that work"

// A server holds the answers of a server about itself.
type server struct {
	version string // of version()
	aurora  string // of aurora_version(); "" on other servers
	citus   bool   // the database has the extension
	host    string // the hosting service, or ""
}

// oneServer is what positions, tokens and the detection of a failover depend on.
const oneServer = "one server with one log and one sequence of transaction IDs"

// forks are databases that speak PostgreSQL's protocol but lack features that the driver relies on.
// The mark occurs in their version().
var forks = []struct{ mark, name, lacks string }{
	{"CockroachDB", "CockroachDB", oneServer},
	{"-YB-", "YugabyteDB", oneServer},
	{"Greenplum", "Greenplum", oneServer},
	{"Cloudberry", "Apache Cloudberry", oneServer},
	{"Redshift", "Amazon Redshift", "advisory locks and triggers"},
	{"openGauss", "openGauss", "the functions of PostgreSQL 14"},
	{"GaussDB", "GaussDB", "the functions of PostgreSQL 14"},
}

// refusal returns the reason for refusing the server, or nil. It identifies servers by their
// version(), so it can't detect a server that calls itself PostgreSQL.
func (s server) refusal() error {
	for _, f := range forks {
		if strings.Contains(s.version, f.mark) {
			return fmt.Errorf("the server is %s (%s), which lacks %s: use PostgreSQL; %s", f.name, s.words(), f.lacks, supported)
		}
	}
	switch {
	case !strings.HasPrefix(s.version, "PostgreSQL "):
		return fmt.Errorf("the server calls itself %q, which is not known to have what the driver relies on: use PostgreSQL; %s", s.words(), supported)
	case s.citus:
		return fmt.Errorf("the database has the extension citus, whose distributed tables have no triggers: use a database without the extension; %s", supported)
	}
	return nil
}

// words returns the first words of version(): the name and the number, without the build details.
func (s server) words() string {
	const most = 60
	words, _, _ := strings.Cut(strings.Join(strings.Fields(s.version), " "), " on ")
	if r := []rune(words); len(r) > most {
		words = string(r[:most]) + "…"
	}
	return words
}

// String returns the name and the version, for operators.
func (s server) String() string {
	switch {
	case s.aurora != "":
		return "Amazon Aurora " + s.aurora + ", " + s.words()
	case s.host != "":
		return s.words() + ", run by " + s.host
	}
	return s.words()
}

// serverColumns are columns that every supported server returns in one statement.
const serverColumns = `pg_catalog.version(), EXISTS (SELECT FROM pg_catalog.pg_extension WHERE extname OPERATOR(pg_catalog.=) 'citus'),
       CASE WHEN pg_catalog.pg_is_in_recovery() THEN '' ELSE pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_lsn()) END`

// refusalOf returns the refusal of the server that returned the values of serverColumns.
func refusalOf(columns []string) error {
	return server{version: columns[0], citus: columns[1] == "t"}.refusal()
}

// explainServer returns a better error than err, with which a database could not be opened, if the
// server lacks features that the driver relies on.
func explainServer(ctx context.Context, config *pgx.ConnConfig, err error) error {
	code := roundtrip.Code(err)
	lacking := slices.ContainsFunc([]string{"0A", "22", "42", "55", "XX"}, func(class string) bool { return strings.HasPrefix(code, class) })
	if !lacking && !errors.Is(err, roundtrip.ErrNoLocks) {
		return err
	}
	found, failed := askServer(ctx, config)
	if failed != nil {
		return err
	}
	if refusal := found.refusal(); refusal != nil {
		return fmt.Errorf("%s: %w", openDatabase, refusal)
	}
	if found.host == rds && code == noWAL {
		return fmt.Errorf("%w: the server is Amazon Aurora, which reports the end of its log, by which a failover is detected, only with logical replication: "+
			"set rds.logical_replication to 1 in the cluster's parameter group, and restart the writer; docs/DATABASES.md says more", err)
	}
	return err
}

// noWAL is the SQLSTATE of Aurora's pg_current_wal_lsn() without logical replication:
// object_not_in_prerequisite_state.
const noWAL = "55000"

// askServer identifies a server, on a separate connection that relies on nothing but the protocol.
func askServer(ctx context.Context, config *pgx.ConnConfig) (server, error) {
	config = config.Copy()
	config.RuntimeParams = map[string]string{}
	config.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol
	config.OnNotice = nil
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return server{}, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	return identify(ctx, conn.PgConn())
}

// rds is the service that offers both PostgreSQL and Aurora.
const rds = "Amazon RDS"

// hosts are the roles that hosting services create on their servers.
var hosts = []struct{ role, name string }{
	{"rds_superuser", rds},
	{"alloydbsuperuser", "AlloyDB"},
	{"cloudsqlsuperuser", "Cloud SQL"},
	{"azure_pg_admin", "Azure"},
	{"neon_superuser", "Neon"},
	{"supabase_admin", "Supabase"},
}

// rolesSQL reads whether the database has the extension citus, and which roles of a list exist.
const rolesSQL = `
SELECT EXISTS (SELECT FROM pg_catalog.pg_extension WHERE extname OPERATOR(pg_catalog.=) 'citus'),
       (SELECT coalesce(pg_catalog.string_agg(rolname, ','), '') FROM pg_catalog.pg_roles WHERE rolname OPERATOR(pg_catalog.=) ANY (CAST('{%s}' AS pg_catalog.text[])))`

// identify asks the server at the other end of conn for its identity. Each query is a separate
// transaction, because servers other than PostgreSQL may be able to answer only the first.
func identify(ctx context.Context, conn *pgconn.PgConn) (s server, err error) {
	ask := func(sql string, columns ...*string) error {
		results, err := conn.Exec(ctx, sql).ReadAll()
		if err != nil {
			return err
		}
		if len(results) != 1 || len(results[0].Rows) != 1 || len(results[0].Rows[0]) != len(columns) {
			return errors.New("the server did not answer with one row")
		}
		for i, c := range results[0].Rows[0] {
			*columns[i] = string(c)
		}
		return nil
	}
	if err := ask(`SELECT pg_catalog.version()`, &s.version); err != nil || s.refusal() != nil {
		return s, err
	}
	var known []string
	for _, h := range hosts {
		known = append(known, h.role)
	}
	var citus, roles string
	if err := ask(fmt.Sprintf(rolesSQL, strings.Join(known, ",")), &citus, &roles); err != nil {
		return s, err
	}
	s.citus = citus == "t"
	for _, h := range hosts {
		if s.host == "" && slices.Contains(strings.Split(roles, ","), h.role) {
			s.host = h.name
		}
	}
	if s.host == rds {
		// Not all versions of Aurora list the function, so calling it is the only way to detect
		// them.
		if err := ask(`SELECT pg_catalog.aurora_version()`, &s.aurora); err != nil && roundtrip.Code(err) == "" {
			return s, err
		}
	}
	return s, nil
}
