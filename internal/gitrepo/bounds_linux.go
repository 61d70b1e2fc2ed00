package gitrepo

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// bound limits what a process may use, from now on: memory of its own, which files that it maps are no part of; and the time for which it keeps
// a processor busy. A process that exceeds the first fails, one that exceeds the second is killed.
func bound(pid int, memory, seconds uint64) error {
	return errors.Join(
		os.NewSyscallError("prlimit", unix.Prlimit(pid, unix.RLIMIT_DATA, &unix.Rlimit{Cur: memory, Max: memory}, nil)),
		os.NewSyscallError("prlimit", unix.Prlimit(pid, unix.RLIMIT_CPU, &unix.Rlimit{Cur: seconds, Max: seconds}, nil)),
	)
}
