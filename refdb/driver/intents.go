package driver

import "time"

// NeverStale is the stale-after of a lock that belongs to an [Intent]. Such a lock outlives its
// owner, because the owner's site may have shown the new value to its readers, however long ago
// that was. NeverStale is recorded with the lock like any other stale-after.
const NeverStale = 100 * 365 * 24 * time.Hour

// An Intent is a move of a ref that its owner is about to make outside the database, such as in a
// Git repository. It is recorded before the move, together with a lock on the ref, so that after a
// crash there is a record of the move that may have been made. No other process can move the ref
// until the owner ends the intent with Finish of package intents, or an operator ends it with
// Resolve, however long that takes.
type Intent struct {
	Project string
	Ref     string
	Token   Token  // of the lock
	Owner   string // of the lock
	Agent   string // the agent that makes the move, as described by the owner
	By      string // the requester; "" if unknown, or if the schema can't record it
	Op      string // the operation that recorded the intent, as in intents.Preparation; "" as for By
	Old     Value  // the ref's value; [Unknown] or a zero ID if the ref doesn't exist
	New     Value  // the ref's value after the move; a zero ID if the move deletes the ref
	Time    time.Time
	Age     time.Duration // the database's now − Time

	// Decision is how the intent was resolved, or [Pending].
	Decision  Decision
	DecidedBy string
	Reason    string
	DecidedAt time.Time
}

// ID returns the ID of the intent, which is also the ID of its lock.
func (i Intent) ID() LockID { return LockID{i.Project, i.Ref, i.Owner, i.Token} }

// A Decision is how an intent was resolved.
type Decision string

const (
	Pending Decision = ""         // not resolved: the lock still exists
	KeepOld Decision = "keep-old" // the ref keeps its value
	TakeNew Decision = "take-new" // the ref takes the new value
	Revoked Decision = "revoked"  // revoked by its owner: its Prepare has no effect, and never will
)

// An IntentFilter selects intents. Zero fields select everything.
type IntentFilter struct {
	Project string
	Ref     string // exactly this one
	// Owner selects the intents of one owner or, if it is the name of a site, of all processes of
	// the site, as in a [LockFilter].
	Owner string
	// Decided selects resolved intents that have not been forgotten yet, instead of pending
	// intents.
	Decided bool
}

// A PrepareRequest locks the refs of updates of one project, and records the
// updates as intents.
type PrepareRequest struct {
	Project string
	// Updates are as in an UpdateRequest. An update whose Old is absent and whose New is not
	// creates its ref. Prepare creates no ref beside another ref, outside Updates, whose name
	// [Excludes] the name of the new ref: if an intent on the other ref is pending, the error is a
	// *LockedError; if the other ref holds a value, it is a *NameConflictError. No two refs of
	// Updates whose New is not absent exclude each other.
	Updates []Update
	Owner   string
	// Nonce identifies this preparation. If all rows carry it and their intents are pending, the
	// result is that of the earlier request, as for an Acquire. Otherwise rows that carry it count
	// as locks of another owner.
	Nonce string
	Agent string   // recorded with each intent
	By    string   // the requester, recorded as well, as is Nonce: see [Intent]
	Packs []string // the packs with the objects of the new values: see [PackStore]
	// Parts are the only parts of those packs of Packs that may not be stored yet, sorted by pack.
	// RequiredValues are the values that refs must hold for these packs to be usable, sorted: the
	// packs build on them.
	Parts          []PackPart
	RequiredValues []RefValue
}

// Prepared is the answer to a PrepareRequest.
type Prepared struct {
	// Token is larger than that of any earlier acquisition of any of the refs.
	Token Token
	// Time is when the intents were recorded, by the database's clock. If an earlier request with
	// the same nonce recorded them, Time may be the time of this request. The token may be ahead of
	// the database's clock.
	Time time.Time
	// Reclaimed are the stale locks that were taken over, in their state before.
	Reclaimed []LockInfo
}

// A FinishRequest ends intents that were prepared together. A ref is in Done, in
// Dropped or in neither.
type FinishRequest struct {
	Project string
	Origin  // of the update of Done's refs: see UpdateRequest; its Owner is the owner of the intents
	Token   Token
	Done    []Update // the updates of the intents, sorted by ref
	Dropped []string // sorted
}

// A ResolveRequest ends intents on behalf of their owners.
type ResolveRequest struct {
	Origin
	Intents  []LockID // in any order
	Decision Decision // KeepOld or TakeNew
	Reason   string   // recorded, like By
}

// An IntentQuery selects a page of intents.
type IntentQuery struct {
	IntentFilter
	After IntentCursor // only intents after this key; zero to start
	Limit int          // at most this many
}

// An IntentCursor is the key of a record in a listing of intents.
type IntentCursor struct {
	Project, Ref string
	Token        Token
}

// An IntentPage is a part of a listing. A page that is short or empty need not be the last one.
type IntentPage struct {
	Intents []Intent
	Next    IntentCursor // IntentQuery.After of the next page; zero if there is none
}
