package projects

import (
	"context"
	"fmt"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/site/config"
)

// WithRules returns the configuration with the rules that the database has for a project, as the
// daemon uses them. With a nil db, or without rules there, it returns c itself.
func WithRules(ctx context.Context, c *config.Config, db *refdb.DB, project string) (*config.Config, error) {
	if db == nil {
		return c, nil
	}
	row, ok, err := db.Projects().Get(ctx, project)
	switch {
	case err != nil:
		return nil, err
	case !ok:
		return c, nil
	}
	return WithRulesOf(c, row)
}

// WithRulesOf returns the configuration with the rules of p.
func WithRulesOf(c *config.Config, p driver.Project) (*config.Config, error) {
	rules, err := config.ParseRules(p.Rules)
	if err != nil {
		return nil, fmt.Errorf("project %s: %w", p.Project, err)
	}
	return c.Under(rules), nil
}

// Rows returns the rows of the repositories' projects. For several repositories it reads all
// projects in one request: there are few others.
func Rows(ctx context.Context, db *refdb.DB, repositories []config.Repository) (map[string]driver.Project, error) {
	rows := map[string]driver.Project{}
	var all []driver.Project
	var err error
	if len(repositories) == 1 {
		var p driver.Project
		var ok bool
		if p, ok, err = db.Projects().Get(ctx, repositories[0].Project); ok {
			all = append(all, p)
		}
	} else {
		all, err = db.Projects().After(ctx, 0)
	}
	for _, p := range all {
		rows[p.Project] = p
	}
	return rows, err
}
