// Package objects stores the objects of pushes in the database before the refs move, and deletes
// packs that no push has used.
package objects

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/globalrefdb/globalrefdb/internal/gitrepo"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/intents"
	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/internal/failure"
	"github.com/globalrefdb/globalrefdb/site/internal/pause"
	"github.com/globalrefdb/globalrefdb/site/packs"
	"github.com/globalrefdb/globalrefdb/site/projects"
	"github.com/globalrefdb/globalrefdb/site/refusal"
	"github.com/globalrefdb/globalrefdb/site/serving"
	"github.com/globalrefdb/globalrefdb/site/wire"
)

const (
	// unusedPackQuota bounds the total size, in bytes, of packs that pushes of this daemon have
	// stored and no preparation has used yet.
	unusedPackQuota = 1 << 30
	// stalledFor is how long a push may take from storing its objects to moving its refs, if other
	// pushes need the quota.
	stalledFor = time.Minute
	// dropPacksEvery is the interval at which abandoned packs are deleted. A pack is abandoned
	// after packAbandoned.
	dropPacksEvery = 10 * time.Minute
	packAbandoned  = time.Hour

	// carriedPack is the largest pack, in bytes, that a preparation carries instead of storing it
	// first. Carrying saves a transaction, which matters little for a larger pack, and refs are
	// locked while the pack is sent. carriedPackQuota bounds the total size of carried packs in
	// memory.
	carriedPack      = 64 << 10
	carriedPackQuota = 64 << 20
)

// LockedPackLimit bounds a pack that is made while refs are locked here: git or a guard is then
// waiting for the answer, within its limit.
const LockedPackLimit = 8 << 20

// Pushed tracks which of a push's objects are in the database.
type Pushed struct {
	storing sync.Mutex // held while a pack is made

	mu     sync.Mutex
	packs  map[refdb.Value]string // the pack with all objects that a new value needs; "" if the database had them
	since  time.Time              // of the first of packs
	unused map[string]unusedPack
	ended  bool // the packs are no longer needed
}

// An unusedPack is a pack that no preparation has used yet.
type unusedPack struct {
	packs.Made
	project string
	size    int64     // bytes that were stored
	since   time.Time // when it was made
	tried   bool      // a preparation carried it, and may have stored it
}

// packsOf returns the IDs of the packs that the new values of moves need, the options by which a
// preparation uses them, and whether the preparation carries any of them.
func (o *Pushed) packsOf(moves []refdb.Update) (ids []string, how []intents.Option, carries bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, m := range moves {
		id := o.packs[m.New]
		if id == "" || slices.Contains(ids, id) {
			continue
		}
		ids = append(ids, id)
		if p := o.unused[id]; p.Part != nil {
			p.tried, carries = true, true
			o.unused[id] = p
			how = append(how, intents.WithPack(*p.Part, p.Bases...))
		} else {
			how = append(how, intents.WithPacks(id))
		}
	}
	return ids, how, carries
}

// Lacking returns the moves whose objects may be missing from the database.
func (o *Pushed) Lacking(moves []refdb.Update) (some []refdb.Update) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if time.Since(o.since) > packAbandoned/2 { // of a process with many transactions
		clear(o.packs)
	}
	for _, m := range moves {
		if _, known := o.packs[m.New]; !known && m.New.IsObjectID() && !m.New.IsDeleted() {
			some = append(some, m)
		}
	}
	return some
}

// Holds reports whether packs of o that no preparation has used contain everything that the new
// values of moves need.
func (o *Pushed) Holds(project string, moves []refdb.Update) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, m := range moves {
		if p, ok := o.unused[o.packs[m.New]]; !m.New.IsDeleted() && (!ok || p.project != project) {
			return false
		}
	}
	return true
}

// made records the pack that was made for moves. It returns false if o has ended.
func (o *Pushed) made(p packs.Made, project string, size int64, moves []refdb.Update) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.ended {
		return false
	}
	if len(o.packs) == 0 {
		o.packs, o.since = map[refdb.Value]string{}, time.Now()
	}
	if o.unused == nil {
		o.unused = map[string]unusedPack{}
	}
	for _, m := range moves {
		o.packs[m.New] = p.ID
	}
	if p.ID != "" {
		o.unused[p.ID] = unusedPack{Made: p, project: project, size: size, since: time.Now()}
	}
	return true
}

// carriedOf returns those of the given packs that a preparation has to carry.
func (o *Pushed) carriedOf(ids []string) (some []unusedPack) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, id := range ids {
		if p, ok := o.unused[id]; ok && p.Part != nil {
			some = append(some, p)
		}
	}
	return some
}

