package spanner

import (
	"fmt"
	"time"

	"cloud.google.com/go/spanner"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/internal/operation"
	"github.com/globalrefdb/globalrefdb/refdb/internal/queue"
)

// maxMutations is the maximum number of mutations that Spanner accepts in one commit
// (https://cloud.google.com/spanner/quotas#limits-for). A written row counts once per column, keys
// included, and a deleted row once; each entry added to or removed from an index counts once, too.
// Spanner refuses more mutations with INVALID_ARGUMENT.
const maxMutations = 80_000

// MaxRefs is the maximum number of refs of one update or one preparation. The end of a preparation
// must fit into a commit, because git has moved the refs by then. It costs 22 mutations for each
// ref: the ref, its row of the history, the lock and the intent.
const MaxRefs = 3500

var (
	refColumns    = []string{"project", "ref", "value", "time", "op"}
	lockColumns   = []string{"project", "ref", "heartbeat", "token", "owner", "nonce", "stale_after"}
	markerColumns = lockColumns[:5]
	beatColumns   = lockColumns[:3]
	queueColumns  = []string{"project", "ref", "waiting"}

	reservationColumns = []string{"project", "ref", "heartbeat", "owner", "nonce", "stale_after", "waiting"}

	intentColumns   = []string{"project", "ref", "token", "owner", "agent", "old_value", "new_value", "time", "nonce"}
	decisionColumns = []string{"project", "ref", "token", "decision", "decided_by", "reason", "decided_at"}

	historyColumns = []string{"project", "ref", "position", "old_value", "new_value", "op", "owner", "asked_by", "shard"}

	usedColumns = []string{"id", "position", "kind"}

	revocationColumns = append(intentColumns[:len(intentColumns):len(intentColumns)], "decision", "decided_by", "decided_at")
)

// A batch holds the writes of a commit. It writes no row that it deletes.
type batch struct {
	mutations  []*spanner.Mutation
	deleted    map[string][]spanner.KeySet // by table
	cost       int                         // in Spanner's count
	unrecorded bool                        // changes of refs are not recorded in the history
	admitted   *string                     // the server that the commit admits, "" for none; nil if it does not change the admission
}

func (b *batch) add(cost int, m *spanner.Mutation) {
	b.mutations = append(b.mutations, m)
	b.cost += cost
}

func (b *batch) delete(cost int, table string, keys spanner.KeySet) {
	if b.deleted == nil {
		b.deleted = make(map[string][]spanner.KeySet)
	}
	b.deleted[table] = append(b.deleted[table], keys)
	b.cost += cost
}

// all returns the mutations of the commit. The deletions from a table are a single mutation:
// thousands of mutations would take an emulator half a minute.
func (b *batch) all() []*spanner.Mutation {
	all := b.mutations
	for table, keys := range b.deleted {
		all = append(all, spanner.Delete(table, spanner.KeySets(keys...)))
	}
	return all
}

// check returns ErrTooMany if the batch is too large for Spanner.
func (b *batch) check() error {
	if b.cost > maxMutations {
		return fmt.Errorf("%w: %d changes of columns and index entries, Cloud Spanner accepts %d in one commit",
			driver.ErrTooMany, b.cost, maxMutations)
	}
	return nil
}

// putRef writes a ref that held old. Its entry in the index project_time moves.
func (b *batch) putRef(project, ref string, old, v driver.Value, by driver.Origin) {
	b.add(len(refColumns)+2, spanner.InsertOrUpdate("refs", refColumns,
		[]any{project, ref, string(v), spanner.CommitTimestamp, orNull(by.ID)}))
	b.record(project, ref, old, v, by)
}

// removeRef deletes the row of a ref that held old. For a deleted ref, that is not a change.
func (b *batch) removeRef(project, ref string, old driver.Value, by driver.Origin) {
	b.deleteRef(project, ref)
	if !old.IsDeleted() {
		b.record(project, ref, old, driver.Unknown, by)
	}
}

