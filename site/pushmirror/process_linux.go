package pushmirror

import "syscall"

// attributes are those of a git process: it has no terminal, at which it or ssh could ask for a
// password, leads a group of its own, and does not outlive the daemon. (The kernel counts the end of
// the thread that started it. Go's threads don't end.)
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
}
