package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/globalrefdb/globalrefdb/site"
)

func (a *app) siteCommand() *cobra.Command {
	return group("site", "Guard this site's Git repositories",
		a.siteServeCommand(),
		a.siteStatusCommand(),
		a.siteEnableCommand(),
		a.siteDisableCommand(),
		a.siteSyncCommand(),
		a.siteCheckCommand(),
		a.siteRepairCommand(),
	)
}

// siteFlags are what the commands about a site share.
type siteFlags struct{ config string }

func (f *siteFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.config, "config", site.DefaultConfig, "the site's configuration `file`")
}

// load reads the configuration, and takes the site's name and database from it. --db and
// REFDB_URL are for where it names no database.
func (a *app) load(ctx context.Context, f siteFlags) (*site.Config, error) {
	c, err := site.LoadConfig(ctx, f.config)
	if err != nil {
		return nil, err
	}
	a.site = c.Site
	if c.Database != "" {
		a.url = c.Database
	}
	return c, nil
}
