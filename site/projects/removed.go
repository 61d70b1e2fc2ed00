package projects

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	refdbprojects "github.com/globalrefdb/globalrefdb/refdb/projects"
	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/presence"
	"github.com/globalrefdb/globalrefdb/site/refusal"
	"github.com/globalrefdb/globalrefdb/site/wire"
)

const (
	// reuseAfter is the age of a removal from which on the project's name can be used again. Until [RulesSettle] a site may let a push to
	// the earlier project through; a site that learned of the removal late refuses pushes for as long after that.
	reuseAfter = RulesSettle + 2*RefreshEvery
	// markAgainEvery is how often a removal that is under way marks the row, so that the name is not used again meanwhile.
	markAgainEvery = RulesSettle / 4
)

// Remove removes a project, whose row is given as it was read: all sites refuse pushes to it, for good, and then its refs, locks and
// packs are removed. The row stays, because sites know by it that the project was removed. It returns how many refs were removed, and whether the
// row was marked: then pushes are refused also after an error, and it can be run again. If somebody changes the row meanwhile, as by bringing
// the project back, it ends with an error that wraps [refdb.ErrMismatch].
//
// A frozen project is not removed: the error is a [*driver.FrozenError].
//
// A site that has not read the row may still let a push through, for [RulesSettle].
func Remove(ctx context.Context, db *refdb.DB, row driver.Project, options ...refdbprojects.RemoveOption) (n int, marked bool, err error) {
	if row, err = markRemoved(ctx, db, row); err != nil {
		return 0, false, err
	}
	removing, stop := context.WithCancelCause(ctx)
	marking := make(chan error, 1)
	go func() {
		err := keepMarked(removing, db, row)
		stop(err)
		marking <- err
	}()
	if err = endMirror(removing, db, row); err == nil {
		n, err = db.Projects().Remove(removing, row.Project, options...)
	}
	stop(nil)
	return n, true, errors.Join(err, <-marking)
}

// endMirror takes back that a project is a mirror.
func endMirror(ctx context.Context, db *refdb.DB, row driver.Project) error {
	site, err := Mirror(ctx, db, row)
	if err == nil && site != "" {
		err = SetMirror(ctx, db, row, site, "")
	}
	return err
}

// keepMarked marks the row again and again, until ctx ends or somebody else has changed it.
func keepMarked(ctx context.Context, db *refdb.DB, row driver.Project) error {
	for {
		select {
		case <-time.After(markAgainEvery):
		case <-ctx.Done():
			return nil
		}
		next, err := markRemoved(ctx, db, row)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return fmt.Errorf("reserving the name of %s: %w", row.Project, err)
		}
		row = next
	}
}

// markRemoved writes that a project was removed, as of now, unless it is frozen.
func markRemoved(ctx context.Context, db *refdb.DB, row driver.Project) (driver.Project, error) {
	if row.Freeze != (driver.Freeze{}) {
		return row, &driver.FrozenError{Project: row.Project, Freeze: row.Freeze}
	}
	next := row
	next.Mode, next.Store = config.Removed, ""
	return db.Projects().Put(ctx, next)
}

// removedRef is the ref, in [presence.Project], that says that the project with an ID was removed, and that its name has been
// given to another one since: the row no longer says so.
func removedRef(id string) string { return "refs/removed/" + id }

func removedValue(project string) refdb.Value { return refdb.Value("project " + project) }

// WasRemoved reports whether the project that a repository was recorded for was removed, by what the database has of
// the project of its name.
func WasRemoved(ctx context.Context, db *refdb.DB, row driver.Project, id string) (bool, error) {
	switch id {
	case "":
		return false, nil
	case row.ID:
		return row.Mode == config.Removed, nil
	}
	value, err := db.Get(ctx, presence.Project, removedRef(id))
	return err == nil && value == removedValue(row.Project), err
}

// replaceRemoved makes a project in the place of a removed one. With that one's ID it is the same again, in mode log if a site has not taken back what it
// said about that mode: it may let pushes through that the database did not agree to. Another one begins in mode enforce, in which no
// copy of the removed one counts.
func replaceRemoved(ctx context.Context, db *refdb.DB, removed, next driver.Project) (driver.Project, error) {
	if left := reuseAfter - removed.Age; left > 0 {
		return removed, refusal.Lines{wire.JustRemoved(removed.Project, left+time.Second)}
	}
	next.Revision = removed.Revision
	if next.ID == removed.ID {
		records, err := modeRecords(ctx, db, removed.ID)
		for _, r := range records {
			if r.Digest == "" {
				next.Mode, next.Store = config.Log, ""
			}
		}
		if err != nil {
			return removed, err
		}
		return db.Projects().Put(ctx, next)
	}
	next.Mode = config.Enforce
	if err := isGone(ctx, db, removed.Project); err != nil {
		return removed, err
	}
	// Before the row changes: copies of the earlier one know by it what they are.
	if _, err := db.Put(ctx, presence.Project, removedRef(removed.ID), removedValue(removed.Project)); err != nil {
		return removed, fmt.Errorf("recording that %s was removed: %w", removed.Project, err)
	}
	return db.Projects().Put(ctx, next)
}

// isGone returns an error if the database has anything of a removed project that would become another one's.
func isGone(ctx context.Context, db *refdb.DB, project string) error {
	left := func(what string) error {
		return refusal.Lines{wire.RemovedProjectHas(what, project)}
	}
	for i, err := range db.Intents().All(ctx, driver.IntentFilter{Project: project}) {
		if err != nil {
			return err
		}
		return refusal.Lines{wire.RemovedProjectUnsettled(project, i.Ref, i.Owner)}
	}
	switch has, err := hasRefs(ctx, db, project); {
	case err != nil:
		return err
	case has:
		return left("refs")
	}
	has, err := HasPacks(ctx, db, project)
	if err == nil && has {
		err = left("objects")
	}
	return err
}

// HasPacks reports whether the database has packs of a project.
func HasPacks(ctx context.Context, db *refdb.DB, project string) (bool, error) {
	usage, err := db.Packs().Usage(ctx, project)
	if errors.Is(err, errors.ErrUnsupported) {
		return false, nil
	}
	return usage.Packs+usage.Unused > 0, err
}
