package compare

import (
	"context"

	"github.com/globalrefdb/globalrefdb/internal/gitrepo"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/site/config"
)

// Differing returns how many guarded refs of a repository have another value than in the database, or are in one of them only, while nobody
// moves them.
func Differing(ctx context.Context, c *config.Config, db *refdb.DB, r config.Repository) (refs int, err error) {
	repo, err := gitrepo.OpenDir(r.Path)
	if err != nil {
		return 0, err
	}
	var differ []string
	second := func() error {
		now, err := LookAgain(ctx, db, repo, r.Project, differ)
		for _, p := range now {
			if p.Lock == nil && !p.Agree() {
				refs++
			}
		}
		differ = differ[:0]
		return err
	}
	for p, err := range Pairs(ctx, c, db, repo, r.Project, func(string) {}) {
		if err != nil {
			return refs, err
		}
		if p.Agree() || driver.CheckKey(r.Project, p.Ref) != nil {
			continue
		}
		if differ = append(differ, p.Ref); len(differ) == Chunk {
			if err := second(); err != nil {
				return refs, err
			}
		}
	}
	if len(differ) > 0 {
		err = second()
	}
	return refs, err
}
