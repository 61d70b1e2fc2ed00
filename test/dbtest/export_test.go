package dbtest

import (
	"os"
	"path/filepath"
	"slices"

	"github.com/globalrefdb/globalrefdb/test/dbtest/internal/testdb"
)

// OwnPostgres reports whether this process has started a PostgreSQL server.
func OwnPostgres() bool {
	return slices.ContainsFunc(ServerDirs(), func(dir string) bool {
		_, err := os.Stat(filepath.Join(dir, "data/PG_VERSION"))
		return err == nil
	})
}

// ServerDirs returns the directories of the servers that this process runs.
func ServerDirs() []string { return testdb.ServerDirs() }
