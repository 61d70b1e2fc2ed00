package maintenance

import (
	"context"
	"errors"

	"github.com/globalrefdb/globalrefdb/internal/gitrepo"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/site/refusal"
	"github.com/globalrefdb/globalrefdb/site/wire"
)

// WholeNew returns a refusal unless everything that the new values of lines reach is in the
// repository at path.
func WholeNew(ctx context.Context, path string, lines []wire.Line) error {
	var ids []string
	for _, l := range lines {
		if v := refdb.Value(l.New); v.IsObjectID() && !v.IsDeleted() {
			ids = append(ids, l.New)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	repo, err := gitrepo.OpenDir(path)
	if err != nil {
		return err
	}
	whole, err := repo.IsConnectedBesideRefs(ctx, ids, nil)
	if err == nil && !whole {
		err = errors.New(wire.PrunedMeanwhile)
	}
	return refusal.Because(refusal.Pruning, err)
}
