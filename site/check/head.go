package check

import (
	"context"
	"fmt"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/site/head"
	"github.com/globalrefdb/globalrefdb/site/packs"
	"github.com/globalrefdb/globalrefdb/site/wire"
)

// head finds that HEAD differs from the database and the daemon can't resolve the difference by
// itself.
func (k *repositoryCheck) head(ctx context.Context) error {
	if k.db == nil || !packs.Stored(k.rules[k.Project]) {
		return nil
	}
	agreed, err := head.ReadAgreed(k.repo.Dir())
	if err != nil {
		return err
	}
	here, err := k.repo.Head(ctx)
	if err != nil || here.Value == string(agreed) {
		return err
	}
	s := head.State{Here: refdb.Value(here.Value), Agreed: agreed, Bare: k.repo.IsBare()}
	if s.Global, err = k.db.Get(ctx, k.Project, head.Ref); err != nil {
		return err
	}
	if s.Step() != head.Differ {
		return nil
	}
	mine, _ := s.Here.Target()
	theirs, _ := s.Global.Target()
	k.find(HeadDiffers, head.Ref, fmt.Sprintf("it points to %s here, and to %s in the database; which of the two is right can't be determined, because both have changed, or an earlier version served this site. "+
		"To take the database's, run `%s`; to give all sites the one here, run `%s`",
		wire.Printable(mine), wire.Printable(theirs), wire.PointHead(k.repo.Dir(), theirs), wire.PutHead(k.Project, string(s.Here))), nil)
	return nil
}
