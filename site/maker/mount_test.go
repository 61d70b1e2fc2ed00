package maker

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// On another file system a repository has to be made beside its path.
func TestWhetherARenameIsPossible(t *testing.T) {
	t.Parallel()
	here := t.TempDir()
	for _, other := range []string{t.TempDir(), here} {
		if err := canRename(filepath.Join(here, "made"), other); err != nil {
			t.Errorf("to %s: %v", other, err)
		}
	}
	elsewhere, err := os.MkdirTemp("/dev/shm", "maker-*")
	if err != nil {
		t.Skipf("there is no second file system: %v", err)
	}
	defer os.RemoveAll(elsewhere)
	if err := canRename(filepath.Join(here, "made"), elsewhere); !errors.Is(err, syscall.EXDEV) {
		t.Errorf("to another file system: %v", err)
	}
	if left, err := os.ReadDir(filepath.Join(here, "made")); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}
