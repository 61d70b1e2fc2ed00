package driver

import (
	"cmp"
	"context"
	"strings"
	"time"
)

// MaxPackPart is the maximum size of one part of a pack, in bytes. Cloud Spanner allows 10 MiB in a
// cell (https://cloud.google.com/spanner/quotas). With one transaction per MiB, readers of changes
// don't wait for a large pack.
const MaxPackPart = 1 << 20

// A Pack is a pack of Git objects that the database keeps for the copies of a repository. It is
// stored in parts, and is complete once the last part is stored. From then on a preparation may use
// it: see intents.WithPacks.
//
// Used packs are ordered by [PackKey]. A copy that has unpacked all used packs of a project up to a
// key has all objects of these packs. A full pack, called a base, replaces all packs up to its key.
type Pack struct {
	ID      string // random, at most 64 bytes
	Project string
	Owner   string // the process that stored it, as returned by refdb.DB.Owner
	// Prerequisites are the IDs of the commits and tags whose objects the pack leaves out. The
	// database had packs with all of these objects when this pack was made.
	Prerequisites []string
	// Tips are the IDs of the objects that the pack was made for: with Prerequisites, the pack
	// contains all objects that are reachable from Tips.
	Tips []string

	// Full says that the pack is a base, which contains all objects of the project up to Position.
	// It is used without a preparation.
	Full bool
	// Position orders used packs. It is the position of the preparation that first used the pack; a
	// full pack states its own. It is 0 if the pack has not been used yet.
	Position Position

	Parts int           // the number of parts; 0 unless the pack is complete
	Size  int64         // bytes
	Sum   string        // SHA-256 of all bytes, in hex; "" unless the pack is complete
	Age   time.Duration // the database's now − the time of its latest part

	// Data is the content of the only part, if it was requested: see [PackQuery].
	Data []byte
}

// Key returns the pack's place in the order of used packs.
func (p Pack) Key() PackKey { return PackKey{p.Position, p.ID} }

// A PackKey is a place in the order of used packs: by position, then ID, compared as bytes. The ID
// "" precedes all packs of its position.
type PackKey struct {
	Position Position
	ID       string
}

// Compare returns -1, 0 or 1 if k precedes other, equals other, or follows other.
func (k PackKey) Compare(other PackKey) int {
	return cmp.Or(cmp.Compare(k.Position, other.Position), strings.Compare(k.ID, other.ID))
}

// A PackPart is a part of a pack, for [PackStore.StorePart].
type PackPart struct {
	// Pack is the same in all parts, except that only the last part has Size and Sum. Age, Data and
	// Parts are ignored, as is Position unless the pack is Full.
	Pack   Pack
	Number int // from 0
	Data   []byte
	Last   bool
}

// A RefValue is a ref and the value that it must hold, because packs build on that value.
type RefValue struct {
	Ref   string
	Value Value
}

// A PackQuery selects used packs of a project.
type PackQuery struct {
	Project string
	After   PackKey // only packs after this key; zero to start
	Limit   int     // at most this many
	// Inline is the maximum number of bytes of pack data in the page. The page contains the data of
	// packs with a single part, beginning with the first such pack, until a pack does not fit.
	Inline int
}

// A PackPage is a part of the used packs of a project, in the order of their keys.
type PackPage struct {
	Packs []Pack
	// Upto is the last complete position, as in [HistoryState]: no further pack other than a full
	// pack will appear at or below it. The page may also contain packs above it.
	Upto Position
	More bool // more than Limit packs match
}

// A PackStore is a [Driver] that keeps packs.
//
// [IntentStore.Prepare] of such a driver marks r.Packs as used, in its transaction: packs that have
// not been used yet get the position of the preparation. If a pack is missing or incomplete, or
// belongs to another project, Prepare does nothing and returns an error that wraps ErrNoPack; a
// *LockedError and a *MismatchError take precedence. A concurrent deletion of packs takes effect
// either before or after the whole preparation.
//
// The packs in r.Parts are stored first, as by StorePart, in the same transaction. If Prepare
// returns an error, these packs may nevertheless be stored, unused. If a ref of r.RequiredValues
// does not hold the required value, the result is the same as if a pack were missing. Locks on such
// a ref do not matter.
type PackStore interface {
	// StorePart stores a part, in one transaction. The first part begins the pack, and the last
	// part completes it. Storing a part a second time changes nothing. If the pack was not begun or
	// was dropped, or if the last part arrives before all other parts are stored, the error wraps
	// ErrNoPack. A full pack counts as used as soon as it is complete.
	StorePart(ctx context.Context, p PackPart) error

	// Packs returns a page of used packs, and the position up to which they are complete, in one
	// snapshot. The listing begins with the latest complete full pack: earlier packs are no longer
	// listed, even if they have not been dropped yet.
	Packs(ctx context.Context, q PackQuery) (PackPage, error)

	// PackPart returns the data of a part of a complete pack. If there is no such part, the error
	// wraps ErrNoPack.
	PackPart(ctx context.Context, id string, number int) ([]byte, error)

	// DropPack deletes a pack that was not used. If the pack was used or does not exist, DropPack
	// does nothing.
	DropPack(ctx context.Context, id string) error

	// DropAbandonedPacks deletes packs that were not used and whose latest part is older than
	// olderThan, by the database's clock. This method and the ones below delete at most limit
	// packs, and fewer if the transaction would take long, but at least one if there is one. They
	// return the number of deleted packs.
	//
	// A pack whose deletion alone would take long is deleted in several transactions, also by
	// DropPack. From the first transaction on the pack can't be listed, read or used. If the
	// deletion is interrupted, an incomplete and unused pack remains.
	DropAbandonedPacks(ctx context.Context, olderThan time.Duration, limit int) (int, error)

	// DropSupersededPacks deletes used packs of a project that precede its latest complete full
	// pack.
	DropSupersededPacks(ctx context.Context, project string, limit int) (int, error)

	// RemovePacks deletes packs of a project, whether used or not.
	RemovePacks(ctx context.Context, project string, limit int) (int, error)

	// PackUsage returns the number and size of the stored packs of a project, or of all projects if
	// project is "".
	PackUsage(ctx context.Context, project string) (PackUsage, error)
}

// PackUsage counts the packs in the database.
type PackUsage struct {
	Packs, FullPacks int   // used packs, and the complete full packs among them
	Size             int64 // bytes of used packs
	Unused           int   // packs that have not been used
	UnusedSize       int64 // bytes of unused packs; for incomplete packs, of the stored parts
}
