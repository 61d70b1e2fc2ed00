package projects

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/refusal"
	"github.com/globalrefdb/globalrefdb/site/wire"
)

// Create makes a project with that ID, as configured, before there is a repository of it. Of several that do so at once, one succeeds. The
// error says to a user why the name can't be used; then nothing was made, unless it wraps [refdb.ErrOutcomeUnknown].
func Create(ctx context.Context, c *config.Config, db *refdb.DB, project, id string) (driver.Project, error) {
	row, ok, err := db.Projects().Get(ctx, project)
	removed := ok && row.Mode == config.Removed
	switch {
	case err != nil:
		return row, err
	case ok && !removed:
		if has, err := hasRefs(ctx, db, project); err == nil && !has {
			return row, refusal.Because(refusal.Exists, refusal.Lines{wire.ProjectReserved(project)})
		}
		return row, Exists(project)
	case !ok:
		has, err := hasRefs(ctx, db, project)
		if err == nil && has {
			err = refusal.Because(refusal.Exists, refusal.Lines{wire.RefsWithoutProject(project)})
		}
		if err != nil {
			return row, err
		}
	}
	store, err := newStore(ctx, c, db, config.Repository{Project: project})
	if err != nil {
		return row, err
	}
	next := driver.Project{Project: project, ID: id, Rules: c.Rules().String(), Mode: c.NewProjectMode, Store: store}
	if removed {
		row, err = replaceRemoved(ctx, db, row, next)
	} else {
		row, err = db.Projects().Put(ctx, next)
	}
	if errors.Is(err, refdb.ErrMismatch) && !errors.Is(err, refdb.ErrOutcomeUnknown) { // another site was faster
		err = Exists(project)
	}
	return row, err
}

// Exists is the refusal to make a project that there is.
func Exists(project string) error {
	return refusal.Because(refusal.Exists, refusal.Lines{wire.ProjectExists(project)})
}

// ErrNotYet: a project was taken back, and objects that were stored for it are to be removed, once no site adds any.
var ErrNotYet = errors.New("objects of the project remain")

// TakeBack removes a project that [Create] has made with that ID, or may make yet, unless something of it was accepted: the database has a
// ref. It removes no refs: a site that knows the project may let a push through until it learns of this. An error that wraps [ErrNotYet] says
// that this is done, and TakeBack is to be called again.
func TakeBack(ctx context.Context, c *config.Config, db *refdb.DB, project, id string) error {
	row, ok, err := db.Projects().Get(ctx, project)
	removed := row.Mode == config.Removed
	switch {
	case err != nil:
		return err
	case ok && row.ID != id && !removed:
		return nil // another project's
	case !ok:
		// A request of Create whose reply was lost may come late. Once there is another row it changes nothing.
		row = driver.Project{Project: project, ID: rand.Text(), Rules: c.Rules().String()}
	case row.ID == id:
		if used, err := isUsed(ctx, db, project); err != nil || used {
			return err
		}
	}
	if !removed || row.ID != id {
		if row, err = markRemoved(ctx, db, row); err != nil || row.ID != id {
			return err
		}
	}
	switch has, err := HasPacks(ctx, db, project); {
	case err != nil || !has:
		return err
	case row.Age < reuseAfter:
		return ErrNotYet
	}
	_, _, err = Remove(ctx, db, row)
	return err
}

// isUsed reports whether something of a project was accepted. While that may still happen it returns an error.
func isUsed(ctx context.Context, db *refdb.DB, project string) (bool, error) {
	for i, err := range db.Intents().All(ctx, driver.IntentFilter{Project: project}) {
		if err != nil {
			return false, err
		}
		return false, fmt.Errorf("a push of %s by %s is not settled", i.Ref, i.Owner)
	}
	return hasRefs(ctx, db, project)
}
