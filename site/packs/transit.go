package packs

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
)

// TransitFor is how long the database keeps the objects of a project in transit. A site that was
// away for longer needs a base.
const TransitFor = 7 * 24 * time.Hour

// maxBaseIDs is the maximum size, in bytes, of the object IDs in a base without objects: Spanner
// allows 10 MiB in a cell. If refs hold more than about 200,000 SHA-1 values, nothing is dropped.
const maxBaseIDs = 8 << 20

// Trim drops the packs of a project in transit that are older than [TransitFor], if this site and
// at least one other site have recorded that they unpacked them: see [Source.RecordUnpacked].
// Without another site the database might have the only copy besides this site's.
//
// In place of the packs, Trim stores a base without objects that builds on the values that refs
// held at its position. A site that lacks the objects of these values moves no ref
// ([ErrIncomplete]) until a site stores a base with objects. Trim returns the number of packs that
// it dropped.
func (s Source) Trim(ctx context.Context, projectID, site string) (dropped int, err error) {
	unpacked, err := s.unpacked(ctx, projectID, site)
	if err != nil {
		return 0, err
	}
	at, err := s.trimPosition(ctx, unpacked)
	if err != nil || at == 0 {
		return 0, err
	}
	values, err := s.valuesAt(ctx, at)
	if err != nil {
		return 0, err
	}
	if len(strings.Join(values, " ")) > maxBaseIDs {
		return 0, fmt.Errorf("%s has %d different values, too many for a base without objects: its packs in transit stay in the database", s.Project, len(values))
	}
	id, err := s.baseID(ctx, withoutObjects)
	if err != nil {
		return 0, err
	}
	w := &writer{db: s.DB, pack: driver.Pack{ID: id, Project: s.Project, Owner: s.DB.Owner(), Full: true, Position: at, Prerequisites: values}}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	empty := s.packed(ctx, nil, nil)
	defer empty.Close()
	if err := w.copy(ctx, nil, empty); err != nil {
		return 0, errors.Join(fmt.Errorf("storing a base without objects of %s: %w", s.Project, err), s.DB.Packs().Drop(context.WithoutCancel(ctx), w.pack.ID))
	}
	return s.DB.Packs().DropSuperseded(ctx, s.Project)
}

// trimPosition returns the position up to which packs are to be dropped, or 0 if none are. The
// first pack that stays is younger than [TransitFor], or is after unpacked, the position up to
// which two sites have unpacked all packs. Trim ends right before that pack, because there refs
// most likely hold the values for which the dropped packs were made.
func (s Source) trimPosition(ctx context.Context, unpacked refdb.Position) (refdb.Position, error) {
	at, found := unpacked, false
	for p, err := range List(ctx, s.DB, s.Project) {
		if err != nil {
			return 0, err
		}
		if p.Age < TransitFor && !isEmptyBase(p) || p.Position > unpacked {
			at = min(at, p.Position-1)
			break
		}
		found = found || !isEmptyBase(p)
	}
	if !found {
		return 0, nil
	}
	return at, nil
}

// isEmptyBase reports whether a pack is a base without objects.
func isEmptyBase(p driver.Pack) bool { return p.Full && strings.HasPrefix(p.ID, withoutObjects) }

// valuesAt returns the object IDs that refs held at a position, each once.
func (s Source) valuesAt(ctx context.Context, at refdb.Position) (ids []string, err error) {
	for ref, err := range s.DB.RefsAt(ctx, s.Project, "refs/", at) {
		if err != nil {
			return nil, err
		}
		if ref.Value.IsObjectID() && !ref.Value.IsDeleted() {
			ids = append(ids, string(ref.Value))
		}
	}
	return sortedSet(ids), nil
}
