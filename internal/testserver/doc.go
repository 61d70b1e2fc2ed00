// Package testserver starts real servers for tests, benchmarks and fault
// injection: PostgreSQL, PgBouncer and the Spanner emulator, from the programs
// that are installed on this machine. A server ends with the process that
// started it, also if that is killed. Servers that refuse to run as root run as
// the user postgres or nobody.
package testserver

import "fmt"

// A NotInstalledError says that a server's programs are missing.
type NotInstalledError struct {
	Server string
}

func (e NotInstalledError) Error() string {
	return fmt.Sprintf("no %s: install it (`make deps`)", e.Server)
}
