package smarthttp

import "syscall"

// attributes are those of git http-backend's process. It starts other programs, in a group of its own. It does not outlive this one; the programs
// may: a git receive-pack that has begun to move refs goes on. (The kernel counts the end of the thread that started it. Go's threads don't end.)
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
