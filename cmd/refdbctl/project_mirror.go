package main

import (
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/cli"
	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/exit"
	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/output"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/presence"
	"github.com/globalrefdb/globalrefdb/site/projects"
)

// mirroring holds the flags of "project set" that declare a mirror.
type mirroring struct {
	at   string // the site
	none bool
}

func (m *mirroring) addFlags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&m.at, "mirror-at", "", "the project is a mirror that this `site` alone fetches")
	cmd.Flags().BoolVar(&m.none, "no-mirror", false, "the project is no longer a mirror")
	for _, other := range []string{"ref", "also-ref", "skip-ref", "mode", "without"} {
		cmd.MarkFlagsMutuallyExclusive("mirror-at", "no-mirror", other)
	}
}

// setMirror declares a project a mirror that a site fetches, or no mirror if site is "".
func (a *app) setMirror(ctx context.Context, db *refdb.DB, project, site string, why cli.Reason) error {
	if err := a.RequireRights(ctx, db, "project set --mirror-at"); err != nil {
		return err
	}
	p, err := a.project(ctx, db, project)
	if err != nil {
		return err
	}
	before, err := a.mirror(ctx, db, p)
	switch {
	case err != nil:
		return err
	case p.Mode == config.Removed:
		return wasRemoved(p)
	case before == site:
		a.Note("%s already has this declaration", output.Escape(p.Project))
		return a.printProject(ctx, db, p)
	}
	if site != "" {
		if err := a.requireSite(ctx, db, site); err != nil {
			return err
		}
	}
	what := cli.Act{Action: "project set", Project: p.Project, Reason: why, Detail: "from " + describeMirror(before) + " to " + describeMirror(site)}
	err = a.Audited(ctx, db, what, func() (string, error) {
		limited, cancel := a.Limited(ctx)
		defer cancel()
		return "", projects.SetMirror(limited, db, p, before, site)
	})
	if err != nil {
		return err
	}
	return a.printProject(ctx, db, p)
}

// mirror returns the site that fetches a mirrored project.
func (a *app) mirror(ctx context.Context, db *refdb.DB, p driver.Project) (string, error) {
	limited, cancel := a.Limited(ctx)
	defer cancel()
	return projects.Mirror(limited, db, p)
}

// requireSite returns an error if the database does not know a site.
func (a *app) requireSite(ctx context.Context, db *refdb.DB, site string) error {
	limited, cancel := a.Limited(ctx)
	defer cancel()
	known, err := presence.Sites(limited, db)
	if err == nil && !slices.Contains(known, site) {
		err = exit.With(exit.Failed, fmt.Sprintf("no site %q is known: see refdbctl sites list", site))
	}
	return err
}

func describeMirror(site string) string {
	if site == "" {
		return "no mirror"
	}
	return "a mirror at " + site
}

// wasRemoved returns the error for changing a removed project.
func wasRemoved(p driver.Project) error {
	return exit.With(exit.Failed, "the project "+p.Project+" was removed: to restore it, run refdbctl site enable --new at a site that has its repository")
}
