//go:build !linux

package gitrepo

import "math"

type bounds struct{ memory, seconds, file uint64 }

// bound limits nothing here: daemons run on Linux.
func bound(pid int, b bounds) error { return nil }

func freeBytes(dir string) (uint64, error) { return math.MaxUint64, nil }
