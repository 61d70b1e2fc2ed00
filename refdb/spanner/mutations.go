package spanner

import (
	"fmt"
	"time"

	"cloud.google.com/go/spanner"

	"github.com/globalrefdb/globalrefdb/refdb"
)

// maxMutations is what Spanner takes in one commit, this many included
// (https://cloud.google.com/spanner/quotas#limits-for). A row written counts
// once per column, keys included, and a row deleted once; each entry that
// leaves or joins an index counts once too. More are refused with
// INVALID_ARGUMENT.
const maxMutations = 80_000

var (
	refColumns    = []string{"project", "ref", "value", "time", "op"}
	lockColumns   = []string{"project", "ref", "heartbeat", "token", "owner", "nonce", "stale_after"}
	markerColumns = lockColumns[:5]
	beatColumns   = lockColumns[:3]
)

// A batch is what a commit writes.
type batch struct {
	mutations []*spanner.Mutation
	cost      int // in Spanner's count
}

func (b *batch) add(cost int, m *spanner.Mutation) {
	b.mutations = append(b.mutations, m)
	b.cost += cost
}

// check returns ErrTooMany if Spanner would refuse the batch for its size.
func (b *batch) check() error {
	if b.cost > maxMutations {
		return fmt.Errorf("%w: %d changes of columns and index entries, Cloud Spanner takes %d in one commit",
			refdb.ErrTooMany, b.cost, maxMutations)
	}
	return nil
}

// putRef writes a ref. Its entry in the index project_time moves.
func (b *batch) putRef(project, ref string, v refdb.Value, op string) {
	b.add(len(refColumns)+2, spanner.InsertOrUpdate("refs", refColumns,
		[]any{project, ref, string(v), spanner.CommitTimestamp, orNull(op)}))
}

func (b *batch) deleteRef(project, ref string) {
	b.add(1+1, spanner.Delete("refs", spanner.Key{project, ref}))
}

// insertLock takes a lock that was free: it fails if it isn't.
func (b *batch) insertLock(ref string, r *refdb.AcquireRequest) {
	b.add(len(lockColumns), spanner.Insert("locks", lockColumns, lockValues(ref, r)))
}

// updateLock takes a lock over: it fails if there is none.
func (b *batch) updateLock(ref string, r *refdb.AcquireRequest) {
	b.add(len(lockColumns), spanner.Update("locks", lockColumns, lockValues(ref, r)))
}

func lockValues(ref string, r *refdb.AcquireRequest) []any {
	return []any{r.Project, ref, spanner.CommitTimestamp, spanner.CommitTimestamp, r.Owner, orNull(r.Nonce), r.StaleAfter.Microseconds()}
}

// insertMarker keeps others from reclaiming the same lock: it fails if they do.
func (b *batch) insertMarker(project, ref, owner string) {
	b.add(len(markerColumns), spanner.Insert("locks", markerColumns,
		[]any{project, ref, spanner.CommitTimestamp, spanner.CommitTimestamp, owner}))
}

func (b *batch) beat(project, ref string) {
	b.add(len(beatColumns), spanner.Update("locks", beatColumns, []any{project, ref, spanner.CommitTimestamp}))
}

func (b *batch) deleteLock(project, ref string) {
	b.add(1, spanner.Delete("locks", spanner.Key{project, ref}))
}

// deleteLocks deletes all locks of a project.
func (b *batch) deleteLocks(project string) {
	b.add(1, spanner.Delete("locks", spanner.Key{project}.AsPrefix()))
}

func orNull(s string) spanner.NullString { return spanner.NullString{StringVal: s, Valid: s != ""} }

// marker is the project of the row that stands for a reclaim of the lock with
// that token. Gerrit's plugin builds it with Java's Timestamp.toString, which
// prints nine digits of a second's fraction, or none if it is zero.
func marker(project string, token time.Time) string {
	layout := "2006-01-02T15:04:05.000000000Z"
	if token.Nanosecond() == 0 {
		layout = "2006-01-02T15:04:05Z"
	}
	return refdb.ReclaimPrefix + project + "_" + token.UTC().Format(layout)
}
