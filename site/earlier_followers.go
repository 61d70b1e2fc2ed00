package site

import (
	"context"
	"sync"

	"github.com/globalrefdb/globalrefdb/site/pusher"
	"github.com/globalrefdb/globalrefdb/site/refusal"
	"github.com/globalrefdb/globalrefdb/site/wire"
)

// earlierFollowers are the repositories in which no git follows the database any more that an earlier daemon has let through.
type earlierFollowers struct{ ended sync.Map }

// awaitEarlierFollowers returns an error while a git moves refs to what the database holds that an earlier daemon has let through. It does
// not wait long.
func (d *Daemon) awaitEarlierFollowers(ctx context.Context, path string) error {
	if _, none := d.earlier.ended.Load(path); none {
		return nil
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if pusher.FollowsSince(d.locked, path, d.config.Load().GitPrograms) {
		return refusal.Because(refusal.Locked, refusal.Lines{wire.EarlierFollower})
	}
	d.earlier.ended.Store(path, true)
	return nil
}
