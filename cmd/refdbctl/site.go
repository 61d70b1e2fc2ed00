package main

import (
	"context"
	"path/filepath"

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
type siteFlags struct{ config file }

func (f *siteFlags) add(cmd *cobra.Command) {
	f.config = site.DefaultConfig
	cmd.Flags().Var(&f.config, "config", "the site's configuration `file`")
}

// file is a flag's value: a path, which holds wherever a program that gets it is run.
type file string

func (f *file) String() string { return string(*f) }

func (f *file) Type() string { return "file" }

func (f *file) Set(path string) error {
	absolute, err := filepath.Abs(path)
	*f = file(absolute)
	return err
}

// load reads the configuration, and takes the site's name and database from it. --db and
// REFDB_URL are for where it names no database.
func (a *app) load(ctx context.Context, f siteFlags) (*site.Config, error) {
	c, err := site.LoadConfig(ctx, string(f.config))
	if err != nil {
		return nil, err
	}
	a.site = c.Site
	if c.Database != "" {
		a.url = c.Database
	}
	return c, nil
}
