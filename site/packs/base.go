package packs

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
)

// KeptFor is how long objects are kept after refs stopped reaching them: a pack that is being made
// may build on them.
const KeptFor = 14 * 24 * time.Hour

// A Base describes the base pack that [Source.StoreBase] has stored.
type Base struct {
	Pack    driver.Pack
	Dropped int // the number of packs that it replaced
}

// StoreBase stores a base pack of the project: all objects that the project's refs reach at a
// complete position, and all objects that later packs may build on. Then it drops the packs that
// the base replaces. StoreBase calls receive, which must unpack all used packs into the repository
// and return the repository's mark. If there is nothing to store, StoreBase returns the zero Base.
// If the repository lacks objects, StoreBase stores nothing, and the error wraps [ErrIncomplete].
//
// A crash leaves either an incomplete pack, which is dropped as abandoned, or replaced packs, which
// the next base drops.
func (s Source) StoreBase(ctx context.Context, receive func(ctx context.Context) (*Mark, error), l Limits) (b Base, err error) {
	if s.Repo.IsShallow() {
		return b, ErrShallow
	}
	// Intents are listed first: the pack of an intent that is prepared later either follows the
	// base or is unpacked by receive.
	pending, err := s.pending(ctx)
	if err != nil {
		return b, err
	}
	mark, err := receive(ctx)
	if err != nil {
		return b, err
	}
	at := mark.Key.Position - 1
	if at <= 0 {
		return b, fmt.Errorf("%w: the database has no complete position yet: try again", ErrIncomplete)
	}
	tips, err := s.roots(ctx, at, pending)
	if err != nil || len(tips) == 0 {
		return b, err
	}
	id, err := s.baseID(ctx, withObjects)
	if err != nil {
		return b, err
	}
	b.Pack = driver.Pack{ID: id, Project: s.Project, Owner: s.DB.Owner(), Full: true, Position: at}
	w := &writer{db: s.DB, limits: l, pack: b.Pack}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	from := s.packed(ctx, tips, nil)
	defer from.Close()
	if err := w.copy(ctx, nil, from); err != nil {
		return b, errors.Join(fmt.Errorf("storing a base of %s: %w", s.Project, err), s.DB.Packs().Drop(context.WithoutCancel(ctx), b.Pack.ID))
	}
	b.Pack.Size, b.Pack.Parts = w.pack.Size, w.parts
	b.Dropped, err = s.DB.Packs().DropSuperseded(ctx, s.Project)
	return b, err
}

// Prefixes of the IDs of bases. Of several bases at one position, the base with the greatest ID
// replaces all packs of that position, and so a base with objects replaces one without.
const (
	withoutObjects = "~1" // see [Source.Trim]
	withObjects    = "~2"
)

// baseID returns the ID of a new base, which begins with prefix. IDs of the same prefix sort by the
// database's clock, so the latest base of a position replaces the others.
func (s Source) baseID(ctx context.Context, prefix string) (string, error) {
	now, err := s.DB.Now(ctx)
	return fmt.Sprintf("%s-%016x-%s", prefix, now.UnixMicro(), rand.Text()), err
}

// pending returns the object IDs that the project's intents would make refs hold.
func (s Source) pending(ctx context.Context) (ids []string, err error) {
	for i, err := range s.DB.Intents().All(ctx, driver.IntentFilter{Project: s.Project}) {
		if err != nil {
			return nil, err
		}
		if i.New.IsObjectID() && !i.New.IsDeleted() {
			ids = append(ids, string(i.New))
		}
	}
	return ids, nil
}

// roots returns the object IDs from which a base at a position is made: the values of refs and the
// pending values, which must be connected here, and those objects of [Kept] that are connected
// here.
func (s Source) roots(ctx context.Context, at refdb.Position, pending []string) ([]string, error) {
	needed, err := s.valuesAt(ctx, at)
	if err != nil {
		return nil, err
	}
	needed = sortedSet(append(needed, pending...))
	kept, err := Kept(ctx, s.DB, s.Project)
	if err != nil {
		return nil, err
	}
	whole, err := s.Repo.Connected(ctx, sortedSet(append(needed, kept...)))
	if err != nil {
		return nil, err
	}
	for _, id := range needed {
		if !whole[id] {
			return nil, fmt.Errorf("%w: the database has a ref or a pending push with the value %s, which is missing here", ErrIncomplete, id)
		}
	}
	all := make([]string, 0, len(whole))
	for id := range whole {
		all = append(all, id)
	}
	return sortedSet(all), nil
}

// Kept returns the object IDs that every copy of a project must keep, even if no ref reaches them:
// the values that refs hold now and held in the last [KeptFor], the values of intents, and the tips
// and prerequisites of used packs. Some of these objects may not be here.
//
// Git's own grace period counts the age of an object, not the time since it became unreachable.
func Kept(ctx context.Context, db *refdb.DB, project string) (ids []string, err error) {
	if ids, err = KeptValues(ctx, db, project); err != nil {
		return nil, err
	}
	for p, err := range List(ctx, db, project) {
		if err != nil {
			return nil, err
		}
		ids = append(append(ids, p.Tips...), p.Prerequisites...)
	}
	return sortedSet(ids), nil
}

// KeptValues returns what [Kept] returns, without the tips and prerequisites of packs. It is for
// projects whose objects the database does not keep.
func KeptValues(ctx context.Context, db *refdb.DB, project string) (ids []string, err error) {
	add := func(values ...refdb.Value) {
		for _, v := range values {
			if v.IsObjectID() && !v.IsDeleted() {
				ids = append(ids, string(v))
			}
		}
	}
	for ref, err := range db.Refs(ctx, project, "refs/") {
		if err != nil {
			return nil, err
		}
		add(ref.Value)
	}
	now, err := db.Now(ctx)
	if err != nil {
		return nil, err
	}
	for c, err := range db.History(ctx, project, "") {
		if err != nil {
			return nil, err
		}
		// The additional hour allows for times that are not in the order of positions.
		if now.Sub(c.Time) > KeptFor+time.Hour {
			break
		}
		add(c.Old, c.New)
	}
	for i, err := range db.Intents().All(ctx, driver.IntentFilter{Project: project}) {
		if err != nil {
			return nil, err
		}
		add(i.Old, i.New)
	}
	return sortedSet(ids), nil
}
