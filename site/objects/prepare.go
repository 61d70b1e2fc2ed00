package objects

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/packs"
	"github.com/globalrefdb/globalrefdb/site/refusal"
	"github.com/globalrefdb/globalrefdb/site/wire"
)

// An Announcement is what is about to happen to refs of a repository.
type Announcement struct {
	Repo  config.Repository
	Moves []refdb.Update
	Agent string // who moves the refs
	By    string // for whom
}

// Prepare records the intents of a, with the packs of o that the moves need, whose IDs it returns. While refs are locked it tries again, as
// [serving.State.RetryLocked]. An error is the refusal, or wraps [refdb.ErrOutcomeUnknown]: the preparation is then to be revoked.
//
// A request whose reply is lost, as when the database restarts, may have been carried out, or may be yet. It is revoked once the database
// is back, and only then another one is made.
//
// What a pack builds on that the preparation carries, a ref may hold no more. Then the pack is stored, or made anew if the history does not
// have that the ref held it lately.
func (s *Storage) Prepare(ctx context.Context, c *config.Config, o *Pushed, a Announcement) (p refdb.Preparation, ids []string, err error) {
	carries := false
	prepare := func() error {
		var lost *refdb.Preparation // whose reply was lost, and which is not revoked yet
		err := s.State.RetryLocked(ctx, c, func(ctx context.Context) error {
			if lost != nil {
				if err := s.DB.Revoke(ctx, *lost); err != nil {
					return asUnavailable(err)
				}
				lost = nil
			}
			var how []refdb.PrepareOption
			ids, how, carries = o.packsOf(a.Moves)
			var err error
			p, err = s.DB.Prepare(ctx, a.Repo.Project, a.Moves, a.Agent, append(how, refdb.AskedBy(a.By))...)
			if errors.Is(err, refdb.ErrOutcomeUnknown) && !errors.Is(err, refdb.ErrUnconfirmed) {
				asked := p
				lost = &asked
			}
			return asUnavailable(err)
		})
		if lost != nil {
			p, err = *lost, fmt.Errorf("%w: %w", refdb.ErrOutcomeUnknown, err)
		}
		return err
	}
	if err = prepare(); errors.Is(err, refdb.ErrNoPack) && carries {
		if err := s.storeCarried(ctx, c, o, a, ids); err != nil {
			return refdb.Preparation{}, nil, err
		}
		err = prepare()
	}
	switch {
	case err == nil:
		for _, p := range o.used(ids) {
			s.uncount(p)
		}
		return p, ids, nil
	case errors.Is(err, refdb.ErrOutcomeUnknown):
		return p, nil, err
	case errors.Is(err, refdb.ErrNoPack):
		o.forget()
		return refdb.Preparation{}, nil, refusal.Because(refusal.Objects, errors.New(wire.ObjectsGone))
	}
	return refdb.Preparation{}, nil, refusal.NotPrepared(c.Site, err)
}

// asUnavailable returns the error of a request that may be made again, or is revoked before: if its outcome is unknown, it counts as
// one that a server did not take which is away.
func asUnavailable(err error) error {
	if errors.Is(err, refdb.ErrOutcomeUnknown) && !errors.Is(err, refdb.ErrUnconfirmed) {
		return fmt.Errorf("%w: %v", refdb.ErrUnavailable, err)
	}
	return err
}

// storeCarried stores the packs that a preparation of a carried, or makes them anew if the database may never have had what they build on:
// it may have gone back since it was read.
func (s *Storage) storeCarried(ctx context.Context, c *config.Config, o *Pushed, a Announcement, ids []string) error {
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	for _, p := range o.carriedOf(ids) {
		held, err := s.heldLately(ctx, a, p.Bases)
		if err == nil && !held {
			o.forget()
			return s.store(ctx, c, o, a.Repo, nil, a.Moves, packs.Limits{Bytes: min(c.PackLimit, LockedPackLimit)})
		}
		if err == nil {
			err = s.State.RetryLocked(ctx, c, func(ctx context.Context) error { return asUnavailable(s.DB.StorePackPart(ctx, *p.Part)) })
		}
		if err != nil {
			s.State.RecordHealth(err)
			return refusal.DatabaseFailed(err)
		}
		if !o.stored(p.ID) {
			s.dropPack(p.ID)
			continue
		}
		s.carried.Add(-p.Part.Pack.Size)
		s.unused.Add(p.Part.Pack.Size)
		s.hold(o)
	}
	return nil
}

// heldLately reports whether refs hold bases, or held them in the last day, by the history, or are compared with them by the preparation of
// a. Maintenance keeps what refs held in the last 14 days: the two clocks may differ by some of them.
func (s *Storage) heldLately(ctx context.Context, a Announcement, bases []refdb.RefValue) (bool, error) {
	since := time.Now().Add(-24 * time.Hour)
	for _, b := range bases {
		if slices.ContainsFunc(a.Moves, func(m refdb.Update) bool { return m.Ref == b.Ref && m.Old == b.Value }) {
			continue
		}
		if held, err := s.refHeldLately(ctx, a.Repo.Project, b, since); err != nil || !held {
			return false, err
		}
	}
	return true, nil
}

func (s *Storage) refHeldLately(ctx context.Context, project string, b refdb.RefValue, since time.Time) (bool, error) {
	for change, err := range s.DB.History(ctx, project, b.Ref) { // the newest is the first
		switch {
		case err != nil:
			return false, err
		case change.New == b.Value: // until the one before this in the listing
			return true, nil
		case change.Time.Before(since):
			return false, nil
		case change.Old == b.Value:
			return true, nil
		}
	}
	return false, nil
}
