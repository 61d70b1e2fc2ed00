package driver

import "time"

// NeverStale is the stale-after of a lock that stands for an [Intent]. Such a lock
// outlives its owner: however much time has passed, the owner's site may have shown
// the new value to its readers. It is recorded with the lock like any other
// stale-after.
const NeverStale = 100 * 365 * 24 * time.Hour

// An Intent is a move of a ref that its owner is about to make outside the
// database, such as in a Git repository. It is recorded before the move, together
// with a lock on the ref, so that a crash leaves a record of what may have been
// done. Nobody else can move the ref until the owner ends the intent with
// Finish of package intents, or an operator with its Resolve, however long that takes.
type Intent struct {
	Project string
	Ref     string
	Token   Token  // of the lock
	Owner   string // of the lock
	Agent   string // who makes the move, as the owner describes it
	By      string // who asked for it; "" if nobody said, or the schema can't record it
	Op      string // the operation that recorded it, as in intents.Preparation; "" as for By
	Old     Value  // what the ref holds; [Unknown] or a zero ID if it doesn't exist
	New     Value  // what it will hold; a zero ID if it will be deleted
	Time    time.Time
	Age     time.Duration // the database's now − Time

	// Decision says how it was resolved; [Pending] if it was not.
	Decision  Decision
	DecidedBy string
	Reason    string
	DecidedAt time.Time
}

// ID names the intent. It is also the name of its lock.
func (i Intent) ID() LockID { return LockID{i.Project, i.Ref, i.Owner, i.Token} }

// A Decision says how an intent was resolved.
type Decision string

const (
	Pending Decision = ""         // none yet: the lock stands
	KeepOld Decision = "keep-old" // the ref keeps what it held
	TakeNew Decision = "take-new" // the ref takes the new value
	Revoked Decision = "revoked"  // by its owner: its Prepare has and will have no effect
)

// An IntentFilter selects intents. Zero fields select everything.
type IntentFilter struct {
	Project string
	Ref     string // exactly this one
	// Owner selects the intents of one owner and, given a site's name, those of
	// all its processes, as in a [LockFilter].
	Owner string
	// Decided selects those that were resolved and not forgotten yet, instead
	// of the pending ones.
	Decided bool
}

// A PrepareRequest locks the refs of updates of one project, and records the
// updates as intents.
type PrepareRequest struct {
	Project string
	// Updates are as in an UpdateRequest. One whose Old is absent and whose New is not creates
	// its ref. No ref is created beside another, not among Updates, whose name [Excludes] its own:
	// if an intent on that one is pending, the error is a *LockedError, if it holds a value, a
	// *NameConflictError. No two of Updates whose New is not absent exclude each other.
	Updates []Update
	Owner   string
	// Nonce names this preparation. If all rows carry it and their intents are
	// pending, the answer is that preparation's, as for an Acquire. Otherwise rows
	// that carry it count as another owner's locks.
	Nonce string
	Agent string   // recorded with each intent
	By    string   // who asked for it, recorded too, as is Nonce: see [Intent]
	Packs []string // that hold the objects of the new values: see [PackStore]
	// Parts are the only parts of some of Packs, which may not be there yet, sorted by pack.
	// RequiredValues are what refs must hold for that, sorted: the packs build on it.
	Parts          []PackPart
	RequiredValues []RefValue
}

// Prepared is the answer to a PrepareRequest.
type Prepared struct {
	// Token is larger than that of any earlier acquisition of any of the refs.
	Token Token
	// Time is when the intents were recorded, by the database's clock. If an earlier request of the
	// same nonce recorded them, it may be the time of the answer. The token may be ahead of that
	// clock.
	Time time.Time
	// Reclaimed are the stale locks that were taken over, as they were before.
	Reclaimed []LockInfo
}

// A FinishRequest ends intents that were prepared together. A ref is in Done, in
// Dropped or in neither.
type FinishRequest struct {
	Project string
	Origin  // of the update of Done's refs: see UpdateRequest; its Owner is that of the intents
	Token   Token
	Done    []Update // of the intents, sorted by ref
	Dropped []string // sorted
}

// A ResolveRequest ends intents in their owners' place.
type ResolveRequest struct {
	Origin
	Intents  []LockID // in any order
	Decision Decision // KeepOld or TakeNew
	Reason   string   // recorded, as By is
}

// An IntentQuery selects a page of intents.
type IntentQuery struct {
	IntentFilter
	After IntentCursor // only what comes after this; zero to start
	Limit int          // at most this many
}

// An IntentCursor is the key of a record in a listing of intents.
type IntentCursor struct {
	Project, Ref string
	Token        Token
}

// An IntentPage is a part of a listing. It may be short, or empty, and not be the last.
type IntentPage struct {
	Intents []Intent
	Next    IntentCursor // IntentQuery.After of the next page; zero if there is none
}
