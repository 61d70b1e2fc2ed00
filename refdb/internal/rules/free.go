package rules

import (
	"slices"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
)

func fresh(l driver.LockInfo) bool { return !l.Stale() }

// Refuse returns a *driver.LockedError if one of locks is fresh. It names the stale ones too,
// but no idle reservations.
func Refuse(locks []driver.LockInfo) error {
	if !slices.ContainsFunc(locks, fresh) {
		return nil
	}
	return &driver.LockedError{Holders: slices.DeleteFunc(slices.Clone(locks), driver.LockInfo.Idle)}
}

// heeded returns those of locks that a request of that mode must not ignore.
func heeded(locks []driver.LockInfo, mode driver.LockMode) []driver.LockInfo {
	return slices.DeleteFunc(slices.Clone(locks), func(l driver.LockInfo) bool { return ignores(mode, l) })
}

// ignores reports whether a request of that mode ignores l.
func ignores(mode driver.LockMode, l driver.LockInfo) bool {
	return mode == driver.AdvisoryLocks && KindOf(l) != Intent
}

// reclaimed returns those of the locks taken over that are locks, not reservations.
func reclaimed(locks []driver.LockInfo) []driver.LockInfo {
	return slices.DeleteFunc(slices.Clone(locks), driver.LockInfo.Reserved)
}

// fences reports whether ref is one of those of f, which may be nil.
func fences(f *driver.Fence, ref string) bool {
	if f == nil {
		return false
	}
	_, fenced := slices.BinarySearch(f.Refs, ref)
	return fenced
}
