package roundtrip

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
)

// ReadCommitted is the isolation level that the statements are made for.
const ReadCommitted = "read committed"

// Settings are the session settings that the promises depend on. They may change at any time, by
// ALTER SYSTEM, or by another client that used the connection behind a pooler. So each transaction
// begins with a guard, which sets them for this transaction alone, or fails.
//
// The guard is executed before the server resolves any of our names, and under whatever search_path
// the session has. So all names in its statement are qualified, including operators. It costs the
// server 3 µs, and as a separate statement 10 µs.
type Settings struct {
	searchPath string
	isolated   bool // each transaction names its isolation level
	all        []setting
	guard      string // an expression, which is true
}

// A setting is one that the promises rest on.
type setting struct {
	name  string
	right string   // its value
	also  []string // other right values
	wrong []string // unless nil, all other values are right
	// set reports whether a transaction can set it. Otherwise, and if it is wrong, the guard fails.
	set bool
}

// DefaultIsolation is the setting that each transaction's isolation comes from: it is the name that
// an administrator knows.
const DefaultIsolation = "default_transaction_isolation"

// settingsOf returns the settings of connections that are made with config. Until it is known
// which schema holds the tables, they leave search_path alone.
func settingsOf(config *pgx.ConnConfig, path Path) *Settings {
	s := &Settings{all: []setting{
		// In another, a request that waits for a key decides on data from before the wait.
		{name: "transaction_isolation", right: ReadCommitted},
		// The server would take the bytes of one name for another name.
		{name: "client_encoding", right: "UTF8"},
		// In another, no trigger fires: nothing compares the server or records a change.
		{name: "session_replication_role", right: "origin"},
		// A query that policies would filter fails, instead of not seeing the rows.
		{name: "row_security", right: "off", set: true},
		// A warning is the only sign of a commit that the standby has not confirmed.
		{name: "client_min_messages", right: "warning", wrong: []string{"error"}, set: true},
		{name: "synchronous_commit", right: "on", also: []string{"remote_apply"}, set: true},
		// With it the owner of the tables writes at a server that is not admitted.
		{name: "refdb.recovery", right: "", wrong: []string{"on"}, set: true},
	}}
	if path == Pooled { // else it is a parameter that the session starts with
		limit := config.RuntimeParams["lock_timeout"]
		if limit == "" {
			limit = fmt.Sprintf("%dms", LockTimeout.Milliseconds())
		}
		s.all = append(s.all, setting{name: "lock_timeout", right: limit, set: true})
	}
	if m := config.DefaultQueryExecMode; m == pgx.QueryExecModeExec || m == pgx.QueryExecModeSimpleProtocol {
		// In these modes values come as text.
		s.all = append(s.all,
			setting{name: "datestyle", right: "ISO, MDY", set: true},
			setting{name: "intervalstyle", right: "postgres", set: true},
			setting{name: "bytea_output", right: "hex", set: true})
	}
	return s.made()
}

// MigratorSettings returns the settings of a connection for migrations, whose transactions name
// their isolation level.
func MigratorSettings(config *pgx.ConnConfig) *Settings {
	s := settingsOf(config, Direct)
	s.isolated = true
	return s.made()
}

// In returns the settings with a search_path.
func (s *Settings) In(searchPath string) *Settings {
	c := *s
	c.searchPath = searchPath
	return c.made()
}

// SearchPathSQL is the search_path for the tables in a schema, an expression of type name.
// Temporary objects, which any client of a pooler can make, come last.
func SearchPathSQL(schema string) string {
	return `pg_catalog.concat(pg_catalog.quote_ident(` + schema + `), ', pg_temp')`
}

// made makes the guard.
func (s *Settings) made() *Settings {
	var verified, set []string
	for _, t := range s.settings() {
		if t.set {
			set = append(set, `CASE WHEN `+t.isRight()+` THEN true ELSE pg_catalog.set_config('`+t.name+`', `+literal(t.right)+`, true) IS NOT NULL END`)
		} else {
			verified = append(verified, t.isRight())
		}
	}
	// No statement of ours causes a division by zero otherwise.
	s.guard = `1 OPERATOR(pg_catalog./) CAST(` + strings.Join(verified, ` AND `) + ` AS pg_catalog.int4) IS NOT NULL AND ` + strings.Join(set, ` AND `)
	return s
}

// settings returns all, in the order in which they are verified and set.
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

// Each calls do for each setting: with its name, the value that it is set to or has to have, and
// which of the two.
func (s *Settings) Each(do func(name, right string, set bool)) {
	for _, t := range s.settings() {
		if t.name == "transaction_isolation" {
			t.name = DefaultIsolation
		}
		do(t.name, t.right, t.set)
	}
}

// Names returns the names of all.
func (s *Settings) Names() (all []string) {
	s.Each(func(name, _ string, _ bool) { all = append(all, name) })
	return all
}

// isRight is the condition that it has a right value.
func (t setting) isRight() string {
	is := `pg_catalog.current_setting('` + t.name + `', true)`
	if t.wrong != nil {
		var not []string
		for _, w := range t.wrong {
			not = append(not, is+` OPERATOR(pg_catalog.<>) '`+w+`'`)
		}
		if strings.Contains(t.name, ".") { // nobody has set it
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
	if strings.Contains(s, `\`) { // whatever standard_conforming_strings is
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

// A wrongSetting is a setting that has to be another.
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

// repair says how to repair it. A pooler's connections keep what they began with.
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

// errSettings says what no setting alone can be blamed for any more.
var errSettings = fmt.Errorf("a session setting was wrong, but no longer is: %s has to be %q, client_encoding UTF8, session_replication_role origin: "+
	"other clients of a pooler in between must not change them", DefaultIsolation, ReadCommitted)

// currentSQL reads settings, and where they come from.
const currentSQL = `
SELECT name, setting, source, pg_catalog.quote_ident(CURRENT_USER), pg_catalog.quote_ident(pg_catalog.current_database())
FROM pg_catalog.pg_settings WHERE name OPERATOR(pg_catalog.=) ANY (CAST('{%s}' AS pg_catalog.text[]))`

// explain finds out which setting made a guard fail with err. Behind a pooler it may look at
// another session, and then finds none and returns err.
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
