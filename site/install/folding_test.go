package install

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestADiskThatFoldsNamesIsRefused(t *testing.T) {
	t.Parallel()
	folding := func(fold func(string) string) func(string) (fs.FileInfo, error) {
		return func(path string) (fs.FileInfo, error) {
			return os.Lstat(filepath.Join(filepath.Dir(path), fold(filepath.Base(path))))
		}
	}
	for name, c := range map[string]struct {
		lookup func(string) (fs.FileInfo, error)
		want   string
	}{
		"a disk that tells names apart":       {os.Lstat, ""},
		"one that folds case":                 {folding(strings.ToLower), "folds case"},
		"one that folds the forms of Unicode": {folding(func(s string) string { return strings.ReplaceAll(s, "e\u0301", "\u00e9") }), "folds the forms of Unicode"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			if err := os.Mkdir(filepath.Join(dir, "refs"), 0o755); err != nil {
				t.Fatal(err)
			}
			err := requireDistinctNames(dir, c.lookup)
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
			if left, err := os.ReadDir(filepath.Join(dir, "refs")); err != nil || len(left) > 0 {
				t.Errorf("%v is left, %v", left, err)
			}
		})
	}
	reftable := t.TempDir()
	if err := os.Mkdir(filepath.Join(reftable, "reftable"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := requireDistinctNames(reftable, folding(strings.ToLower)); err != nil {
		t.Errorf("refs without files of their own: %v", err)
	}
}
