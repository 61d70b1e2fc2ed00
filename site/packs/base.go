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

// KeptFor is for how long what no ref reaches any more is kept: a pack that is being made may build on it.
const KeptFor = 14 * 24 * time.Hour

// A Base says what [Source.StoreBase] stored.
type Base struct {
	Pack    driver.Pack
	Dropped int // packs that it took the place of
}

// StoreBase stores a base of the project: a pack of all objects that its refs reach, as of a position, and of all
// that packs which come later may build on. Then it drops the packs that come before. The repository must have
// unpacked all packs: receive does that, and returns its mark. If the repository lacks something the error wraps
// [ErrIncomplete], and nothing is stored.
//
// A crash leaves a pack that is not complete, which is dropped as abandoned; or packs that the next base drops.
func (s Source) StoreBase(ctx context.Context, receive func(ctx context.Context) (*Mark, error), l Limits) (b Base, err error) {
	if s.Repo.IsShallow() {
		return b, ErrShallow
	}
	// Intents are listed first: whatever is prepared later uses a pack that comes later, too, or one that is here.
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

// What the IDs of bases begin with. Of one position a base stands for all packs, and one with objects for one without.
const (
	withoutObjects = "~1" // it has no objects: see [Source.Trim]
	withObjects    = "~2"
)

// baseID returns the ID of a new base. Of those of one position the latest stands for the others.
func (s Source) baseID(ctx context.Context, kind string) (string, error) {
	now, err := s.DB.Now(ctx)
	return fmt.Sprintf("%s-%016x-%s", kind, now.UnixMicro(), rand.Text()), err
}

// pending returns the new values of the project's intents.
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

// roots returns the object IDs that a base at a position is made of.
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

// Kept returns the objects that must be kept in every copy of a project though no ref may reach them: what refs
// held in the last [KeptFor] and hold now, what pushes under way will make them hold, and what packs were made of or
// build on. Some may not be here.
//
// Git's own grace counts the age of an object, not the time since it became unreachable.
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

// KeptValues is [Kept] of a project whose objects the database does not keep.
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
		if now.Sub(c.Time) > KeptFor+time.Hour { // times are not in the order of positions
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
