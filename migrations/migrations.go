// Package migrations holds the database schema as plain numbered SQL and moves
// a database from one version of it to another with golang-migrate. Which
// version a database has is recorded in golang-migrate's own table, so its
// command line works on the same database.
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

//go:embed postgres/*.sql spanner/*.sql sqlite/*.sql
var files embed.FS

// Latest returns the newest version of d's schema: the one that this program
// needs. It is 0 if there is no such dialect.
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

// Check returns nil if a database with that version of the schema is the one
// that this program needs, and otherwise an error of one line that says what
// to do. Drivers call it when they open a database, with what they read in
// golang-migrate's table; exists is false if there was no table, or no row in it.
func Check(d Dialect, version uint, dirty, exists bool) error {
	switch latest := Latest(d); {
	case exists && dirty:
		return fmt.Errorf("a migration to version %d is under way or was interrupted: wait for it; if none is running, "+
			"set the version that the schema really has with `refdbctl migrate force VERSION`, then run `refdbctl migrate up`", version)
	case !exists || version == 0:
		return fmt.Errorf("there is none: run `refdbctl migrate up`")
	case version < latest:
		return fmt.Errorf("version %d is older than this program's %d: run `refdbctl migrate up`", version, latest)
	case version > latest:
		return fmt.Errorf("version %d is newer than this program's %d: upgrade the program", version, latest)
	}
	return nil
}
