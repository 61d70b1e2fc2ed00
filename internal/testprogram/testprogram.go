// Package testprogram builds the programs that tests run. It links a program once for all tests, until its source
// changes: go run keeps what it linked in Go's cache, which go build does not.
package testprogram

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

const module = "github.com/globalrefdb/globalrefdb/"

// Build puts programs of this module into a directory, which it makes, as scripts/build.sh builds them for a release: commands are such as "cmd/refdb-hook".
func Build(dir string, commands ...string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, command := range commands {
		// Instead of running the program, go run has it copied.
		cmd := exec.Command("go", "run", "-trimpath", "-ldflags", "-s -w", "-exec", "cp", module+command, filepath.Join(dir, filepath.Base(command)))
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("building %s: %w: %s", command, err, out)
		}
	}
	return nil
}
