package compare

import (
	"context"
	"time"

	"github.com/globalrefdb/globalrefdb/internal/gitrepo"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/site/config"
)

// A Lag is how far a repository is behind the database.
type Lag struct {
	Refs int // how many have another value here than in the database, while nobody moves them
	// Since is when the database got its value of the first of them, by this machine's clock; zero if that is unknown.
	Since time.Time
}

// LagOf compares a repository with the database.
func LagOf(ctx context.Context, c *config.Config, db *refdb.DB, r config.Repository) (l Lag, err error) {
	repo, err := gitrepo.OpenDir(r.Path)
	if err != nil {
		return l, err
	}
	behind := map[string]bool{}
	var differ []string
	second := func() error {
		if len(differ) == 0 {
			return nil
		}
		now, err := LookAgain(ctx, db, repo, r.Project, differ)
		for _, p := range now {
			// What is locked is on its way.
			if p.Lock == nil && !p.Agree() && p.Global != refdb.Unknown {
				behind[p.Ref] = true
			}
		}
		differ = differ[:0]
		return err
	}
	for p, err := range Pairs(ctx, c, db, repo, r.Project, func(string) {}) {
		if err != nil {
			return l, err
		}
		if p.Agree() || p.Global == refdb.Unknown || driver.CheckKey(r.Project, p.Ref) != nil {
			continue
		}
		if differ = append(differ, p.Ref); len(differ) == Chunk {
			if err := second(); err != nil {
				return l, err
			}
		}
	}
	if err := second(); err != nil || len(behind) == 0 {
		return l, err
	}
	l.Refs = len(behind)
	l.Since, err = firstWritten(ctx, db, r.Project, behind)
	return l, err
}

// firstWritten returns when the database got the oldest of its values of refs; zero if no row has a time.
func firstWritten(ctx context.Context, db *refdb.DB, project string, refs map[string]bool) (since time.Time, err error) {
	now, err := db.Now(ctx)
	if err != nil {
		return since, err
	}
	here := time.Now()
	for ref, err := range db.Refs(ctx, project, "refs/", refdb.IncludeDeleted()) {
		if err != nil {
			return since, err
		}
		if !refs[ref.Name] || ref.Time.IsZero() {
			continue
		}
		if at := here.Add(-max(0, now.Sub(ref.Time))); since.IsZero() || at.Before(since) {
			since = at
		}
	}
	return since, nil
}
