package catchup

import (
	"context"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/site/compare"
)

// compare returns the refs to move, and reports the others. Taken are the refs that could not be
// claimed, each with the reason.
func (s *syncer) compare(ctx context.Context, refs []string, taken map[string]error) (moves []compare.Pair, err error) {
	now, err := compare.LookAgain(ctx, s.db, s.repo, s.project, refs)
	if err != nil {
		return nil, err
	}
	if again, err := s.setAside(ctx, now); err != nil {
		return nil, err
	} else if again {
		if now, err = compare.LookAgain(ctx, s.db, s.repo, s.project, refs); err != nil {
			return nil, err
		}
	}
	if err := s.readRows(ctx, now); err != nil {
		return nil, err
	}
	var older map[string]bool
	if !s.Force {
		rows := func(refs []string) (rows []refdb.Ref, err error) {
			for _, ref := range refs {
				if row, ok := s.rows[ref]; ok {
					rows = append(rows, row)
				}
			}
			return rows, nil
		}
		if older, err = compare.SetBack(ctx, s.repo, now, rows); err != nil {
			return nil, err
		}
	}
	for _, l := range now {
		result, detail := obstacle(l, s.Site)
		if err := taken[l.Ref]; result == "" && err != nil {
			result, detail = Locked, err.Error()
		}
		if result == "" && older[l.Ref] {
			result, detail = Ahead, aheadDetail
		}
		if result != "" {
			s.tell(Synced{l.Ref, result, l.Local, l.Global, detail})
			continue
		}
		moves = append(moves, l.Pair)
	}
	return moves, nil
}

// readRows reads the database's rows of refs that differ, for their times.
func (s *syncer) readRows(ctx context.Context, looks []compare.Look) error {
	var names []string
	for _, l := range looks {
		delete(s.rows, l.Ref)
		if !l.Agree() && l.Global != refdb.Unknown {
			names = append(names, l.Ref)
		}
	}
	if len(names) == 0 || !s.settles() {
		return nil
	}
	rows, err := s.db.GetAll(ctx, s.project, names...)
	for _, row := range rows {
		s.rows[row.Name] = row
	}
	return err
}

// setAside takes away the files of refs that hold no value, if the database has one whose objects are here, and no push of this site is under way. It
// reports whether there were any.
func (s *syncer) setAside(ctx context.Context, looks []compare.Look) (some bool, err error) {
	if s.DryRun {
		return false, nil
	}
	for _, l := range looks {
		if l.Broken == "" || !l.Global.IsObjectID() || l.Global.IsDeleted() || l.Lock != nil && l.Lock.Site() == s.Site {
			continue
		}
		// Not beside the refs: git gets nowhere from a broken one.
		whole, err := s.repo.IsConnected(ctx, []string{string(l.Global)}, nil)
		if err != nil {
			return some, err
		}
		if !whole {
			continue
		}
		aside, err := s.repo.SetAsideBroken(l.Ref)
		if err != nil {
			return some, err
		}
		some = some || aside
	}
	return some, nil
}

// obstacle returns why a ref must not be moved; "" if it may be.
//
// Locks and intents of other sites are none: the ref moves to what the database holds already.
func obstacle(l compare.Look, site string) (result Result, detail string) {
	_, symbolic := l.Local.Target()
	switch {
	case l.Broken != "":
		return Failed, l.Broken
	case l.Agree() || l.Global == refdb.Unknown:
		return Moved, "it is already up to date"
	case l.Lock != nil && l.Lock.Site() == site && l.Lock.Intended():
		return Locked, "a push is in progress, by " + l.Lock.Owner
	case l.Lock != nil && l.Lock.Site() == site:
		return Locked, "by " + l.Lock.Owner
	case symbolic:
		return Failed, "it is a symbolic ref here, but a guarded ref must not be one: `refdbctl site check` says how to remove it"
	case !l.Global.IsObjectID():
		return Failed, "the database's value is not an object ID"
	}
	return "", ""
}