func (b *batch) deleteRef(project, ref string) {
	b.delete(1+1, "refs", spanner.Key{project, ref})
}

// record adds a change to the history. Spanner does not document how it counts the index entries
// that an insert makes; each of their columns is counted here.
func (b *batch) record(project, ref string, old, v driver.Value, by driver.Origin) {
	if b.unrecorded {
		return
	}
	b.add(len(historyColumns)+2+2, spanner.Insert("history", historyColumns, []any{project, ref, spanner.CommitTimestamp,
		string(old), string(v), orNull(by.ID), orNull(by.Owner), orNull(by.By), shardOf(project)}))
}

// insertLock takes a free lock. It fails if there is a row.
func (b *batch) insertLock(ref string, c claim) {
	b.add(len(lockColumns), spanner.Insert("locks", lockColumns, c.values(ref)))
}

// updateLock takes a lock over. It fails if there is no row.
func (b *batch) updateLock(ref string, c claim) {
	b.add(len(lockColumns), spanner.Update("locks", lockColumns, c.values(ref)))
}

// values returns the values of lockColumns.
func (c claim) values(ref string) []any {
	return []any{c.project, ref, spanner.CommitTimestamp, spanner.CommitTimestamp, c.Owner, orNull(c.Nonce), c.staleAfter.Microseconds()}
}

// setQueue writes the queue of a lock. It fails if there is no row.
func (b *batch) setQueue(project, ref string, q queue.Queue) {
	b.add(len(queueColumns), spanner.Update("locks", queueColumns, []any{project, ref, waiting(q)}))
}

// reserve turns a lock into the reservation in a. It fails if there is no row.
func (b *batch) reserve(project, ref string, a queue.RowUpdate) {
	b.add(len(reservationColumns), spanner.Update("locks", reservationColumns,
		[]any{project, ref, a.Lock.Heartbeat, a.Lock.Owner, orNull(a.Nonce), a.Lock.StaleAfter.Microseconds(), waiting(a.Queue)}))
}

// waiting returns q as the column waiting stores it.
func waiting(q queue.Queue) []string {
	if len(q) == 0 {
		return nil // NULL
	}
	return q.Texts()
}

// insertMarker excludes other reclaims of the same lock. It fails if there is one.
func (b *batch) insertMarker(project, ref, owner string) {
	b.add(len(markerColumns), spanner.Insert("locks", markerColumns,
		[]any{project, ref, spanner.CommitTimestamp, spanner.CommitTimestamp, owner}))
}

func (b *batch) beat(project, ref string) {
	b.add(len(beatColumns), spanner.Update("locks", beatColumns, []any{project, ref, spanner.CommitTimestamp}))
}

func (b *batch) deleteLock(project, ref string) {
	b.delete(1, "locks", spanner.Key{project, ref})
}

// deleteLocks deletes all locks of a project.
func (b *batch) deleteLocks(project string) {
	b.delete(1, "locks", spanner.Key{project}.AsPrefix())
}

// insertIntent records u as an intent, with the token of its lock.
func (b *batch) insertIntent(u driver.Update, r *driver.PrepareRequest) {
	b.add(len(intentColumns), spanner.Insert("intents", intentColumns,
		[]any{r.Project, u.Ref, spanner.CommitTimestamp, r.Owner, r.Agent, string(u.Old), string(u.New), spanner.CommitTimestamp, operation.OfIntent(*r)}))
}

// insertRevocation records that r was revoked.
func (b *batch) insertRevocation(r *driver.PrepareRequest) {
	u := r.Updates[0]
	b.add(len(revocationColumns), spanner.Insert("intents", revocationColumns,
		[]any{r.Project, u.Ref, spanner.CommitTimestamp, r.Owner, r.Agent, string(u.Old), string(u.New), spanner.CommitTimestamp,
			r.Nonce, string(driver.Revoked), r.Owner, spanner.CommitTimestamp}))
}

