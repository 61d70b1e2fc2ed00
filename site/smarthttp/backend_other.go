//go:build !linux

package smarthttp

import "syscall"

// attributes are those of git http-backend's process. It starts other programs, in a group of its own.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
