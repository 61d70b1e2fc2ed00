// Package migrations contains the database schema as plain numbered SQL and migrates a database
// from one version to another with golang-migrate. The version is recorded like golang-migrate
// does, but in a table with a name of our own, because another application in the same database may
// have a version, too. A database of an earlier program keeps golang-migrate's default table, if
// our tables prove that it is ours.
//
// The package uses golang-migrate's engine and file format, but not its database drivers: none of
// their locks excludes a second process everywhere. PostgreSQL's belongs to a session, which a
// transaction pooler shares; SQLite has none; Spanner's is per process. Here, on PostgreSQL and
// SQLite, a whole run is one transaction under a lock, so that a failure leaves nothing behind. On
// Spanner, where DDL has no transactions, the dirty mark is set by compare-and-set: one process
// makes a step, the others wait.
package migrations

import (
	"embed"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
)

// A Dialect is a kind of database. It is also the folder of its SQL files.
type Dialect string

const (
	Postgres Dialect = "postgres"
	Spanner  Dialect = "spanner"
	SQLite   Dialect = "sqlite"
)

// Table records which version of the schema a database has. Databases that an
// earlier program migrated have a table of golang-migrate's default name instead.
const Table = "refdb_schema"

//go:embed postgres/*.sql spanner/*.sql sqlite/*.sql
var files embed.FS

// Latest returns the newest version of d's schema that this program knows. It is 0
// if there is no such dialect.
func Latest(d Dialect) uint {
	names, err := fs.Glob(files, string(d)+"/*.up.sql")
	if err != nil || len(names) == 0 {
		return 0
	}
	// Glob sorts, and the numbers have leading zeros.
	last := strings.TrimPrefix(names[len(names)-1], string(d)+"/")
	number, _, _ := strings.Cut(last, "_")
	version, err := strconv.ParseUint(number, 10, 32)
	if err != nil {
		return 0
	}
	return uint(version)
}

// oldestServed is the oldest version of the schema that this program works with: the version before
// the program's own, without its new features. So the sites of an installation can be upgraded one
// by one, and then the schema.
const oldestServed = 11

// OldestProgram returns the oldest version that a program must know to work with a schema of the
// given version. It is recorded with the schema. Programs of version 10 work with the versions 11 and
// 12, whose triggers do what these programs can't.
func OldestProgram(version int) int {
	if version == 11 || version == 12 {
		return 10
	}
	return version
}

// A Record is a database's record of its schema's version. The zero Record is that of a
// database without one.
type Record struct {
	Version uint
	// Oldest is the oldest version that a program must know to work with it; 0 if not recorded.
	Oldest uint
	Dirty  bool // a migration to Version is in progress, or was interrupted
	Exists bool
	// Guards is the result of [GuardsSQL].
	Guards *Catalogue
}

// Check returns nil if this program works with the schema of r, and otherwise an error of one line
// that says what to do. Drivers call it when they open a database, with the record in the table of
// versions.
//
// It compares r.Guards with the tables, keys and triggers of the version, without which a statement
// would succeed and be wrong: a table that was restored alone lacks them. On Spanner there is
// nothing to compare: a table has its key as long as it exists, and programs write the history. The
// triggers of a later version are known only to its own programs.
func Check(d Dialect, r Record) error {
	switch latest := Latest(d); {
	case r.Exists && r.Dirty:
		return fmt.Errorf("a migration to version %d is in progress or was interrupted: wait for it; if none is running, "+
			"set the version that the schema really has with `refdbctl migrate force VERSION`, then run `refdbctl migrate up`", r.Version)
	case !r.Exists || r.Version == 0:
		return fmt.Errorf("there is none: run `refdbctl migrate up`")
	case r.Version < oldestServed:
		return fmt.Errorf("version %d is older than %d, the oldest that this program works with: run `refdbctl migrate up`", r.Version, oldestServed)
	case r.Version > latest && (r.Oldest == 0 || r.Oldest > latest):
		return fmt.Errorf("version %d is newer than this program's %d: upgrade the program", r.Version, latest)
	case r.Guards != nil && r.Version <= latest:
		return r.Guards.checkGuards(r.Version)
	}
	return nil
}
