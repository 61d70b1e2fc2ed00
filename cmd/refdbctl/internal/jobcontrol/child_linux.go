package jobcontrol

import (
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// dieWithParent makes the kernel kill the command when this program is killed, because the
// command's lock would no longer be renewed.
func dieWithParent(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }

// stopped reports whether a child has been stopped. It returns true once for each stop.
func stopped(pid int) bool {
	var info unix.Siginfo
	err := unix.Waitid(unix.P_PID, pid, &info, unix.WSTOPPED|unix.WNOHANG, nil)
	return err == nil && info.Signo == int32(unix.SIGCHLD)
}

// stopSelf stops this process until it is continued. The kernel ignores the signal if no process
// could continue this one. In both cases the stop is over on return: a signal that a thread sends
// to itself takes effect before the call returns, while a signal to the process might be delivered
// to a thread that runs later.
func stopSelf() {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	_ = unix.Tgkill(unix.Getpid(), unix.Gettid(), stopSignal)
}
