package projects

import (
	"context"
	"fmt"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/presence"
	"github.com/globalrefdb/globalrefdb/site/refusal"
	"github.com/globalrefdb/globalrefdb/site/wire"
)

// reuseAfter is the age of a removal from which on the project's name can be used again. Until [RulesSettle] a site may let a push to
// the earlier project through; a site that learned of the removal late refuses pushes for as long after that.
const reuseAfter = RulesSettle + 2*RefreshEvery

// MarkRemoved lets all sites refuse pushes to a project, for good, and returns its row, by which they know that it was removed. It
// is the first step of a removal: a site that has not read the row may still let a push through, for [RulesSettle].
func MarkRemoved(ctx context.Context, db *refdb.DB, row refdb.Project) (refdb.Project, error) {
	if row.Mode == config.Removed {
		return row, nil
	}
	row.Mode, row.Store = config.Removed, ""
	return db.PutProject(ctx, row)
}

// removedRef is the ref, in [presence.Project], that says that the project with an ID was removed, and that its name has been
// given to another one since: the row no longer says so.
func removedRef(id string) string { return "refs/removed/" + id }

func removedValue(project string) refdb.Value { return refdb.Value("project " + project) }

// WasRemoved reports whether the project that a repository was recorded for was removed, by what the database has of
// the project of its name.
func WasRemoved(ctx context.Context, db *refdb.DB, row refdb.Project, id string) (bool, error) {
	switch id {
	case "":
		return false, nil
	case row.ID:
		return row.Mode == config.Removed, nil
	}
	value, err := db.Get(ctx, presence.Project, removedRef(id))
	return err == nil && value == removedValue(row.Project), err
}

// succeed makes a project in the place of a removed one. With that one's ID it is the same again.
func succeed(ctx context.Context, db *refdb.DB, removed, next refdb.Project) (refdb.Project, error) {
	if left := reuseAfter - removed.Age; left > 0 {
		return removed, refusal.Lines{wire.JustRemoved(removed.Project, left+time.Second)}
	}
	if next.ID != removed.ID {
		// Before the row changes: copies of the earlier one know by it what they are.
		if _, err := db.Put(ctx, presence.Project, removedRef(removed.ID), removedValue(removed.Project)); err != nil {
			return removed, fmt.Errorf("recording that %s was removed: %w", removed.Project, err)
		}
	}
	next.Revision = removed.Revision
	return db.PutProject(ctx, next)
}
