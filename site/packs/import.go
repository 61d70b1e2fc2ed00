package packs

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/globalrefdb/globalrefdb/site/internal/durable"
)

// importFile returns the path of a file in a repository's directory. The file exists while the
// database may hold imported refs of the repository and lack their objects.
func importFile(dir string) string { return filepath.Join(dir, "refdb", "importing") }

// BeginImport records that refs of the repository in dir are about to be imported, whose objects
// the database may lack.
func BeginImport(dir string) error { return durable.WriteFile(importFile(dir), nil, 0o644) }

// ImportIsPending reports whether an import into the database has begun and not ended:
// [BeginImport] was called for dir, and [EndImport] was not.
func ImportIsPending(dir string) bool {
	_, err := os.Lstat(importFile(dir))
	return err == nil
}

// EndImport records that the database has the objects of all refs that were imported.
func EndImport(dir string) error {
	if err := os.Remove(importFile(dir)); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
