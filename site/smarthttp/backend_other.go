//go:build !linux

package smarthttp

import "syscall"

// attributes returns the attributes of git http-backend's process, which gets a process group of
// its own, together with the programs that it starts.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
