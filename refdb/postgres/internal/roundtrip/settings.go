package roundtrip

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
)

// ReadCommitted is the isolation level that the statements are written for.
const ReadCommitted = "read committed"

// Settings are the session settings that the promises depend on. They may change at any time, by
// ALTER SYSTEM, or by another client that used the connection behind a pooler. So each transaction
// begins with a guard, which sets them for this transaction alone, or fails.
//
// The guard is executed before the server resolves any of our names, and under whatever search_path
// the session has. So all names in its statement are qualified, including operators. It costs the
// server 3 µs, and 10 µs as a separate statement.
type Settings struct {
	searchPath string
	isolated   bool // each transaction names its isolation level itself
	all        []setting
	guard      string // an expression that is true, or fails
}

// A setting is one that the promises depend on.
type setting struct {
	name  string
	right string   // its value
	also  []string // other right values
	wrong []string // unless nil, all other values are right
	// set reports whether a transaction can set it. If not, the guard fails when the value is
	// wrong.
	set bool
}

// DefaultIsolation is the setting that each transaction's isolation level comes from, and the name
// that administrators know.
const DefaultIsolation = "default_transaction_isolation"

// settingsOf returns the settings of connections that are made with config. They don't include
// search_path until the schema of the tables is known.
func settingsOf(config *pgx.ConnConfig, path Path) *Settings {
	s := &Settings{all: []setting{
		// With another level, a request that waits for a key decides on data from before the wait.
		{name: "transaction_isolation", right: ReadCommitted},
		// With another encoding, the server would store the bytes of one name as another name.
		{name: "client_encoding", right: "UTF8"},
		// With another role, no trigger fires: nothing checks the server or records a change.
		{name: "session_replication_role", right: "origin"},
		// A query that row-level security would filter fails, instead of missing rows.
		{name: "row_security", right: "off", set: true},
		// A warning is the only sign of a commit that the standby has not confirmed.
		{name: "client_min_messages", right: "warning", wrong: []string{"error"}, set: true},
		{name: "synchronous_commit", right: "on", also: []string{"remote_apply"}, set: true},
		// With refdb.recovery on, the owner of the tables could write on a server that is not
		// admitted.
		{name: "refdb.recovery", right: "", wrong: []string{"on"}, set: true},
	}}
	if path == Pooled { // otherwise it is a parameter of the session's start
		limit := config.RuntimeParams["lock_timeout"]
		if limit == "" {
			limit = fmt.Sprintf("%dms", LockTimeout.Milliseconds())
		}
		s.all = append(s.all, setting{name: "lock_timeout", right: limit, set: true})
	}
	if m := config.DefaultQueryExecMode; m == pgx.QueryExecModeExec || m == pgx.QueryExecModeSimpleProtocol {
		// In these modes, values are sent as text.
		s.all = append(s.all,
			setting{name: "datestyle", right: "ISO, MDY", set: true},
			setting{name: "intervalstyle", right: "postgres", set: true},
			setting{name: "bytea_output", right: "hex", set: true})
	}
	return s.made()
}

// MigratorSettings returns the settings of a connection for migrations, whose transactions name
// their isolation level themselves.
func MigratorSettings(config *pgx.ConnConfig) *Settings {
	s := settingsOf(config, Direct)
	s.isolated = true
	return s.made()
}

// In returns the settings with the given search_path.
func (s *Settings) In(searchPath string) *Settings {
	c := *s
	c.searchPath = searchPath
	return c.made()
}

// SearchPathSQL returns an expression for the search_path that leads to the tables in a schema, an
// expression of type name. Temporary objects, which any client of a pooler can create, come last.
func SearchPathSQL(schema string) string {
	return `pg_catalog.concat(pg_catalog.quote_ident(` + schema + `), ', pg_temp')`
}

// made builds the guard.
func (s *Settings) made() *Settings {
	var verified, set []string
	for _, t := range s.settings() {
		if t.set {
			set = append(set, `CASE WHEN `+t.isRight()+` THEN true ELSE pg_catalog.set_config('`+t.name+`', `+literal(t.right)+`, true) IS NOT NULL END`)
		} else {
			verified = append(verified, t.isRight())
		}
	}
	// No other expression in our statements divides by zero.
	s.guard = `1 OPERATOR(pg_catalog./) CAST(` + strings.Join(verified, ` AND `) + ` AS pg_catalog.int4) IS NOT NULL AND ` + strings.Join(set, ` AND `)
	return s
}

// settings returns all settings in the order in which they are verified and set.
func (s *Settings) settings() (all []setting) {
	for _, t := range s.all {
		if t.name != "transaction_isolation" || !s.isolated {
			all = append(all, t)
		}
	}
	if s.searchPath != "" {
		all = append(all, setting{name: "search_path", right: s.searchPath, set: true})
	}
	return all
}

// Each calls do for each setting, with its name, its right value, and whether transactions set it
// or only verify it.
func (s *Settings) Each(do func(name, right string, set bool)) {
	for _, t := range s.settings() {
		if t.name == "transaction_isolation" {
			t.name = DefaultIsolation
		}
		do(t.name, t.right, t.set)
	}
}

