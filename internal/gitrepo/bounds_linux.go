package gitrepo

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// bounds limit what a process may use: memory of its own, which files that it maps are no part of; the time for which it keeps a processor busy; and the size
// of each file that it writes.
type bounds struct{ memory, seconds, file uint64 }

// bound limits a process from now on. One that exceeds its memory fails, others get a signal that says what they exceeded.
func bound(pid int, b bounds) error {
	var errs []error
	for resource, limit := range map[int]unix.Rlimit{
		unix.RLIMIT_DATA:  {Cur: b.memory, Max: b.memory},
		unix.RLIMIT_CPU:   {Cur: b.seconds, Max: b.seconds + 10}, // at the second one it gets no signal that says why
		unix.RLIMIT_FSIZE: {Cur: b.file, Max: b.file},
	} {
		errs = append(errs, os.NewSyscallError("prlimit", unix.Prlimit(pid, resource, &limit, nil)))
	}
	return errors.Join(errs...)
}

// freeBytes returns how many bytes of the disk of a directory are free.
func freeBytes(dir string) (uint64, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return 0, &os.PathError{Op: "statfs", Path: dir, Err: err}
	}
	return s.Bavail * uint64(s.Bsize), nil
}
