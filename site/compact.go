package site

import (
	"context"
	"errors"
	"time"

	"github.com/globalrefdb/globalrefdb/internal/gitrepo"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/site/client"
	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/maintenance"
	"github.com/globalrefdb/globalrefdb/site/packs"
)

const (
	// compactionRef is a name of the project on which the site that stores a base has a lock: the others need not do it, too.
	compactionRef = config.OwnPrefix + "base"
	// partTimeout is how long the database may take for a part of a base.
	partTimeout = time.Minute
)

// compact keeps what the database has of a project's objects in bounds, once that pays: it drops what was in transit, and stores a base
// in the place of many packs. This site has just unpacked all packs. The errors of the database end neither packing nor pruning.
func (d *Daemon) compact(ctx context.Context, r config.Repository, repo *gitrepo.Repo, say func(string)) (did client.Compacted, err error) {
	did = client.CompactedNothing
	p, ok := d.projects.Get(r.Project)
	if !ok || !packs.Stored(p.Project) {
		return did, nil
	}
	from := packs.Source{DB: d.db, Repo: repo, Project: r.Project}
	if packs.InTransit(p.Project) {
		mark, err := packs.ReadMark(repo.Dir())
		if err != nil {
			return did, err
		}
		site := d.config.Load().Site
		if err := from.RecordUnpacked(ctx, p.ID, site, mark); err != nil {
			return did, err
		}
		dropped, err := from.Trim(ctx, p.ID, site)
		if dropped > 0 {
			did = client.CompactedDropped
		}
		return did, err
	}
	why, err := from.WhyCompact(ctx)
	if err != nil {
		return did, err
	}
	if why == "" {
		// Who stored the latest base may have ended before this.
		dropped, err := d.db.DropSupersededPacks(ctx, r.Project)
		if dropped > 0 {
			did = client.CompactedDropped
		}
		return did, err
	}
	lock, err := d.db.TryLock(ctx, r.Project, compactionRef)
	if errors.Is(err, refdb.ErrLocked) {
		return did, nil // another site does it
	}
	if err != nil {
		return did, err
	}
	defer func() { err = errors.Join(err, lock.Release(context.WithoutCancel(ctx))) }()
	// Another site may have stored one meanwhile.
	if why, err = from.WhyCompact(ctx); err != nil || why == "" {
		return did, err
	}
	say("storing a base in the database: " + why)
	release, err := maintenance.Share(ctx, repo.Dir())
	if err != nil {
		return did, err
	}
	defer release()
	receive := func(ctx context.Context) (*packs.Mark, error) {
		if err := d.follower.Receive(ctx, r.Project); err != nil {
			return nil, err
		}
		return packs.ReadMark(repo.Dir())
	}
	base, err := from.StoreBase(ctx, receive, packs.Limits{PartTimeout: partTimeout})
	switch {
	case errors.Is(err, packs.ErrIncomplete):
		return did, nil // another site can
	case err == nil && base.Pack.ID != "":
		did = client.CompactedBase
	}
	return did, err
}