// Names returns the names of all settings.
func (s *Settings) Names() (all []string) {
	s.Each(func(name, _ string, _ bool) { all = append(all, name) })
	return all
}

// isRight returns the condition that the setting has a right value.
func (t setting) isRight() string {
	is := `pg_catalog.current_setting('` + t.name + `', true)`
	if t.wrong != nil {
		var not []string
		for _, w := range t.wrong {
			not = append(not, is+` OPERATOR(pg_catalog.<>) '`+w+`'`)
		}
		if strings.Contains(t.name, ".") { // NULL until a session sets it
			not = []string{`(` + is + ` IS NULL OR ` + strings.Join(not, ` AND `) + `)`}
		}
		return strings.Join(not, ` AND `)
	}
	var right []string
	for _, r := range append([]string{t.right}, t.also...) {
		right = append(right, is+` OPERATOR(pg_catalog.=) `+literal(r))
	}
	return `(` + strings.Join(right, ` OR `) + `)`
}

func literal(s string) string {
	if strings.Contains(s, `\`) { // independent of standard_conforming_strings
		return `E'` + strings.NewReplacer(`'`, `''`, `\`, `\\`).Replace(s) + `'`
	}
	return `'` + strings.ReplaceAll(s, `'`, `''`) + `'`
}

// guarded returns the text of a statement with the guard before its columns.
func (s *Settings) guarded(columns string) string {
	if columns == "" {
		return `SELECT ` + s.guard
	}
	return `SELECT ` + s.guard + `, ` + columns
}

// Begin executes the guard in a transaction that has begun on conn. If a setting is wrong, it ends
// the transaction and says which one.
func (s *Settings) Begin(ctx context.Context, conn *pgx.Conn) error {
	_, err := conn.PgConn().Exec(ctx, s.guarded("")).ReadAll()
	if Code(err) != divisionByZero {
		return err
	}
	if _, err := conn.PgConn().Exec(ctx, `ROLLBACK`).ReadAll(); err != nil {
		return err
	}
	return s.explain(ctx, conn, err)
}

// A wrongSetting is the error of a setting with a wrong value.
type wrongSetting struct {
	name, is, right string
	source          string // of pg_settings
	role, database  string // quoted
	err             error  // of the guard
}

func (e *wrongSetting) Unwrap() error { return e.err }

func (e *wrongSetting) Error() string {
	return fmt.Sprintf("%s is %s, and has to be %s: %s", e.name, e.is, e.right, e.repair())
}

// repair says how to correct the setting. A pooler's connections keep the values that they began
// with.
func (e *wrongSetting) repair() string {
	const reconnect = "; then end the connections of a pooler in between (RECONNECT in PgBouncer's console)"
	switch e.source {
	case "user":
		return "ALTER ROLE " + e.role + " RESET " + e.name + reconnect
	case "database user":
		return "ALTER ROLE " + e.role + " IN DATABASE " + e.database + " RESET " + e.name + reconnect
	case "database":
		return "ALTER DATABASE " + e.database + " RESET " + e.name + reconnect
	case "global":
		return "ALTER ROLE ALL RESET " + e.name + reconnect
	case "client":
		return "remove it from the database URL, from PGOPTIONS, and from the configuration of a pooler in between"
	case "session", "override":
		return "another client of the pooler in between has left it behind: end the pooler's connections (RECONNECT in PgBouncer's console), and make that client use SET LOCAL"
	default:
		return "ALTER SYSTEM RESET " + e.name + " or remove it from postgresql.conf, then SELECT pg_reload_conf()"
	}
}

// errSettings is the error of a guard that failed although no setting is wrong any more.
var errSettings = fmt.Errorf("a session setting was wrong, but no longer is: %s has to be %q, client_encoding UTF8, session_replication_role origin: "+
	"other clients of a pooler in between must not change them", DefaultIsolation, ReadCommitted)

// currentSQL reads settings and their sources.
const currentSQL = `
SELECT name, setting, source, pg_catalog.quote_ident(CURRENT_USER), pg_catalog.quote_ident(pg_catalog.current_database())
FROM pg_catalog.pg_settings WHERE name OPERATOR(pg_catalog.=) ANY (CAST('{%s}' AS pg_catalog.text[]))`

// explain finds the setting that made a guard fail with err. Behind a pooler it may inspect another
// session, in which no setting is wrong, and then returns err.
func (s *Settings) explain(ctx context.Context, conn *pgx.Conn, err error) error {
	must := make(map[string]string)
	var names []string
	s.Each(func(name, right string, set bool) {
		if !set {
			must[name] = right
			names = append(names, name)
		}
	})
	results, readErr := conn.PgConn().Exec(ctx, fmt.Sprintf(currentSQL, strings.Join(names, ","))).ReadAll()
	if readErr != nil {
		return err
	}
	for _, row := range results[0].Rows {
		e := &wrongSetting{name: string(row[0]), is: string(row[1]), source: string(row[2]), role: string(row[3]), database: string(row[4]), err: err}
		if e.right = must[e.name]; e.is != e.right {
			return e
		}
	}
	return err
}
