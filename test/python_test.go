package test

import (
	"os/exec"
	"testing"

	"github.com/globalrefdb/globalrefdb/internal/testprogram"
)

// The checks of the Python client: its types, its tests with a real server, the programs of docs/SERVICE.md and of its
// own page, and its package.
func TestThePythonClientPassesItsChecks(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("left out by -short: the Python client; make python and make test-all run it")
	}
	if out, err := exec.Command("../clients/python/check.sh", "install").CombinedOutput(); err != nil {
		t.Skipf("left out: the Python client, whose checks need Python 3.11 with venv, and packages from PyPI: %v\n%s", err, out)
	}
	bin := t.TempDir()
	if err := testprogram.Build(bin, "cmd/refdbctl", "cmd/refdb-server"); err != nil {
		t.Fatal(err)
	}
	t.Log(runIn(t, "../clients/python", []string{"REFDB_TEST_BIN=" + bin}, "./check.sh"))
}
