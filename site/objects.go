package site

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/globalrefdb/globalrefdb/internal/gitrepo"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/packs"
	"github.com/globalrefdb/globalrefdb/site/refusal"
	"github.com/globalrefdb/globalrefdb/site/wire"
)

const (
	// lockedPackLimit bounds the pack that is made while git holds its ref locks: git then waits for the answer within
	// the hook's limit.
	lockedPackLimit = 8 << 20
	// unusedPackQuota bounds the bytes of packs that pushes of this daemon have stored and no preparation has used.
	unusedPackQuota = 1 << 30
	// waitEvery is how often a hook is told to wait on.
	waitEvery = time.Second
	// dropPacksEvery is how often abandoned packs are looked for, packAbandoned the time after which a pack is one.
	dropPacksEvery = 10 * time.Minute
	packAbandoned  = time.Hour
)

// objects says what of a push's objects is in the database.
type objects struct {
	storing sync.Mutex // held while a pack is made

	mu     sync.Mutex
	packs  map[refdb.Value]string // the pack with all that a new value needs; "" if the database had it
	since  time.Time              // of the first of packs
	unused map[string]int64       // packs that no preparation has used, and their bytes
}

// packsOf returns the packs that the new values of moves need.
func (o *objects) packsOf(moves []refdb.Update) (ids []string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, m := range moves {
		if id := o.packs[m.New]; id != "" && !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	return ids
}

// lacking returns the moves whose objects the database may lack.
func (o *objects) lacking(moves []refdb.Update) (some []refdb.Update) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if time.Since(o.since) > packAbandoned/2 { // of a process that makes many transactions
		clear(o.packs)
	}
	for _, m := range moves {
		if _, known := o.packs[m.New]; !known && m.New.IsObjectID() && !m.New.IsDeleted() {
			some = append(some, m)
		}
	}
	return some
}

func (o *objects) stored(id string, size int64, moves []refdb.Update) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.packs) == 0 {
		o.packs, o.since = map[refdb.Value]string{}, time.Now()
	}
	if o.unused == nil {
		o.unused = map[string]int64{}
	}
	for _, m := range moves {
		o.packs[m.New] = id
	}
	if id != "" {
		o.unused[id] = size
	}
}

// used records that a preparation has used packs.
func (o *objects) used(ids []string) (bytes int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, id := range ids {
		bytes += o.unused[id]
		delete(o.unused, id)
	}
	return bytes
}

// forget forgets packs that the database has no more.
func (o *objects) forget() {
	o.mu.Lock()
	defer o.mu.Unlock()
	clear(o.packs)
}

// keepsObjects reports whether pushes to a project are acknowledged only once the database has their objects.
func (d *Daemon) keepsObjects(c *config.Config, project string) bool {
	p, ok := d.projects.Get(project)
	return ok && c.Durability == config.InDatabase && packs.Stored(p.Project)
}

// storeObjects stores the objects that the database lacks of the new values of moves. What it has is noted in o.
func (d *Daemon) storeObjects(ctx context.Context, c *config.Config, o *objects, r config.Repository, moves []refdb.Update, limits packs.Limits) error {
	if !d.keepsObjects(c, r.Project) {
		return nil
	}
	o.storing.Lock()
	defer o.storing.Unlock()
	moves = o.lacking(moves)
	if len(moves) == 0 {
		return nil
	}
	repo, err := gitrepo.OpenDir(r.Path)
	if err != nil {
		return err
	}
	var size int64
	told := limits.Stored
	limits.PartTimeout = c.Timeout
	limits.Stored = func(bytes int64) error {
		if d.unusedPacks.Add(bytes-size) > unusedPackQuota {
			return errQuota
		}
		size = bytes
		if told != nil {
			return told(bytes)
		}
		return nil
	}
	id, err := packs.Source{DB: d.db, Repo: repo, Project: r.Project}.Store(ctx, moves, limits)
	if err != nil {
		if errors.Is(err, packs.ErrDatabase) {
			d.recordHealth(err)
		}
		d.dropPack(id, size)
		return notStored(c, r, err)
	}
	o.stored(id, size, moves)
	return nil
}

var errQuota = errors.New("too many objects of pushes wait to be used")

// notStored turns an error of storing objects into the refusal that the pusher reads.
func notStored(c *config.Config, r config.Repository, err error) error {
	switch {
	case errors.Is(err, packs.ErrTooLarge):
		return refusal.Because(refusal.Objects, errors.New(wire.PackTooLarge(c.PackLimit>>20)))
	case errors.Is(err, packs.ErrShallow):
		return refusal.Because(refusal.Objects, errors.New(wire.RepositoryIsShallow(r.Path)))
	case errors.Is(err, errQuota):
		return refusal.Because(refusal.Objects, errors.New(wire.TooManyUnusedPacks))
	case errors.Is(err, packs.ErrDatabase), refdb.ClassOf(err) != refdb.Permanent, errors.Is(err, refdb.ErrNoPack):
		return refusal.DatabaseFailed(err)
	}
	return refusal.Because(refusal.Objects, err)
}

// storeInUpdate stores the objects of all refs of a push, as far as it may go on, before git locks any ref. The hook is
// told to wait, unless it is nil.
func (d *Daemon) storeInUpdate(ctx context.Context, c *config.Config, p *push, r config.Repository, moves []refdb.Update, s *snapshot, hook *waiting) error {
	if !d.keepsObjects(c, r.Project) || len(p.objects.lacking(moves)) == 0 {
		return nil
	}
	limits := packs.Limits{Bytes: lockedPackLimit}
	if hook != nil {
		var stop context.CancelFunc
		ctx, stop = hook.keepWaiting(d.work)
		defer stop()
		limits = packs.Limits{Bytes: c.PackLimit, Stored: hook.stored}
	}
	return d.storeObjects(ctx, c, &p.objects, r, append(moves, s.others(r.Project, moves)...), limits)
}

// dropUnused deletes what was stored in vain for who has ended.
func (d *Daemon) dropUnused(o *objects) {
	o.mu.Lock()
	unused := o.unused
	o.unused = nil
	o.mu.Unlock()
	for id, size := range unused {
		d.dropPack(id, size)
	}
}

// dropPack deletes a pack that was not used. If that fails it is abandoned, and deleted later.
func (d *Daemon) dropPack(id string, size int64) {
	d.unusedPacks.Add(-size)
	if id == "" {
		return
	}
	d.tasks.Go(func() {
		ctx, cancel := context.WithTimeout(d.work, d.config.Load().Timeout)
		defer cancel()
		d.logFailure(ctx, "a pack that was not used could not be dropped yet", d.db.DropPack(ctx, id))
	})
}

// dropAbandonedPacks deletes what pushes of any site have left in the database, until ctx ends.
func (d *Daemon) dropAbandonedPacks(ctx context.Context) {
	for pauseFor(ctx, dropPacksEvery) {
		limited, cancel := context.WithTimeout(ctx, dropPacksEvery)
		_, err := d.db.DropAbandonedPacks(limited, packAbandoned)
		cancel()
		if !errors.Is(err, refdb.ErrOldSchema) && !errors.Is(err, errors.ErrUnsupported) {
			d.logFailure(ctx, "abandoned packs could not be dropped yet", err)
		}
	}
}
