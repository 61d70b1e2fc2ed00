package install

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// requireDistinctNames returns an error if the disk of a repository's refs treats two names as the
// same that git distinguishes: then a push of refs/heads/A would move refs/heads/a, and refs of
// other sites could not be placed. It briefly creates a file that git takes for a lock file. Lookup
// is os.Lstat.
func requireDistinctNames(dir string, lookup func(path string) (fs.FileInfo, error)) error {
	if _, err := os.Lstat(filepath.Join(dir, "reftable")); err == nil {
		return nil // refs have no files of their own
	}
	name := "refdb-\u00e9-" + strings.ToLower(rand.Text()) + ".lock"
	path := filepath.Join(dir, "refs", name)
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("checking whether the disk distinguishes names: %w", err)
	}
	defer os.Remove(path)
	f.Close()
	for _, other := range []struct{ name, folds, example string }{
		{strings.ToUpper(strings.TrimSuffix(name, ".lock")) + ".lock", "case", "refs/heads/a and refs/heads/A"},
		{strings.ReplaceAll(name, "\u00e9", "e\u0301"), "the forms of Unicode", "the two ways to write refs/heads/\u00e9"},
	} {
		_, err := lookup(filepath.Join(dir, "refs", other.name))
		switch {
		case err == nil:
			return fmt.Errorf("the disk of %s folds %s: it treats %s as the same name, so a push could move another ref, and refs of other sites could not be placed: "+
				"move the repository to a disk that does not", dir, other.folds, other.example)
		case !errors.Is(err, fs.ErrNotExist):
			return fmt.Errorf("checking whether the disk distinguishes names: %w", err)
		}
	}
	return nil
}
