package packs

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
)

// TransitFor is for how long the database keeps the objects of a project in transit: a site that was away for longer needs
// a base.
const TransitFor = 7 * 24 * time.Hour

// maxBounds is how many bytes of object IDs a bound may have: Spanner allows 10 MiB in a cell. Twice as many as refs of SHA-256
// in the largest repositories; above it nothing is dropped.
const maxBounds = 8 << 20

// A Trimmed says what [Source.Trim] did.
type Trimmed struct {
	Dropped int    // packs
	Kept    string // why it dropped none, for an operator; "" if it did, or if there was nothing to drop
}

// Trim drops the packs of a project in transit that are older than [TransitFor], if one of the other sites has unpacked them. Without
// that the database may have the only copy beside this site's. This site has just unpacked all packs. Others are the sites that follow, but for
// this one.
//
// In their place it stores a base without objects: it builds on what refs held at its position, so that whoever lacks that
// moves no ref ([ErrIncomplete]) until somebody stores a base with objects.
func (s Source) Trim(ctx context.Context, others []refdb.Follower) (t Trimmed, err error) {
	passed := refdb.Position(0)
	for _, f := range others {
		passed = max(passed, f.Read)
	}
	// Pushes that end meanwhile are here, or among the changes that are read next.
	stay, err := s.pending(ctx)
	if err != nil {
		return t, err
	}
	for c, err := range s.DB.History(ctx, s.Project, "") {
		if err != nil {
			return t, err
		}
		if c.Position <= passed {
			break
		}
		stay = append(stay, string(c.New))
	}
	at, err := s.trimAt(ctx, sortedSet(stay))
	if err != nil || at == 0 {
		return t, err
	}
	if passed < at {
		t.Kept = fmt.Sprintf("no other site has followed up to position %d", at)
		return t, nil
	}
	bounds, err := s.valuesAt(ctx, at)
	if err != nil {
		return t, err
	}
	if len(strings.Join(bounds, " ")) > maxBounds {
		t.Kept = fmt.Sprintf("it has %d different values: too many for a base without objects", len(bounds))
		return t, nil
	}
	w := &writer{db: s.DB, pack: refdb.Pack{ID: boundPrefix + rand.Text(), Project: s.Project, Owner: s.DB.Owner(), Base: true, Position: at, Bases: bounds}}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	empty := s.packed(ctx, nil, nil)
	defer empty.Close()
	if err := w.copy(ctx, nil, empty); err != nil {
		return t, errors.Join(fmt.Errorf("storing the end of what %s has in transit: %w", s.Project, err), s.DB.DropPack(context.WithoutCancel(ctx), w.pack.ID))
	}
	t.Dropped, err = s.DB.DropSupersededPacks(ctx, s.Project)
	return t, err
}

// trimAt returns the position up to which packs are to go; 0 if none are. The first one that stays is younger, or was made for a value
// of these: the sites may not have looked for it yet. By the position before its own refs are most likely to hold what the packs before it
// were made for.
func (s Source) trimAt(ctx context.Context, stay []string) (refdb.Position, error) {
	state, err := s.DB.HistoryState(ctx)
	if err != nil {
		return 0, err
	}
	at, useful := state.Upto, false
	for p, err := range List(ctx, s.DB, s.Project) {
		if err != nil {
			return 0, err
		}
		if p.Age < TransitFor && !isBound(p) || slices.ContainsFunc(p.Tips, func(id string) bool { _, ok := slices.BinarySearch(stay, id); return ok }) {
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

// boundPrefix begins the ID of a base without objects: it stands after those of all packs of its position.
const boundPrefix = "~"

func isBound(p refdb.Pack) bool { return strings.HasPrefix(p.ID, boundPrefix) }

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
