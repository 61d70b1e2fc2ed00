// Package restore mends the objects of a site's repository from the database.
package restore

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"github.com/globalrefdb/globalrefdb/internal/gitrepo"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/site/clone"
	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/maintenance"
)

// Objects restores the objects of a repository that faults are about, as far as the database keeps them: see [gitrepo.Repo.Restore]. The database's copy of
// the project is unpacked beside it for that time, which needs as much room again. It begins with the hook's program at that path, and so takes no push.
func Objects(ctx context.Context, c *config.Config, db *refdb.DB, project string, repo *gitrepo.Repo, hook string, faults []gitrepo.Fault) (err error) {
	release, err := maintenance.Share(ctx, repo.Dir())
	if err != nil {
		return err
	}
	defer release()
	dir, err := os.MkdirTemp(filepath.Join(repo.Dir(), "refdb"), "restoring-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	copied, err := clone.Clone(ctx, c, db, clone.Options{Project: project, Path: filepath.Join(dir, "copy.git"), Hook: hook})
	if err != nil {
		return err
	}
	from, err := gitrepo.OpenDir(copied.Path)
	if err != nil {
		return err
	}
	return repo.Restore(ctx, from, faults)
}
