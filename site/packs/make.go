package packs

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/globalrefdb/globalrefdb/internal/gitrepo"
	"github.com/globalrefdb/globalrefdb/refdb"
)

// Limits bound what [Source.Store] does.
type Limits struct {
	Bytes int64 // of a pack; more is ErrTooLarge
	// PartTimeout, unless 0, is how long the database may take for a part.
	PartTimeout time.Duration
	// Stored, unless nil, is called after each part, with the bytes that are in the database. An error ends it.
	Stored func(bytes int64) error
}

// Store makes a pack of all objects that the new values of moves reach and the database does not have yet, and stores
// it, for a preparation of these moves or of some of them. It returns "" if the database has them all. The caller
// drops a pack that is not used ([refdb.DB.DropPack]), also if there is an error.
//
// The pack leaves out only what values reach that the database has now. What else is in the repository, such as what
// was fetched into it, other sites may never have.
func (s Source) Store(ctx context.Context, moves []refdb.Update, l Limits) (id string, err error) {
	if s.Repo.IsShallow() {
		return "", ErrShallow
	}
	news, _ := valuesOf(moves)
	bases, err := s.likelyBases(ctx, moves)
	if err != nil || len(news) == 0 {
		return "", err
	}
	id, err = s.store(ctx, news, bases, largeStep, l)
	if !errors.Is(err, errLarge) {
		return id, err
	}
	// Much comes out: perhaps because the database has it by other refs.
	known, err := s.allBases(ctx, moves)
	if err != nil {
		return "", err
	}
	if bases, err = s.Repo.Boundary(ctx, news, known); err != nil {
		return "", err
	}
	return s.store(ctx, news, bases, 0, l)
}

// packed returns the bytes of a pack while git makes it.
func (s Source) packed(ctx context.Context, tips, bases []string) io.ReadCloser {
	from, to := io.Pipe()
	go func() { to.CloseWithError(s.Repo.Pack(ctx, to, tips, bases)) }()
	return from
}

// errLarge: more objects come out than were to be packed without a further look.
var errLarge = errors.New("many objects")

// store makes and stores one pack. If that would have more than atMost objects, which is not 0, it stores none, and the error
// is errLarge.
func (s Source) store(ctx context.Context, tips, bases []string, atMost int, l Limits) (id string, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	from := s.packed(ctx, tips, bases)
	defer from.Close()
	var header [gitrepo.PackHeader]byte
	if _, err := io.ReadFull(from, header[:]); err != nil {
		return "", err
	}
	n, err := gitrepo.PackObjects(header[:])
	switch {
	case err != nil:
		return "", err
	case n == 0:
		return "", nil
	case atMost > 0 && n > atMost:
		cancel(errLarge)
		return "", errLarge
	}
	w := &writer{db: s.DB, limits: l, pack: refdb.Pack{ID: rand.Text(), Project: s.Project, Owner: s.DB.Owner(), Bases: bases, Tips: tips}}
	if err := w.copy(ctx, header[:], from); err != nil {
		return w.pack.ID, fmt.Errorf("storing the objects of %s: %w", s.Project, err)
	}
	return w.pack.ID, nil
}