// waiting returns the total size, in bytes, of packs that wait for a preparation that carries them.
func (o *Pushed) waiting() (bytes int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, p := range o.unused {
		if p.Part != nil {
			bytes += p.Part.Pack.Size
		}
	}
	return bytes
}

// stored records that a pack is in the database, so preparations need not carry it. It returns
// false if the pack is no longer needed.
func (o *Pushed) stored(id string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	p, ok := o.unused[id]
	if ok {
		o.unused[id] = unusedPack{Made: packs.Made{ID: id}, project: p.project, size: p.Part.Pack.Size, since: p.since}
	}
	return ok
}

// giveUp removes and returns the packs that were stored before a time. A preparation that names one
// of them fails with driver.ErrNoPack.
func (o *Pushed) giveUp(before time.Time) (given map[string]unusedPack) {
	o.mu.Lock()
	defer o.mu.Unlock()
	given = map[string]unusedPack{}
	for id, p := range o.unused {
		if p.size > 0 && p.since.Before(before) {
			given[id] = p
			delete(o.unused, id)
		}
	}
	return given
}

// oldest returns the time at which the oldest unused pack was stored.
func (o *Pushed) oldest() (since time.Time, any bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, p := range o.unused {
		if p.size > 0 && (!any || p.since.Before(since)) {
			since, any = p.since, true
		}
	}
	return since, any
}

// used records that a preparation has used packs, and returns them.
func (o *Pushed) used(ids []string) (were []unusedPack) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, id := range ids {
		were = append(were, o.unused[id])
		delete(o.unused, id)
	}
	return were
}

// forget clears the record of packs, after the database turned out not to have them.
func (o *Pushed) forget() {
	o.mu.Lock()
	defer o.mu.Unlock()
	clear(o.packs)
}

// A Storage stores objects of pushes in the database.
type Storage struct {
	DB       *refdb.DB
	Projects *projects.Cache
	State    *serving.State
	Logger   *slog.Logger

	unused  atomic.Int64 // bytes of packs that this daemon stored and no preparation has used
	carried atomic.Int64 // bytes of packs that wait for the preparation that carries them
	recent  packs.Recent

	mu      sync.Mutex
	holders map[*Pushed]bool // pushes that may have unused packs
}

func (s *Storage) uncount(p unusedPack) {
	s.unused.Add(-p.size)
	if p.Part != nil {
		s.carried.Add(-p.Part.Pack.Size)
	}
}

// Keeps reports whether pushes to a project are acknowledged only after the database has their
// objects.
func (s *Storage) Keeps(c *config.Config, project string) bool {
	p, ok := s.Projects.Get(project)
	return ok && c.Durability == config.InDatabase && packs.Stored(p.Project)
}

// Store stores those objects of the new values of moves that the database lacks, or leaves them to
// be carried by the preparation. It records the packs in o.
func (s *Storage) Store(ctx context.Context, c *config.Config, o *Pushed, r config.Repository, moves []refdb.Update, limits packs.Limits) error {
	return s.StoreIncoming(ctx, c, o, r, nil, moves, limits)
}

// StoreIncoming is like Store, for objects that only repo has, including those of a push in
// quarantine. A nil repo stands for the repository without quarantined objects.
func (s *Storage) StoreIncoming(ctx context.Context, c *config.Config, o *Pushed, r config.Repository, repo *gitrepo.Repo, moves []refdb.Update, limits packs.Limits) error {
	if !s.Keeps(c, r.Project) {
		return nil
	}
	if s.carried.Load() < carriedPackQuota && o.waiting() <= driver.MaxPackPart-carriedPack {
		limits.Carried = carriedPack
	}
	return s.store(ctx, c, o, r, repo, moves, limits)
}

func (s *Storage) store(ctx context.Context, c *config.Config, o *Pushed, r config.Repository, repo *gitrepo.Repo, moves []refdb.Update, limits packs.Limits) (err error) {
	o.storing.Lock()
	defer o.storing.Unlock()
	moves = o.Lacking(moves)
	if len(moves) == 0 {
		return nil
	}
	if repo == nil {
		if repo, err = gitrepo.OpenDir(r.Path); err != nil {
			return err
		}
	}
	var size int64
	told := limits.Stored
	limits.Ask = func(ctx context.Context, request func(context.Context) error) error {
		return s.State.Retry(ctx, c, func(ctx context.Context) error { return asUnavailable(request(ctx)) })
	}
	limits.Stored = func(bytes int64) error {
		over := s.unused.Add(bytes-size) > unusedPackQuota
		size = bytes
		if over && !s.makeRoom(o) {
			return errQuota
		}
		if told != nil {
			return told(bytes)
		}
		return nil
	}
	made, err := packs.Source{DB: s.DB, Repo: repo, Project: r.Project, Recent: &s.recent}.Store(ctx, moves, limits)
	if err != nil {
		if errors.Is(err, packs.ErrDatabase) {
			s.State.RecordHealth(err)
		}
		s.unused.Add(-size)
		s.dropPack(made.ID)
		return notStored(c, r, limits, err)
	}
	if made.Part != nil {
		s.carried.Add(made.Part.Pack.Size)
	}
	if !o.made(made, r.Project, size, moves) {
		s.drop(made.ID, unusedPack{Made: made, size: size})
	} else if size > 0 {
		s.hold(o)
	}
	return nil
}

