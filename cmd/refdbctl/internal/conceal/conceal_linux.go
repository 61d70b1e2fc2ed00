// Package conceal keeps a secret of this process from other processes of the same user.
package conceal

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Process keeps other processes of the same user from reading this one's memory,
// environment and files.
func Process() error {
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("keeping the password from other processes: %w", err)
	}
	return nil
}
