//go:build !linux

package pushmirror

import "syscall"

// attributes are those of a git process: it has no terminal, at which it or ssh could ask for a
// password, and leads a group of its own.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }
