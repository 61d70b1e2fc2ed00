package filelock_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/globalrefdb/globalrefdb/site/internal/filelock"
)

// A clone would find a repository in its way.
func TestALockDoesNotBringARepositoryBackThatIsGone(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "gone.git")
	if _, err := filelock.Shared(t.Context(), filepath.Join(dir, "refdb", "pruning")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("locked: %v", err)
	}
	if _, err := os.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the repository is there: %v", err)
	}
}
