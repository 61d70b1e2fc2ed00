package site

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// makeUndumpable prevents other processes of the same user from reading this process's memory,
// environment and files.
func makeUndumpable() error {
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("keeping the password from other processes: %w", err)
	}
	return nil
}