func (b *batch) decideIntent(i driver.LockID, r *driver.ResolveRequest) {
	b.add(len(decisionColumns), spanner.Update("intents", decisionColumns,
		[]any{i.Project, i.Ref, i.Token.Time(), string(r.Decision), r.By, r.Reason, spanner.CommitTimestamp}))
}

// deleteIntent deletes an intent, if there is one with that token. Tokens are as precise as the
// column: Spanner's commit timestamps are whole microseconds.
func (b *batch) deleteIntent(project, ref string, token driver.Token) {
	b.delete(1, "intents", spanner.Key{project, ref, token.Time()})
}

// packEntries is the maximum cost of a pack's entries in packs_order and packs_kind, of two columns
// each: the old entry is removed, and each column of the new one counts.
const packEntries = (1 + 2) + (1 + 2)

// putPart stores a part of a pack. It begins the pack if found has no row, and completes it with
// the last part.
func (b *batch) putPart(p driver.PackPart, found packForPart) {
	pack := p.Pack
	row := map[string]any{"id": pack.ID, "size": found.size + int64(len(p.Data)), "time": spanner.CommitTimestamp}
	put := spanner.UpdateMap
	if found.row == nil {
		put = spanner.InsertMap
		row["project"], row["owner"], row["bases"], row["tips"], row["base"] = pack.Project, pack.Owner, pack.Prerequisites, pack.Tips, pack.Full
		row["kind"], row["parts"], row["sum"] = unusedPack, 0, ""
	}
	if p.Last {
		row["parts"], row["size"], row["sum"] = int64(p.Number)+1, pack.Size, pack.Sum
	}
	if p.Last && pack.Full {
		row["position"], row["kind"] = instant(pack.Position), basePack
	}
	b.add(len(row)+packEntries, put("packs", row))
	b.add(3, spanner.InsertMap("pack_parts", map[string]any{"pack": pack.ID, "number": int64(p.Number), "data": p.Data}))
}

// usePack gives a pack its position.
func (b *batch) usePack(id string) {
	b.add(len(usedColumns)+packEntries, spanner.Update("packs", usedColumns, []any{id, spanner.CommitTimestamp, spanner.NullString{}}))
}

// deletePack deletes a pack and its parts. Deleting a range of rows that are in no index counts as
// one mutation, however many rows there are.
func (b *batch) deletePack(id string) {
	b.delete(1+1+1, "packs", spanner.Key{id})
	b.delete(1, "pack_parts", spanner.Key{id}.AsPrefix())
}

// deletePiece deletes the parts of a pack before next, and makes the pack incomplete and unused. It
// assumes parts of the maximum size, because the true sizes are only known by reading the parts.
func (b *batch) deletePiece(id string, p largePack, next int64) {
	row := map[string]any{
		"id": id, "position": spanner.NullTime{}, "kind": unusedPack, "parts": 0, "sum": "",
		"size": max(0, p.size-(next-p.first.Int64)*driver.MaxPackPart),
	}
	b.add(len(row)+packEntries, spanner.UpdateMap("packs", row))
	b.delete(1, "pack_parts", spanner.KeyRange{Start: spanner.Key{id}, End: spanner.Key{id, next}, Kind: spanner.ClosedOpen})
}

func orNull(s string) spanner.NullString { return spanner.NullString{StringVal: s, Valid: s != ""} }

// marker returns the project of the row that stands for a reclaim of the lock with that token.
// Gerrit's plugin builds it with Java's Timestamp.toString, which prints nine digits of a second's
// fraction, or none if it is zero.
func marker(project string, token time.Time) string {
	layout := "2006-01-02T15:04:05.000000000Z"
	if token.Nanosecond() == 0 {
		layout = "2006-01-02T15:04:05Z"
	}
	return driver.ReclaimPrefix + project + "_" + token.UTC().Format(layout)
}
