package rules

import (
	"slices"

	"github.com/globalrefdb/globalrefdb/refdb"
)

func fresh(l refdb.LockInfo) bool { return !l.Stale() }

// Refuse returns a *refdb.LockedError if one of locks is fresh. It names the stale ones too,
// but no idle reservations.
func Refuse(locks []refdb.LockInfo) error {
	if !slices.ContainsFunc(locks, fresh) {
		return nil
	}
	return &refdb.LockedError{Holders: slices.DeleteFunc(slices.Clone(locks), refdb.LockInfo.Idle)}
}

// heeded returns those of locks that a request of that mode must not ignore.
func heeded(locks []refdb.LockInfo, mode refdb.LockMode) []refdb.LockInfo {
	return slices.DeleteFunc(slices.Clone(locks), func(l refdb.LockInfo) bool { return ignores(mode, l) })
}

// ignores reports whether a request of that mode ignores l.
func ignores(mode refdb.LockMode, l refdb.LockInfo) bool {
	return mode == refdb.AdvisoryLocks && KindOf(l) != Intent
}

// reclaimed returns those of the locks taken over that are locks, not reservations.
func reclaimed(locks []refdb.LockInfo) []refdb.LockInfo {
	return slices.DeleteFunc(slices.Clone(locks), refdb.LockInfo.Reserved)
}

// fences reports whether ref is one of those of f, which may be nil.
func fences(f *refdb.Fence, ref string) bool {
	if f == nil {
		return false
	}
	_, fenced := slices.BinarySearch(f.Refs, ref)
	return fenced
}
