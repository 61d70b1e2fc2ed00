package refdb

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// MaxPackPart is the most bytes in one part of a pack. Cloud Spanner allows 10 MiB in a cell
// (https://cloud.google.com/spanner/quotas). A transaction per MiB keeps readers of changes
// from waiting for a large pack.
const MaxPackPart = 1 << 20

// ErrNoPack: the database does not have the pack, or not all of it: it was never completed, or was dropped.
var ErrNoPack = errors.New("the pack is not in the database")

// A Pack is a pack of Git objects that the database keeps for the copies of a repository. It is
// stored in parts, and complete once the last one is. From then on a preparation may use it: see [WithPacks].
//
// A pack that was used is in the order of [PackKey]. Whoever has unpacked all used packs of a project up to
// a key has all objects that they hold. A full pack, a base, stands for all packs up to its key.
type Pack struct {
	ID      string // random, at most 64 bytes
	Project string
	Owner   string // the process that stored it, as [DB.Owner] has it
	// Prerequisites are the commits and tags whose objects it leaves out, as object IDs. The database had packs with
	// all of them when this one was made.
	Prerequisites []string
	Tips          []string // the object IDs that it was made for: with Prerequisites, all that they reach is in it

	// Full: it is a base, which has all objects of the project, up to Position. It is used without a preparation.
	Full bool
	// Position orders used packs. It is that of the preparation that first used it, or of a full pack as it says;
	// 0 if the pack was not used yet.
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

// A PackKey is a place in the order of used packs: by position, then ID, as bytes. The ID "" stands before all packs
// of its position.
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
	// Pack is the same in all parts, except that only the last one has Size and Sum. Age, Data and Parts are not
	// looked at, nor is Position unless it is Full.
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
	// Inline is how many bytes of data the page may have: of packs with a single part, from the first one on,
	// until one does not fit.
	Inline int
}

// A PackPage is a part of the used packs of a project, in the order of their keys.
type PackPage struct {
	Packs []Pack
	// Upto is the last position that is complete, as [HistoryState.Upto]: no pack but a full one will appear at or below it any
	// more. The page may also have packs that come later.
	Upto Position
	More bool // there are more than Limit
}

