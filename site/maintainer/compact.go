package maintainer

import (
	"context"
	"errors"
	"time"

	"github.com/globalrefdb/globalrefdb/internal/gitrepo"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/site/client"
	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/internal/failure"
	"github.com/globalrefdb/globalrefdb/site/internal/pause"
	"github.com/globalrefdb/globalrefdb/site/maintenance"
	"github.com/globalrefdb/globalrefdb/site/packs"
)

const (
	// compactionRef is the ref of a project that a site locks while it stores a base, so that no
	// other site duplicates the work.
	compactionRef = config.OwnPrefix + "base"
	// partTimeout bounds the request that stores a part of a base.
	partTimeout = time.Minute
	// leftLocksEvery is the interval at which a daemon looks for locks that earlier daemons have
	// left, as long as there are such locks.
	leftLocksEvery = 10 * time.Second
)

// compact bounds what the database keeps of a project's objects, if that pays: it drops packs in
// transit, or stores a base that replaces many packs. This site must have just unpacked all packs.
// An error of compact prevents neither packing nor pruning.
func (m *Maintainer) compact(ctx context.Context, r config.Repository, repo *gitrepo.Repo, say func(string)) (did client.Compacted, err error) {
	did = client.CompactedNothing
	p, ok := m.Projects.Get(r.Project)
	if !ok || !packs.Stored(p.Project) {
		return did, nil
	}
	from := packs.Source{DB: m.DB, Repo: repo, Project: r.Project}
	if packs.InTransit(p.Project) {
		mark, err := packs.ReadMark(repo.Dir())
		if err != nil {
			return did, err
		}
		site := m.State.Config().Site
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
		// The site that stored the latest base may have failed before it dropped the replaced
		// packs.
		dropped, err := m.DB.Packs().DropSuperseded(ctx, r.Project)
		if dropped > 0 {
			did = client.CompactedDropped
		}
		return did, err
	}
	lock, err := m.DB.TryLock(ctx, r.Project, compactionRef)
	if errors.Is(err, refdb.ErrLocked) {
		return did, nil // another site is storing a base
	}
	if err != nil {
		return did, err
	}
	defer func() { err = errors.Join(err, lock.Release(context.WithoutCancel(ctx))) }()
	// Another site may have stored a base meanwhile.
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
		if err := m.Follower.Receive(ctx, r.Project); err != nil {
			return nil, err
		}
		return packs.ReadMark(repo.Dir())
	}
	base, err := from.StoreBase(ctx, receive, packs.Limits{Ask: withinPartTimeout})
	switch {
	case errors.Is(err, packs.ErrIncomplete):
		return did, nil // a site that has the objects can store a base
	case err == nil && base.Pack.ID != "":
		did = client.CompactedBase
	}
	return did, err
}

func withinPartTimeout(ctx context.Context, request func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, partTimeout)
	defer cancel()
	return request(ctx)
}

// RunLeftLocks purges the locks of earlier daemons of this site that were killed while they stored
// a base, once these locks are stale. Otherwise the locks would remain until the next base is
// stored.
func (m *Maintainer) RunLeftLocks(ctx context.Context) {
	for {
		left, err := m.endLeftLocks(ctx)
		failure.Log(ctx, m.Logger, "locks left by an earlier daemon could not be ended yet", err)
		if !left && err == nil || !pause.For(ctx, leftLocksEvery) {
			return
		}
	}
}

// endLeftLocks purges the stale locks, and reports whether earlier daemons have left locks that are
// not stale yet.
func (m *Maintainer) endLeftLocks(ctx context.Context) (left bool, err error) {
	if err := m.State.AwaitServing(ctx); err != nil {
		return true, nil
	}
	c := m.State.Config()
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	var stale []refdb.LockInfo
	for l, err := range m.DB.Locks(ctx, refdb.LockFilter{Owner: c.Site, Ref: compactionRef}) {
		switch {
		case err != nil:
			return true, err
		case l.Owner == m.DB.Owner():
		case l.Stale():
			stale = append(stale, l)
		default:
			left = true
		}
	}
	_, err = m.DB.Operator().Purge(ctx, stale)
	return left, err
}
