package maker

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
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
	elsewhere := otherFileSystem(t, here)
	if err := canRename(filepath.Join(here, "made"), elsewhere); !errors.Is(err, syscall.EXDEV) {
		t.Errorf("to another file system: %v", err)
	}
	if left, err := os.ReadDir(filepath.Join(here, "made")); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

// otherFileSystem returns a new directory that is not on the file system of here.
func otherFileSystem(t *testing.T, here string) string {
	t.Helper()
	device := func(dir string) uint64 {
		var s unix.Stat_t
		if err := unix.Stat(dir, &s); err != nil {
			t.Fatal(err)
		}
		return s.Dev
	}
	for _, parent := range []string{"/dev/shm", "/var/tmp", "."} {
		dir, err := os.MkdirTemp(parent, "maker-*")
		if err != nil {
			continue
		}
		t.Cleanup(func() { os.RemoveAll(dir) })
		if device(dir) != device(here) {
			return dir
		}
	}
	t.Skip("there is no second file system")
	return ""
}
