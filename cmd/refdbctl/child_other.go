//go:build unix && !linux

package main

import "syscall"

// dieWithParent does nothing: this system can't tell a child of its parent's end.
func dieWithParent(*syscall.SysProcAttr) {}

// stopped can't be asked here without taking the child's end from its waiter.
func stopped(int) bool { return false }
