package rules

import (
	"slices"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
)

// Stands reports whether lock, which may be nil, has the given ID and kind. The lock may be stale:
// its holder has it until another process takes it over.
func Stands(lock *driver.LockInfo, id driver.LockID, k Kind) bool {
	return lock != nil && lock.ID() == id && KindOf(*lock) == k
}

// StandsAsListed reports whether lock, which may be nil, is a lease and matches the listed lock.
func StandsAsListed(lock *driver.LockInfo, listed driver.StandingLock) bool {
	return Stands(lock, listed.LockID, Lease) &&
		(listed.Heartbeat.IsZero() || listed.Heartbeat.UnixMicro() == lock.Heartbeat.UnixMicro())
}

// Missing returns those of f.Refs that have no lock of the given kind under f's owner and token.
// lockOn returns the lock on a ref, or nil.
func Missing(project string, f driver.Fence, k Kind, lockOn func(ref string) *driver.LockInfo) []string {
	return slices.DeleteFunc(slices.Clone(f.Refs), func(ref string) bool {
		return Stands(lockOn(ref), driver.LockID{Project: project, Ref: ref, Owner: f.Owner, Token: f.Token}, k)
	})
}

// lost returns a *driver.LostError if refs, whose locks of the given kind are lost, is not empty.
func lost(project string, refs []string, k Kind) error {
	if len(refs) == 0 {
		return nil
	}
	reason := "the database no longer has the lock, or another owner has it"
	if k == Intent {
		reason = "the intent has already ended"
	}
	return &driver.LostError{Project: project, Refs: refs, Reason: reason}
}
