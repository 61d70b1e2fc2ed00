//go:build unix

package gitrepo

import "syscall"

func ownGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// lowerPriority lets other processes go before those of a process's group. It is best effort.
func lowerPriority(pid int) { syscall.Setpriority(syscall.PRIO_PGRP, pid, 10) }
