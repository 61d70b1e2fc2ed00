package exit

import (
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// DieBySignal ends this program by a signal, so that a shell that runs it sees the
// same end as the command's. It returns if the signal does not end the program.
func DieBySignal(s syscall.Signal) {
	// This program dumps no core: the command has dumped its own, if dumps are enabled.
	_ = unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{})
	// signal.Reset is not enough: the Go runtime would print a trace for SIGQUIT, and ignore
	// SIGUSR1. A sigaction of all zeros is the default action; it has at most 64 bytes on any
	// architecture.
	var defaultAction [64]byte
	_, _, _ = unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(s), uintptr(unsafe.Pointer(&defaultAction)), 0, 8, 0, 0)
	// A thread's signal to itself takes effect before the call returns, unless the thread blocks it. One
	// to the process might be left to a thread that runs later.
	runtime.LockOSThread()
	_ = unix.PthreadSigmask(unix.SIG_SETMASK, &unix.Sigset_t{}, nil)
	_ = unix.Tgkill(unix.Getpid(), unix.Gettid(), s)
}
