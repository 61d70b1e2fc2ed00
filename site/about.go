package site

import (
	"cmp"
	"context"
	"reflect"
	"slices"
	"time"

	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/presence"
)

// tellEvery is how often the daemon tells the database about itself, if that has changed.
const tellEvery = time.Minute

// about returns what the daemon says about itself.
func (d *Daemon) about() presence.About {
	behind := d.behind()
	a := presence.About{Version: d.o.Version, Store: cmp.Or(d.config.Load().NewProjectStore, config.StoreNone), Followed: d.follower.Followed(), Behind: len(behind)}
	for _, b := range behind {
		a.Projects = append(a.Projects, b.Project)
	}
	slices.Sort(a.Projects)
	return a
}

// keepTelling tells the database about this site whenever that has changed, until ctx ends.
func (d *Daemon) keepTelling(ctx context.Context) {
	var told *presence.About
	for {
		if now := d.about(); d.presence.Lost() == nil && (told == nil || !reflect.DeepEqual(now, *told)) {
			c := d.config.Load()
			limited, cancel := context.WithTimeout(ctx, c.Timeout)
			err := presence.Tell(limited, d.db, c.Site, now)
			cancel()
			if err == nil {
				told = &now
			}
			d.logFailure(ctx, "what this site says about itself could not be written", err)
		}
		if !pauseFor(ctx, tellEvery) {
			return
		}
	}
}
