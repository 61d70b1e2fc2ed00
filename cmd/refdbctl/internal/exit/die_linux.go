package exit

import (
	"os"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// dieWait is how long the kernel may take to deliver a signal to this process.
const dieWait = time.Second

// DieBySignal ends this program by a signal, as its command ended, for the calling shell to see. It
// returns if the signal does not end the program.
func DieBySignal(s syscall.Signal) {
	// This program dumps no core: the command has dumped its own, if dumps are enabled.
	_ = unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{})
	// signal.Reset is not enough: the Go runtime would print a trace for SIGQUIT, and ignore
	// SIGUSR1. A sigaction of all zeros is the default action; it has at most 64 bytes on any
	// architecture.
	var defaultAction [64]byte
	_, _, _ = unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(s), uintptr(unsafe.Pointer(&defaultAction)), 0, 8, 0, 0)
	if unix.Kill(os.Getpid(), s) == nil {
		time.Sleep(dieWait)
	}
}
