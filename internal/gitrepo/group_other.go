//go:build !unix

package gitrepo

import "syscall"

func ownGroup() *syscall.SysProcAttr { return nil }

func lowerPriority(int) {}
