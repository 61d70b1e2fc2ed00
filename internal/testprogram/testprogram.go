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
		if err := build(filepath.Join(dir, filepath.Base(command)), command, "CGO_ENABLED=0", "-trimpath"); err != nil {
			return err
		}
	}
	return nil
}

// BuildRaced builds a program of this module with the race detector, which as in the Makefile leaves out translated C code.
func BuildRaced(path, command string) error {
	return build(path, command, "CGO_ENABLED=1", "-race", "-gcflags=modernc.org/sqlite/lib=-race=false", "-gcflags=modernc.org/libc=-race=false", "-gcflags=modernc.org/memory=-race=false")
}

func build(path, command, env string, flags ...string) error {
	// Instead of running the program, go run has it copied.
	args := append(append([]string{"run"}, flags...), "-ldflags", "-s -w", "-exec", "cp", module+command, path)
	cmd := exec.Command("go", args...)
	cmd.Env = append(os.Environ(), env)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("building %s: %w: %s", command, err, out)
	}
	return nil
}
