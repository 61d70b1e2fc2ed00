package sqlite_test

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// mounted mounts a file alone into another directory.
func mounted(t *testing.T, path string) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), "refdb.db")
	if err := os.WriteFile(to, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount(path, to, "", syscall.MS_BIND, ""); err != nil {
		t.Skipf("left out: a mount of the file alone (%v); root runs it", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(to, 0); err != nil {
			t.Error(err)
		}
	})
	return to
}
