package smarthttp

import "syscall"

// attributes returns the attributes of git http-backend's process, which gets a process group of
// its own, together with the programs that it starts. The kernel kills git http-backend when this
// process ends, but not those programs: a git receive-pack that has begun to move refs goes on.
// (More precisely, the kernel kills it when the thread that started it ends; Go's threads don't
// end.)
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
