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

// TransitFor is for how long the database keeps the objects of a project in transit: a site that was away for longer needs
// a base.
const TransitFor = 7 * 24 * time.Hour

// maxBounds is how many bytes of object IDs a base without objects may have: Spanner allows 10 MiB in a cell. They are those of 200,000
// values of SHA-1; where there are more, nothing is dropped.
const maxBounds = 8 << 20

// Trim drops the packs of a project in transit that are older than [TransitFor], if this site and another one have recorded that
// they unpacked them ([Source.RecordUnpacked]). Without another one the database may have the only copy beside this site's.
//
// In their place it stores a base without objects: it builds on what refs held at its position, so that whoever lacks that
// moves no ref ([ErrIncomplete]) until somebody stores a base with objects. It returns how many packs were dropped.
func (s Source) Trim(ctx context.Context, projectID, site string) (dropped int, err error) {
	passed, err := s.unpacked(ctx, projectID, site)
	if err != nil {
		return 0, err
	}
	at, err := s.trimAt(ctx, passed)
	if err != nil || at == 0 {
		return 0, err
	}
	bounds, err := s.valuesAt(ctx, at)
	if err != nil {
		return 0, err
	}
	if len(strings.Join(bounds, " ")) > maxBounds {
		return 0, fmt.Errorf("%s has %d different values, too many for a base without objects: what was in transit stays in the database", s.Project, len(bounds))
	}
	id, err := s.baseID(ctx, withoutObjects)
	if err != nil {
		return 0, err
	}
	w := &writer{db: s.DB, pack: driver.Pack{ID: id, Project: s.Project, Owner: s.DB.Owner(), Full: true, Position: at, Prerequisites: bounds}}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	empty := s.packed(ctx, nil, nil)
	defer empty.Close()
	if err := w.copy(ctx, nil, empty); err != nil {
		return 0, errors.Join(fmt.Errorf("storing the end of what %s has in transit: %w", s.Project, err), s.DB.Packs().Drop(context.WithoutCancel(ctx), w.pack.ID))
	}
	return s.DB.Packs().DropSuperseded(ctx, s.Project)
}

// trimAt returns the position up to which packs are to go; 0 if none are. The first one that stays is younger, or was not unpacked by two
// sites. By the position before its own refs are most likely to hold what the packs before it were made for.
func (s Source) trimAt(ctx context.Context, passed refdb.Position) (refdb.Position, error) {
	at, useful := passed, false
	for p, err := range List(ctx, s.DB, s.Project) {
		if err != nil {
			return 0, err
		}
		if p.Age < TransitFor && !isBound(p) || p.Position > passed {
			at = min(at, p.Position-1)
			break
		}
		useful = useful || !isBound(p)
	}
	if !useful {
		return 0, nil
	}
	return at, nil
}

// isBound reports whether a pack is a base without objects.
func isBound(p driver.Pack) bool { return p.Full && strings.HasPrefix(p.ID, withoutObjects) }

// valuesAt returns the object IDs that refs held at a position.
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
