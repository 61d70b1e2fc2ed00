package rules

import (
	"slices"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
)

func fresh(l driver.LockInfo) bool { return !l.Stale() }

// Refuse returns a *driver.LockedError if one of locks is fresh. The error also names the stale
// locks, but no idle reservations.
func Refuse(locks []driver.LockInfo) error {
	if !slices.ContainsFunc(locks, fresh) {
		return nil
	}
	return &driver.LockedError{Holders: slices.DeleteFunc(slices.Clone(locks), driver.LockInfo.Idle)}
}

// heeded returns the locks that a request of the given mode must not ignore.
func heeded(locks []driver.LockInfo, mode driver.LockMode) []driver.LockInfo {
	return slices.DeleteFunc(slices.Clone(locks), func(l driver.LockInfo) bool { return ignores(mode, l) })
}

// ignores reports whether a request of the given mode ignores l.
func ignores(mode driver.LockMode, l driver.LockInfo) bool {
	return mode == driver.AdvisoryLocks && KindOf(l) != Intent
}

// reclaimed returns the locks among the rows taken over, without the reservations.
func reclaimed(locks []driver.LockInfo) []driver.LockInfo {
	return slices.DeleteFunc(slices.Clone(locks), driver.LockInfo.Reserved)
}

// fences reports whether ref is a ref of f, which may be nil.
func fences(f *driver.Fence, ref string) bool {
	if f == nil {
		return false
	}
	_, fenced := slices.BinarySearch(f.Refs, ref)
	return fenced
}
