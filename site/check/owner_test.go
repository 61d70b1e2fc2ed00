package check_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/globalrefdb/globalrefdb/site/internal/sitetest"
)

// A push by root leaves directories that the repository's own user can't write to.
func TestCheckFindsFilesOfAnotherUser(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root can give files to another user: what a push by root leaves is not looked at")
	}
	r := sitetest.NewGuarded(t)
	for name, where := range map[string]string{
		"a directory of refs":    "refs/heads/team",
		"a directory of objects": "objects/zz",
		"a log":                  "logs/refs/heads/x",
		"a file":                 "packed-refs",
	} {
		path := filepath.Join(r.B.Dir, where)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, nil, 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(path, 12345, 12345); err != nil {
			t.Fatal(err)
		}
		if got := r.Check(t, nil, false); got != "foreign-owner "+where {
			t.Errorf("%s: %q", name, got)
		}
		os.Remove(path)
	}
	if got := r.Check(t, r.DB, false); got != "" {
		t.Errorf("without them: %q", got)
	}
}