// hold records that o has stored packs, unless o has ended.
func (s *Storage) hold(o *Pushed) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.ended {
		return
	}
	if s.holders == nil {
		s.holders = map[*Pushed]bool{}
	}
	s.holders[o] = true
}

// makeRoom deletes stored packs that pushes other than o have not used for long, the oldest first,
// until the quota is met. It reports whether the quota is met. So a push that stalls, for example
// in a hook, blocks only itself.
func (s *Storage) makeRoom(o *Pushed) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	stalled := time.Now().Add(-stalledFor)
	for s.unused.Load() > unusedPackQuota {
		var first *Pushed
		var earliest time.Time
		for other := range s.holders {
			since, any := other.oldest()
			if !any {
				delete(s.holders, other)
			} else if other != o && since.Before(stalled) && (first == nil || since.Before(earliest)) {
				first, earliest = other, since
			}
		}
		if first == nil {
			return false
		}
		for id, p := range first.giveUp(stalled) {
			s.drop(id, p)
		}
	}
	return true
}

var errQuota = errors.New("too many pushes' objects are waiting to be used")

// notStored turns an error of storing objects into the refusal that the pusher reads.
func notStored(c *config.Config, r config.Repository, limits packs.Limits, err error) error {
	switch {
	case errors.Is(err, packs.ErrTooLarge) && limits.Bytes < c.PackLimit:
		return refusal.Because(refusal.Objects, errors.New(wire.PackTooLargeWhileLocked(limits.Bytes>>20)))
	case errors.Is(err, packs.ErrTooLarge):
		return refusal.Because(refusal.Objects, errors.New(wire.PackTooLarge(c.PackLimit>>20)))
	case errors.Is(err, packs.ErrShallow):
		return refusal.Because(refusal.Objects, errors.New(wire.RepositoryIsShallow(r.Path)))
	case errors.Is(err, errQuota):
		return refusal.Because(refusal.Objects, errors.New(wire.TooManyUnusedPacks))
	case errors.Is(err, packs.ErrDatabase), refdb.ClassOf(err) != refdb.Permanent, errors.Is(err, driver.ErrNoPack):
		return refusal.DatabaseFailed(err)
	}
	return refusal.Because(refusal.Objects, err)
}

// DropUnused deletes the packs of o that no preparation has used, after the push or guard has
// ended.
func (s *Storage) DropUnused(o *Pushed) {
	o.mu.Lock()
	unused := o.unused
	o.unused, o.ended = nil, true
	o.mu.Unlock()
	s.mu.Lock()
	delete(s.holders, o)
	s.mu.Unlock()
	for id, p := range unused {
		s.drop(id, p)
	}
}

func (s *Storage) drop(id string, p unusedPack) {
	s.uncount(p)
	if p.Part == nil || p.tried {
		s.dropPack(id)
	}
}

// dropPack deletes an unused pack. If that fails, the pack becomes abandoned, and is deleted later.
func (s *Storage) dropPack(id string) {
	if id == "" {
		return
	}
	s.State.Go(func(work context.Context) {
		ctx, cancel := context.WithTimeout(work, s.State.Config().Timeout)
		defer cancel()
		s.logFailure(ctx, "a pack that was not used could not be dropped yet", s.DB.Packs().Drop(ctx, id))
	})
}

// DropAbandoned deletes abandoned packs of pushes of any site from the database, until ctx ends.
func (s *Storage) DropAbandoned(ctx context.Context) {
	for pause.For(ctx, dropPacksEvery) {
		limited, cancel := context.WithTimeout(ctx, dropPacksEvery)
		_, err := s.DB.Packs().DropAbandoned(limited, packAbandoned)
		cancel()
		if !errors.Is(err, errors.ErrUnsupported) {
			s.logFailure(ctx, "abandoned packs could not be dropped yet", err)
		}
	}
}

func (s *Storage) logFailure(ctx context.Context, what string, err error) {
	failure.Log(ctx, s.Logger, what, err)
}
