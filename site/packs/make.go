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

// Limits bound what [Source.Store] does.
type Limits struct {
	Bytes int64 // of a pack; more is ErrTooLarge
	// Ask, unless nil, makes a request to the database, which may be made again: it bounds its
	// time, and waits for a database that is away.
	Ask func(ctx context.Context, request func(context.Context) error) error
	// Stored, unless nil, is called after each part, with the bytes that are in the database. An
	// error ends it.
	Stored func(bytes int64) error
	// Carried is up to how many bytes a pack is not stored, so that the preparation carries it.
	Carried int
}

func (l Limits) ask(ctx context.Context, request func(context.Context) error) error {
	if l.Ask == nil {
		return request(ctx)
	}
	return l.Ask(ctx, request)
}

// A Made pack is one that a preparation may use.
type Made struct {
	ID string // "" if the database has all objects
	// Part is all of the pack if it was not stored, and Bases what it builds on, for
	// [intents.WithPack].
	Part  *driver.PackPart
	Bases []driver.RefValue
}

// Store makes a pack of all objects that the new values of moves reach and the database does not
// have yet, and stores it, unless it is small, for a preparation of these moves or of some of them.
// The caller drops a pack that is not used (Drop of refdb.DB.Packs), also if there is an error.
//
// The pack leaves out only what values reach that the database has. What else is in the repository,
// such as what was fetched into it, other sites may never have.
func (s Source) Store(ctx context.Context, moves []refdb.Update, l Limits) (Made, error) {
	if s.Repo.IsShallow() {
		return Made{}, ErrShallow
	}
	news := newsOf(moves)
	bases, err := s.likelyBases(ctx, moves)
	if err != nil || len(news) == 0 {
		return Made{}, err
	}
	certain := len(left(moves)) // of bases: the preparation compares them
	certify := func(ctx context.Context) (err error) {
		if certain < len(bases) {
			base := bases[certain]
			certain = len(bases)
			lacks := false
			err = l.ask(ctx, func(ctx context.Context) error {
				err := s.certify(ctx, base)
				if lacks = errors.Is(err, errUncertain); lacks {
					return nil // it has answered
				}
				return err
			})
			if lacks {
				err = errUncertain
			}
		}
		return err
	}
	if certain < len(bases) && (l.Carried == 0 || !s.Recent.has(s.Project, bases[certain])) {
		err = certify(ctx)
	}
	if len(bases) > maxCarriedBases {
		l.Carried = 0
	}
	var made Made
	if err == nil {
		made, err = s.store(ctx, news, valuesOf(bases), largeStep, l, certify)
	}
	if errors.Is(err, errUncertain) {
		bases = left(moves)
		made, err = s.store(ctx, news, valuesOf(bases), largeStep, l, nil)
	}
	if made.Part != nil {
		made.Bases = bases
	}
	if !errors.Is(err, errLarge) {
		return made, err
	}
	// Much comes out: perhaps because the database has it by other refs.
	known, err := s.allBases(ctx, moves)
	if err != nil {
		return Made{}, err
	}
	boundary, err := s.Repo.Boundary(ctx, news, known)
	if err != nil {
		return Made{}, err
	}
	l.Carried = 0
	return s.store(ctx, news, boundary, 0, l, nil)
}

// packed returns the bytes of a pack while git makes it.
func (s Source) packed(ctx context.Context, tips, bases []string) io.ReadCloser {
	from, to := io.Pipe()
	go func() { to.CloseWithError(s.Repo.Pack(ctx, to, tips, bases)) }()
	return from
}

var (
	// errLarge: more objects come out than were to be packed without a further look.
	errLarge = errors.New("many objects")
	// errUncertain: the database does not have a base.
	errUncertain = errors.New("a base that the database does not have")
)

// store makes and stores one pack. If that would have more than atMost objects, which is not 0, it
// stores none, and the error is errLarge. Certify, unless nil, is asked before anything is stored,
// and if the database has all objects: a preparation that carries the pack compares its bases, but
// no other does.
func (s Source) store(ctx context.Context, tips, bases []string, atMost int, l Limits, certify func(context.Context) error) (Made, error) {
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
	case atMost > 0 && n > atMost:
		cancel(errLarge)
		return Made{}, errLarge
	}
	w := &writer{db: s.DB, limits: l, certify: certify, pack: driver.Pack{ID: rand.Text(), Project: s.Project, Owner: s.DB.Owner(), Prerequisites: bases, Tips: tips}}
	if err := w.copy(ctx, header[:], from); err != nil {
		cancel(err)
		return Made{ID: w.pack.ID}, fmt.Errorf("storing the objects of %s: %w", s.Project, err)
	}
	return Made{ID: w.pack.ID, Part: w.carried}, nil
}
