//go:build !linux

package gitrepo

// bound limits nothing here: daemons run on Linux.
func bound(pid int, memory, seconds uint64) error { return nil }
