package clone

import (
	"context"
	"errors"
	"fmt"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/install"
	"github.com/globalrefdb/globalrefdb/site/maker"
)

// CloneAndGuard clones a project for the site o.Site to where its configuration looks for it. The repository is under guard when it appears
// there: no push gets in before. The daemon must run.
//
// One process at a time makes the repository of a project; a second process waits for the first, and then returns an error
// that wraps [config.ErrExists]. The next clone removes the leftovers of a process that was killed.
func CloneAndGuard(ctx context.Context, c *config.Config, db *refdb.DB, o Options) (rep Report, err error) {
	if o.Path, err = c.NewPath(o.Project); err != nil {
		return rep, err
	}
	if err := install.DaemonRuns(ctx, c); err != nil {
		return rep, err
	}
	m, err := maker.New(ctx, c, o.Path)
	if err != nil {
		return rep, err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	if o.Path, err = c.NewPath(o.Project); err != nil {
		return rep, err
	}
	rep, err = build(ctx, c, db, o, m, func(dir string) error { return install.Guard(ctx, c, dir, o.Hook) })
	if err != nil {
		return rep, err
	}
	if err := install.IsServed(ctx, c, o.Path); err != nil {
		return rep, fmt.Errorf("%s was cloned, and is under guard, but %w", o.Path, err)
	}
	install.Announce(ctx, c, o.Path)
	return rep, nil
}
