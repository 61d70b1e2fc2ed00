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
type siteFlags struct {
	config       file
	databaseFile string
}

func (f *siteFlags) add(cmd *cobra.Command) {
	f.config = site.DefaultConfig
	cmd.Flags().Var(&f.config, "config", "the site's configuration `file`")
	cmd.Flags().StringVar(&f.databaseFile, "database-file", "", "a `file` that holds the database's URL, - for standard input (default: site.databaseFile)")
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

// load reads the configuration, and takes the site's name and database from it, unless
// --database-file has that. --db and REFDB_URL are for where it names no database; a file
// that it names is for where those don't either.
func (a *app) load(ctx context.Context, f siteFlags) (*site.Config, error) {
	c, err := site.LoadConfig(ctx, string(f.config))
	if err != nil {
		return nil, err
	}
	a.site = c.Site
	switch {
	case f.databaseFile != "":
		a.url, err = a.readAddress(f.databaseFile)
	case c.Database != "":
		a.url = c.Database
	case a.url == "" && c.DatabaseFile != "":
		a.url, err = a.readAddress(c.DatabaseFile)
	}
	return c, err
}
