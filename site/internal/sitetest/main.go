// Package sitetest is what the tests of several packages of site need: the hook's program, and two
// sites with a repository each.
package sitetest

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/globalrefdb/globalrefdb/internal/testprogram"
	"github.com/globalrefdb/globalrefdb/site/wire"
	"github.com/globalrefdb/globalrefdb/test/dbtest/local"
)

// Hook returns the path of cmd/refdb-hook, built for these tests.
func Hook() string { return os.Getenv(hookVar) }

const hookVar = "REFDB_TEST_HOOK"

// Main runs a package's tests, with git's settings and the hook's program in the environment. It is for
// TestMain.
func Main(m *testing.M) int {
	defer local.Stop()
	dir, err := os.MkdirTemp("", "site-test")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	hook := filepath.Join(dir, "refdb-hook")
	if err := testprogram.Build(dir, "cmd/refdb-hook"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	// Git has settings of these tests only.
	for name, value := range map[string]string{
		hookVar: hook,
		// Only a hang reaches it, however busy the machine is. A test of the limit sets its own.
		wire.LimitVariable: Patience.String(),
		"HOME":             dir, "GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": filepath.Join(dir, "gitconfig"),
		"GIT_AUTHOR_NAME": "T", "GIT_AUTHOR_EMAIL": "t@example.com", "GIT_COMMITTER_NAME": "T", "GIT_COMMITTER_EMAIL": "t@example.com",
	} {
		os.Setenv(name, value)
	}
	config := "[safe]\n\tdirectory = *\n[init]\n\tdefaultBranch = main\n\ttemplateDir = ~/template\n[gc]\n\tauto = 0\n"
	if err := os.WriteFile(filepath.Join(dir, "gitconfig"), []byte(config), 0o600); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	// Without sample hooks: to copy them would be most of what making a repository takes.
	for _, sub := range []string{"hooks", "info"} {
		if err := os.MkdirAll(filepath.Join(dir, "template", sub), 0o755); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	code := m.Run()
	local.Stop()
	leaked := func() error {
		return goleak.Find(goleak.IgnoreTopFunction("go.opencensus.io/stats/view.(*worker).start"))
	}
	err = leaked()
	for deadline := time.Now().Add(Patience); err != nil && code == 0 && time.Now().Before(deadline); {
		err = leaked() // connections of libraries end after they were closed
	}
	if err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	return code
}
