package main

import (
	"os"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// dieWait is how long the kernel may take to deliver a signal to ourselves.
const dieWait = time.Second

// dieOf ends the program by a signal, so that a shell that runs it sees what it
// would have seen of the command. It returns if that can't be done.
func dieOf(s syscall.Signal) {
	// The command left a core dump, if any is wanted.
	_ = unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{})
	// signal.Reset would not do: Go's own effect of SIGQUIT is a trace, that of SIGUSR1 is none.
	// A sigaction of all zeros, of at most 64 bytes on any architecture, is the default.
	var byDefault [64]byte
	_, _, _ = unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(s), uintptr(unsafe.Pointer(&byDefault)), 0, 8, 0, 0)
	if unix.Kill(os.Getpid(), s) == nil {
		time.Sleep(dieWait)
	}
}
