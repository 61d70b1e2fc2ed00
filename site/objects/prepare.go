package objects

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/intents"
	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/journal"
	"github.com/globalrefdb/globalrefdb/site/packs"
	"github.com/globalrefdb/globalrefdb/site/refusal"
	"github.com/globalrefdb/globalrefdb/site/wire"
)

// An Announcement describes the moves of refs that are about to happen in a repository.
type Announcement struct {
	Repo  config.Repository
	Moves []refdb.Update
	Agent string // the process that moves the refs
	By    string // the requester
}

// Prepare records the intents of a, together with the packs of o that the moves need, and returns
// the IDs of these packs. It does not wait while refs are locked. An error is the refusal, or wraps
// [refdb.ErrOutcomeUnknown]; the caller then has to revoke the preparation.
//
// A request whose reply is lost, for example because the database restarts, may have been carried
// out, or may still be. Prepare revokes it once the database is back, and only then makes another
// one.
//
// If a pack that the preparation carries builds on a value that its ref no longer has, the pack is
// stored separately. If the history does not show that the ref had the value recently, the pack is
// made anew.
func (s *Storage) Prepare(ctx context.Context, c *config.Config, o *Pushed, a Announcement) (p intents.Preparation, ids []string, err error) {
	carries := false
	prepare := func() error {
		var lost *intents.Preparation // a preparation whose reply was lost, and which is not revoked yet
		err := s.State.Retry(ctx, c, func(ctx context.Context) error {
			if lost != nil {
				if err := s.DB.Intents().Revoke(ctx, *lost); err != nil {
					return asUnavailable(err)
				}
				lost = nil
			}
			var how []intents.Option
			ids, how, carries = o.packsOf(a.Moves)
			var err error
			p, err = s.DB.Intents().Prepare(ctx, a.Repo.Project, a.Moves, a.Agent, append(how, intents.AskedBy(a.By))...)
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
	if err = prepare(); errors.Is(err, driver.ErrNoPack) && carries {
		if err := s.storeCarried(ctx, c, o, a, ids); err != nil {
			return intents.Preparation{}, nil, err
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
	case errors.Is(err, driver.ErrNoPack):
		o.forget()
		return intents.Preparation{}, nil, refusal.Because(refusal.Objects, errors.New(wire.ObjectsGone))
	}
	return intents.Preparation{}, nil, refusal.NotPrepared(c.Site, err)
}

// asUnavailable converts the error of a request that may be repeated, or is revoked first: an
// unknown outcome counts as if the server was unreachable and had not accepted the request. If it is
// unknown because the journal can't be written, a repetition does not help.
func asUnavailable(err error) error {
	if failed := (*journal.Error)(nil); errors.As(err, &failed) {
		return failed
	}
	if errors.Is(err, refdb.ErrOutcomeUnknown) && !errors.Is(err, refdb.ErrUnconfirmed) {
		return fmt.Errorf("%w: %v", refdb.ErrUnavailable, err)
	}
	return err
}

// storeCarried stores the packs that a preparation of a carried. If the database may never have had
// the values that a pack builds on, because the database may have gone back since they were read,
// the pack is made anew.
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
			err = s.State.Retry(ctx, c, func(ctx context.Context) error { return asUnavailable(s.DB.Packs().Store(ctx, *p.Part)) })
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

// heldLately reports whether each of the bases is, or was within the last day according to the
// history, the value of its ref, or is compared with the ref by the preparation of a. Maintenance
// keeps the objects of values from the last 14 days, so the two clocks may differ by several days.
func (s *Storage) heldLately(ctx context.Context, a Announcement, bases []driver.RefValue) (bool, error) {
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

func (s *Storage) refHeldLately(ctx context.Context, project string, b driver.RefValue, since time.Time) (bool, error) {
	for change, err := range s.DB.History(ctx, project, b.Ref) { // newest first
		switch {
		case err != nil:
			return false, err
		case change.New == b.Value: // until the entry before this one
			return true, nil
		case change.Time.Before(since):
			return false, nil
		case change.Old == b.Value:
			return true, nil
		}
	}
	return false, nil
}