// A PackStore is a [Driver] that keeps packs.
//
// [IntentStore.Prepare] of such a driver marks r.Packs as used, in its transaction: those that were not used yet get
// its position. If one of them is not there and complete, or is of another project, it does nothing and returns an error that wraps
// ErrNoPack, after a *LockedError and a *MismatchError in precedence. Nothing that deletes packs gets between: it comes before or
// after.
//
// Packs that r.Parts has are stored before, as by StorePart, in the same transaction. If Prepare returns an error they may be
// there, unused. If a ref of r.RequiredValues does not hold that value, that is as if a pack was not there. Locks on it do not matter.
type PackStore interface {
	// StorePart stores a part, in one transaction. The first part begins the pack, the last one completes it. To store a part
	// again changes nothing. If the pack was not begun, or was dropped, or the last part comes before all others are there,
	// the error wraps ErrNoPack. A full pack is in the order of used packs as soon as it is complete.
	StorePart(ctx context.Context, p PackPart) error

	// Packs returns a page of used packs, and how far they are complete, in one snapshot. It begins with the latest complete full pack: what
	// comes before is not there any more, even if it was not dropped yet.
	Packs(ctx context.Context, q PackQuery) (PackPage, error)

	// PackPart returns the data of a part of a complete pack; an error that wraps ErrNoPack if there is none.
	PackPart(ctx context.Context, id string, number int) ([]byte, error)

	// DropPack deletes a pack that was not used. If it was used, or is not there, it does nothing.
	DropPack(ctx context.Context, id string) error

	// DropAbandonedPacks deletes packs that were not used and whose latest part is older than olderThan, by the database's
	// clock. It and the methods below delete at most limit packs, and fewer if the transaction would take long, but
	// at least one if there is one. They return how many.
	//
	// A pack that would take long by itself is deleted in several transactions, by DropPack, too. From the first one on nobody can list,
	// read or use it. If they are interrupted what is left is a pack that is not complete and was not used.
	DropAbandonedPacks(ctx context.Context, olderThan time.Duration, limit int) (int, error)

	// DropSupersededPacks deletes used packs of a project that come before its latest complete full pack.
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

// WithPacks names packs that a preparation uses, as [PackStore] says: the objects of the new values. The error wraps
// [ErrNoPack] if the database does not have them all.
func WithPacks(ids ...string) PrepareOption {
	return func(r *PrepareRequest) { r.Packs = append(r.Packs, ids...) }
}

// WithPack is [WithPacks] for a pack that the preparation itself stores, in its transaction. It has a single part: p.Number is 0,
// and p.Last true. All such packs of a preparation together have at most [MaxPackPart] bytes. If the preparation fails, the pack may be in the
// database, unused.
//
// The pack builds on what refs hold: bases, at most [MaxLockRefs] for a preparation. The error wraps [ErrNoPack] if one of them holds
// another value.
func WithPack(p PackPart, bases ...RefValue) PrepareOption {
	return func(r *PrepareRequest) {
		r.Packs = append(r.Packs, p.Pack.ID)
		r.Parts = append(r.Parts, p)
		r.RequiredValues = append(r.RequiredValues, bases...)
	}
}

// packStoreOf returns an error that wraps errors.ErrUnsupported if d keeps no packs.
func packStoreOf(d Driver) (PackStore, error) {
	if s, ok := RoleOf[PackStore](d); ok {
		return s, nil
	}
	return nil, fmt.Errorf("this database keeps no packs: %w", errors.ErrUnsupported)
}

// StorePackPart stores a part of a pack: see [PackStore].
func (db *DB) StorePackPart(ctx context.Context, p PackPart) error {
	err := p.check()
	if err == nil {
		store := func(s PackStore) (struct{}, error) { return struct{}{}, s.StorePart(ctx, p) }
		_, err = packRequest(ctx, db, store)
		// To store it again changes nothing.
		for try := 1; try < retryTries && errors.Is(err, ErrOutcomeUnknown) && ctx.Err() == nil; try++ {
			_, err = packRequest(ctx, db, store)
		}
	}
	if err != nil {
		return fmt.Errorf("storing a pack: %w", err)
	}
	return nil
}

func (p PackPart) check() error {
	switch {
	case p.Pack.ID == "" || len(p.Pack.ID) > 64:
		return fmt.Errorf("%w pack ID", ErrInvalid)
	case len(p.Data) == 0 || len(p.Data) > MaxPackPart:
		return fmt.Errorf("%w part of %d bytes", ErrInvalid, len(p.Data))
	case p.Number < 0:
		return fmt.Errorf("%w part number %d", ErrInvalid, p.Number)
	case len(p.Pack.Tips) == 0 && !p.Pack.Full:
		return fmt.Errorf("%w pack: it has no tips", ErrInvalid)
	}
	return CheckProject(p.Pack.Project)
}

// checkParts checks the packs that a preparation stores itself, and sorts them. It leaves out those bases that are compared as old values
// anyway.
func (r *PrepareRequest) checkParts() error {
	slices.SortFunc(r.Parts, func(a, b PackPart) int { return strings.Compare(a.Pack.ID, b.Pack.ID) })
	size := 0
	for _, p := range r.Parts {
		if err := p.check(); err != nil {
			return err
		}
		if p.Number != 0 || !p.Last || p.Pack.Full || p.Pack.Project != r.Project {
			return fmt.Errorf("%w pack of a preparation: it must be of its project, no base, and have one part", ErrInvalid)
		}
		size += len(p.Data)
	}
	if size > MaxPackPart {
		return fmt.Errorf("%w: packs of %d bytes in a preparation, at most %d", ErrTooMany, size, MaxPackPart)
	}
	olds := make(map[string]Value, len(r.Updates))
	for _, u := range r.Updates {
		olds[u.Ref] = u.Old
	}
	var bases []RefValue
	for _, b := range r.RequiredValues {
		if err := CheckRef(b.Ref); err != nil {
			return err
		}
		if !b.Value.IsObjectID() || b.Value.IsDeleted() {
			return fmt.Errorf("%w base of a pack: %q", ErrInvalid, b.Value)
		}
		if olds[b.Ref] != b.Value {
			bases = append(bases, b)
		}
	}
	slices.SortFunc(bases, func(a, b RefValue) int { return cmp.Or(strings.Compare(a.Ref, b.Ref), cmp.Compare(a.Value, b.Value)) })
	if r.RequiredValues = slices.Compact(bases); len(r.RequiredValues) > MaxLockRefs {
		return fmt.Errorf("%w: packs build on %d refs, at most %d", ErrTooMany, len(r.RequiredValues), MaxLockRefs)
	}
	return nil
}

// Packs returns a page of used packs of a project: see [PackStore].
func (db *DB) Packs(ctx context.Context, q PackQuery) (PackPage, error) {
	err := CheckProject(q.Project)
	var page PackPage
	if err == nil {
		page, err = packRequest(ctx, db, func(s PackStore) (PackPage, error) { return s.Packs(ctx, q) })
	}
	if err != nil {
		return PackPage{}, fmt.Errorf("listing packs: %w", err)
	}
	return page, nil
}

// PackPart returns a part of a pack, counted from 0.
func (db *DB) PackPart(ctx context.Context, id string, number int) ([]byte, error) {
	data, err := packRequest(ctx, db, func(s PackStore) ([]byte, error) { return s.PackPart(ctx, id, number) })
	if err != nil {
		return nil, fmt.Errorf("reading a pack: %w", err)
	}
	return data, nil
}

// DropPack deletes a pack unless it was used.
func (db *DB) DropPack(ctx context.Context, id string) error {
	_, err := packRequest(ctx, db, func(s PackStore) (struct{}, error) { return struct{}{}, s.DropPack(ctx, id) })
	if err != nil {
		return fmt.Errorf("dropping a pack: %w", err)
	}
	return nil
}

// DropAbandonedPacks deletes packs that were not used and got no part for that long. It returns how many.
func (db *DB) DropAbandonedPacks(ctx context.Context, olderThan time.Duration) (int, error) {
	return db.dropPacks(ctx, func(s PackStore) (int, error) { return s.DropAbandonedPacks(ctx, olderThan, packChunk) })
}

// DropSupersededPacks deletes the packs of a project that come before its latest base. It returns how many.
func (db *DB) DropSupersededPacks(ctx context.Context, project string) (int, error) {
	if err := CheckProject(project); err != nil {
		return 0, fmt.Errorf("dropping packs: %w", err)
	}
	return db.dropPacks(ctx, func(s PackStore) (int, error) { return s.DropSupersededPacks(ctx, project, packChunk) })
}

// RemovePacks deletes all packs of a project. It returns how many.
func (db *DB) RemovePacks(ctx context.Context, project string) (int, error) {
	if err := CheckProject(project); err != nil {
		return 0, fmt.Errorf("removing packs: %w", err)
	}
	return db.dropPacks(ctx, func(s PackStore) (int, error) { return s.RemovePacks(ctx, project, packChunk) })
}

// PackUsage returns how much of the packs of a project, or of all for "", the database keeps.
func (db *DB) PackUsage(ctx context.Context, project string) (PackUsage, error) {
	u, err := packRequest(ctx, db, func(s PackStore) (PackUsage, error) { return s.PackUsage(ctx, project) })
	if err != nil {
		return PackUsage{}, fmt.Errorf("counting packs: %w", err)
	}
	return u, nil
}

// packChunk is how many packs one transaction deletes at most.
const packChunk = 50

// dropPacks deletes chunk by chunk until there is nothing left.
func (db *DB) dropPacks(ctx context.Context, chunk func(PackStore) (int, error)) (total int, err error) {
	for {
		n, err := packRequest(ctx, db, chunk)
		total += n
		if err != nil {
			return total, fmt.Errorf("dropping packs: %w", err)
		}
		if n == 0 {
			return total, nil
		}
	}
}

func packRequest[T any](ctx context.Context, db *DB, request func(PackStore) (T, error)) (none T, err error) {
	if err := db.schemaError(); err != nil {
		return none, err
	}
	return retry(ctx, db, func(d Driver) (T, error) {
		s, err := packStoreOf(d)
		if err != nil {
			return none, err
		}
		return request(s)
	})
}
