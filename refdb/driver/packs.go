package driver

import (
	"cmp"
	"context"
	"strings"
	"time"
)

// MaxPackPart is the most bytes in one part of a pack. Cloud Spanner allows 10 MiB in a cell
// (https://cloud.google.com/spanner/quotas). A transaction per MiB keeps readers of changes
// from waiting for a large pack.
const MaxPackPart = 1 << 20

// A Pack is a pack of Git objects that the database keeps for the copies of a repository. It is
// stored in parts, and complete once the last one is. From then on a preparation may use it: see
// intents.WithPacks.
//
// A pack that was used is in the order of [PackKey]. Whoever has unpacked all used packs of a
// project up to a key has all objects that they hold. A full pack, a base, stands for all packs up
// to its key.
type Pack struct {
	ID      string // random, at most 64 bytes
	Project string
	Owner   string // the process that stored it, as refdb.DB.Owner has it
	// Prerequisites are the commits and tags whose objects it leaves out, as object IDs. The
	// database had packs with all of them when this one was made.
	Prerequisites []string
	Tips          []string // the object IDs that it was made for: with Prerequisites, all that they reach is in it

	// Full: it is a base, which has all objects of the project, up to Position. It is used without
	// a preparation.
	Full bool
	// Position orders used packs. It is that of the preparation that first used it, or of a full
	// pack as it says; 0 if the pack was not used yet.
	Position Position

	Parts int           // how many; 0 unless it is complete
	Size  int64         // bytes
	Sum   string        // SHA-256 of all bytes, in hex; "" unless it is complete
	Age   time.Duration // the database's now − the time of its latest part

	// Data of the only part, if it was asked for: see [PackQuery].
	Data []byte
}

// Key is the pack's place in the order of used packs.
func (p Pack) Key() PackKey { return PackKey{p.Position, p.ID} }

// A PackKey is a place in the order of used packs: by position, then ID, as bytes. The ID "" stands
// before all packs of its position.
type PackKey struct {
	Position Position
	ID       string
}

// Compare returns -1, 0 or 1 if k stands before other, is the same, or stands after it.
func (k PackKey) Compare(other PackKey) int {
	return cmp.Or(cmp.Compare(k.Position, other.Position), strings.Compare(k.ID, other.ID))
}

// A PackPart is what [PackStore.StorePart] stores.
type PackPart struct {
	// Pack is the same in all parts, except that only the last one has Size and Sum. Age, Data and
	// Parts are not looked at, nor is Position unless it is Full.
	Pack   Pack
	Number int // from 0
	Data   []byte
	Last   bool
}

// A RefValue is a ref and a value that it must hold, because packs build on that.
type RefValue struct {
	Ref   string
	Value Value
}

// A PackQuery selects used packs of a project.
type PackQuery struct {
	Project string
	After   PackKey // only what comes after this; zero to start
	Limit   int     // at most this many
	// Inline is how many bytes of data the page may have: of packs with a single part, from the
	// first one on, until one does not fit.
	Inline int
}

// A PackPage is a part of the used packs of a project, in the order of their keys.
type PackPage struct {
	Packs []Pack
	// Upto is the last position that is complete, as [HistoryState.Upto]: no pack but a full one
	// will appear at or below it any more. The page may also have packs that come later.
	Upto Position
	More bool // there are more than Limit
}

// A PackStore is a [Driver] that keeps packs.
//
// [IntentStore.Prepare] of such a driver marks r.Packs as used, in its transaction: those that were
// not used yet get its position. If one of them is not there and complete, or is of another
// project, it does nothing and returns an error that wraps ErrNoPack, after a *LockedError and a
// *MismatchError in precedence. Nothing that deletes packs gets between: it comes before or after.
//
// Packs that r.Parts has are stored before, as by StorePart, in the same transaction. If Prepare
// returns an error they may be there, unused. If a ref of r.RequiredValues does not hold that
// value, that is as if a pack was not there. Locks on it do not matter.
type PackStore interface {
	// StorePart stores a part, in one transaction. The first part begins the pack, the last one
	// completes it. To store a part again changes nothing. If the pack was not begun, or was
	// dropped, or the last part comes before all others are there, the error wraps ErrNoPack. A
	// full pack is in the order of used packs as soon as it is complete.
	StorePart(ctx context.Context, p PackPart) error

	// Packs returns a page of used packs, and how far they are complete, in one snapshot. It begins
	// with the latest complete full pack: what comes before is not there any more, even if it was
	// not dropped yet.
	Packs(ctx context.Context, q PackQuery) (PackPage, error)

	// PackPart returns the data of a part of a complete pack; an error that wraps ErrNoPack if
	// there is none.
	PackPart(ctx context.Context, id string, number int) ([]byte, error)

	// DropPack deletes a pack that was not used. If it was used, or is not there, it does nothing.
	DropPack(ctx context.Context, id string) error

	// DropAbandonedPacks deletes packs that were not used and whose latest part is older than
	// olderThan, by the database's clock. It and the methods below delete at most limit packs, and
	// fewer if the transaction would take long, but at least one if there is one. They return how
	// many.
	//
	// A pack that would take long by itself is deleted in several transactions, by DropPack, too.
	// From the first one on nobody can list, read or use it. If they are interrupted what is left
	// is a pack that is not complete and was not used.
	DropAbandonedPacks(ctx context.Context, olderThan time.Duration, limit int) (int, error)

	// DropSupersededPacks deletes used packs of a project that come before its latest complete full
	// pack.
	DropSupersededPacks(ctx context.Context, project string, limit int) (int, error)

	// RemovePacks deletes packs of a project, whatever became of them.
	RemovePacks(ctx context.Context, project string, limit int) (int, error)

	// PackUsage returns how much of the packs of a project, or of all for "", the database keeps.
	PackUsage(ctx context.Context, project string) (PackUsage, error)
}

// PackUsage counts the packs in the database.
type PackUsage struct {
	Packs, FullPacks int   // used; complete full ones among them
	Size             int64 // bytes of used packs
	Unused           int   // packs that were not used
	UnusedSize       int64 // bytes; of incomplete packs the parts that are there
}
