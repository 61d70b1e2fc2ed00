//go:build unix && !linux

package jobcontrol

import "syscall"

// dieWithParent does nothing: this system can't kill a child when its parent dies.
func dieWithParent(*syscall.SysProcAttr) {}

// stopped returns false: here no call tells of a stop without also reaping a child that has ended.
func stopped(int) bool { return false }
