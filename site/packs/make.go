package packs

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"

	"github.com/globalrefdb/globalrefdb/internal/gitrepo"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
)

// Limits bound how a pack is made and stored.
type Limits struct {
	Bytes int64 // the maximum size of a pack, beyond which the error is ErrTooLarge; 0 for no limit
	// Ask, unless nil, makes each request to the database. It may bound the request's time, and
	// repeat the request while the database can't be reached.
	Ask func(ctx context.Context, request func(context.Context) error) error
	// Stored, unless nil, is called after each stored part with the number of bytes that are in the
	// database. If Stored returns an error, no further part is stored.
	Stored func(bytes int64) error
	// Carried is the maximum size, in bytes, of a pack that is not stored but returned, so that the
	// preparation carries it.
	Carried int
}

func (l Limits) ask(ctx context.Context, request func(context.Context) error) error {
	if l.Ask == nil {
		return request(ctx)
	}
	return l.Ask(ctx, request)
}

// A Made describes a pack that was made for a preparation.
type Made struct {
	ID string // "" if the database has all objects
	// Part is the whole pack if it was not stored, and Bases are the values that it builds on. Both
	// are for [intents.WithPack].
	Part  *driver.PackPart
	Bases []driver.RefValue
}

// Store makes a pack for a preparation of some or all of the given moves. The pack contains all
// objects that the new values of moves reach and that the database does not have yet. Store stores
// the pack, unless it is no larger than l.Carried. If the preparation does not use the pack, the
// caller drops it (Drop of refdb.DB.Packs), even if Store returned an error.
//
// The pack leaves out only objects that are reachable from values in the database. Other sites may
// never get the other objects of this repository, such as those that were fetched into it.
func (s Source) Store(ctx context.Context, moves []refdb.Update, l Limits) (Made, error) {
	if s.Repo.IsShallow() {
		return Made{}, ErrShallow
	}
	objects := newObjects(moves)
	bases, err := s.likelyBases(ctx, moves)
	if err != nil || len(objects) == 0 {
		return Made{}, err
	}
	certified := len(oldValues(moves)) // bases[:certified]: the preparation compares the old values
	certify := func(ctx context.Context) (err error) {
		if certified < len(bases) {
			base := bases[certified]
			certified = len(bases)
			missing := false
			err = l.ask(ctx, func(ctx context.Context) error {
				err := s.certify(ctx, base)
				if missing = errors.Is(err, errUncertified); missing {
					return nil // the request has succeeded: Ask must not repeat it
				}
				return err
			})
			if missing {
				err = errUncertified
			}
		}
		return err
	}
	if certified < len(bases) && (l.Carried == 0 || !s.Recent.has(s.Project, bases[certified])) {
		err = certify(ctx)
	}
	if len(bases) > maxCarriedBases {
		l.Carried = 0
	}
	var made Made
	if err == nil {
		made, err = s.store(ctx, objects, valuesOf(bases), largeStep, l, certify)
	}
	if errors.Is(err, errUncertified) {
		bases = oldValues(moves)
		made, err = s.store(ctx, objects, valuesOf(bases), largeStep, l, nil)
	}
	if made.Part != nil {
		made.Bases = bases
	}
	if !errors.Is(err, errManyObjects) {
		return made, err
	}
	// The pack has many objects, perhaps because the database reaches them from other refs.
	known, err := s.allBases(ctx, moves)
	if err != nil {
		return Made{}, err
	}
	boundary, err := s.Repo.Boundary(ctx, objects, known)
	if err != nil {
		return Made{}, err
	}
	l.Carried = 0
	return s.store(ctx, objects, boundary, 0, l, nil)
}

// packed returns a reader of a pack that git makes while it is read.
func (s Source) packed(ctx context.Context, tips, bases []string) io.ReadCloser {
	from, to := io.Pipe()
	go func() { to.CloseWithError(s.Repo.Pack(ctx, to, tips, bases)) }()
	return from
}

var (
	// errManyObjects means that the pack would have more objects than the given maximum.
	errManyObjects = errors.New("many objects")
	// errUncertified means that the database does not have a base.
	errUncertified = errors.New("a base that the database does not have")
)

// store makes one pack of the objects that tips reach and bases don't, and stores it unless it is
// no larger than l.Carried. If maxObjects is not 0 and the pack would have more objects, store
// stores nothing, and the error is errManyObjects. Unless certify is nil, store calls it before
// storing the first part, and if no objects are left to pack: bases are compared with the
// database's values only by a preparation that carries the pack.
func (s Source) store(ctx context.Context, tips, bases []string, maxObjects int, l Limits, certify func(context.Context) error) (Made, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	from := s.packed(ctx, tips, bases)
	defer from.Close()
	var header [gitrepo.PackHeader]byte
	if _, err := io.ReadFull(from, header[:]); err != nil {
		return Made{}, err
	}
	n, err := gitrepo.PackObjects(header[:])
	switch {
	case err != nil:
		return Made{}, err
	case n == 0 && certify != nil:
		return Made{}, certify(ctx)
	case n == 0:
		return Made{}, nil
	case maxObjects > 0 && n > maxObjects:
		cancel(errManyObjects)
		return Made{}, errManyObjects
	}
	w := &writer{db: s.DB, limits: l, certify: certify, pack: driver.Pack{ID: rand.Text(), Project: s.Project, Owner: s.DB.Owner(), Prerequisites: bases, Tips: tips}}
	if err := w.copy(ctx, header[:], from); err != nil {
		cancel(err)
		return Made{ID: w.pack.ID}, fmt.Errorf("storing the objects of %s: %w", s.Project, err)
	}
	return Made{ID: w.pack.ID, Part: w.carried}, nil
}
