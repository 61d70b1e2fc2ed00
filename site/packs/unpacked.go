package packs

import (
	"context"
	"fmt"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/site/presence"
)

// unpackedPrefix begins the names of the refs in [presence.Project] that record which packs of a
// project in transit each site has: refs/unpacked/PROJECT-ID/SITE. The value is an epoch and a
// position in it; the site has all used packs up to that position.
const unpackedPrefix = "refs/unpacked/"

func unpackedValue(epoch string, at refdb.Position) refdb.Value {
	return refdb.Value(fmt.Sprintf("%s %d", epoch, at))
}

// RecordUnpacked records in the database which packs of the project a site has, according to the
// mark of the site's repository. The mark must be durable.
func (s Source) RecordUnpacked(ctx context.Context, projectID, site string, m *Mark) error {
	ref, value := unpackedPrefix+projectID+"/"+site, unpackedValue(m.Epoch, m.Key.Position-1)
	before, err := s.DB.Get(ctx, presence.Project, ref)
	if err == nil && before != value {
		_, err = s.DB.Put(ctx, presence.Project, ref, value)
	}
	if err != nil {
		return fmt.Errorf("recording which packs of %s are here: %w", s.Project, err)
	}
	return nil
}

// unpacked returns the position up to which the given site and at least one other site have all
// packs. Records of earlier epochs do not count, because their positions may have been used again.
// Neither do records beyond the complete positions, which older programs may have written.
func (s Source) unpacked(ctx context.Context, projectID, site string) (refdb.Position, error) {
	state, err := s.DB.HistoryState(ctx)
	if err != nil {
		return 0, err
	}
	var own, others refdb.Position
	prefix, epoch := unpackedPrefix+projectID+"/", state.Epochs[len(state.Epochs)-1].ID
	for ref, err := range s.DB.Refs(ctx, presence.Project, prefix) {
		if err != nil {
			return 0, err
		}
		var at refdb.Position
		var in string
		if _, err := fmt.Sscanf(string(ref.Value), "%s %d", &in, &at); err != nil || in != epoch || at > state.Upto {
			continue
		}
		if ref.Name == prefix+site {
			own = at
		} else {
			others = max(others, at)
		}
	}
	return min(own, others), nil
}
