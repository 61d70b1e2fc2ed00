package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/conceal"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/site/config"
)

func (a *app) siteCommand() *cobra.Command {
	return group("site", "Guard this site's Git repositories",
		a.siteServeCommand(),
		a.siteHTTPCommand(),
		a.siteStatusCommand(),
		a.siteEnableCommand(),
		a.siteDisableCommand(),
		a.siteSyncCommand(),
		a.siteCheckCommand(),
		a.siteMaintainCommand(),
		a.siteStoreCommand(),
		a.siteCloneCommand(),
		a.siteWaitCommand(),
		a.siteRepairCommand(),
		a.siteTakeOverCommand(),
	)
}

// siteFlags are the flags that the commands about a site share.
type siteFlags struct {
	config       file
	databaseFile string
}

func (f *siteFlags) add(cmd *cobra.Command) {
	f.config = config.DefaultFile
	cmd.Flags().Var(&f.config, "config", "the site's configuration `file`")
	cmd.Flags().StringVar(&f.databaseFile, "database-file", "", "a `file` that holds the database's URL, - for standard input (default: site.databaseFile)")
}

// file is the value of a flag: a path, which Set makes absolute, because programs that get it may
// run in another directory.
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
func (a *app) load(ctx context.Context, f siteFlags) (*config.Config, error) {
	c, err := config.Load(ctx, string(f.config))
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

// withSiteDB is withDB for work that sends the database many requests by itself: the
// timeout holds for each request that reads rows.
func (a *app) withSiteDB(ctx context.Context, do func(*refdb.DB) error) (err error) {
	db, err := a.openForSite(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	return do(db)
}

func (a *app) openForSite(ctx context.Context) (*refdb.DB, error) {
	copied := *a
	copied.openDriver = func(ctx context.Context, url string) (refdb.Driver, error) {
		d, err := a.openDriver(ctx, url)
		if err != nil {
			return nil, err
		}
		return limitedDriver{d, a}, nil
	}
	return copied.open(ctx, refdb.Options{})
}

// limitedDriver gives the requests that read rows the timeout.
type limitedDriver struct {
	refdb.Driver
	app *app
}

// Unwrap gives access to roles that have no limit.
func (d limitedDriver) Unwrap() refdb.Driver { return d.Driver }

func (d limitedDriver) List(ctx context.Context, q refdb.RefQuery) (refdb.RefPage, error) {
	ctx, cancel := d.app.limited(ctx)
	defer cancel()
	return d.Driver.List(ctx, q)
}

func (d limitedDriver) Get(ctx context.Context, project string, refs []string) ([]refdb.Ref, error) {
	ctx, cancel := d.app.limited(ctx)
	defer cancel()
	return d.Driver.Get(ctx, project, refs)
}

func (d limitedDriver) States(ctx context.Context, project string, refs []string) ([]refdb.State, error) {
	ctx, cancel := d.app.limited(ctx)
	defer cancel()
	return d.Driver.States(ctx, project, refs)
}

func (d limitedDriver) Intents(ctx context.Context, q refdb.IntentQuery) (refdb.IntentPage, error) {
	ctx, cancel := d.app.limited(ctx)
	defer cancel()
	return d.Driver.Intents(ctx, q)
}

// becomeOwner makes this process, if it is root's, one of the user who owns path, a repository or the
// daemon's state: files that it writes there must belong to that user. It is called after the database's
// address is read, because maybe only root can read that.
func becomeOwner(path string) error {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	owner, ok := info.Sys().(*syscall.Stat_t)
	if !ok || os.Geteuid() != 0 || owner.Uid == 0 {
		return nil
	}
	uid, gid := int(owner.Uid), int(owner.Gid)
	home := "/"
	if u, err := user.LookupId(strconv.Itoa(uid)); err == nil {
		home = u.HomeDir
		if n, err := strconv.Atoi(u.Gid); err == nil {
			gid = n
		}
	}
	err = errors.Join(syscall.Setgroups([]int{gid}), syscall.Setgid(gid))
	if err == nil {
		err = syscall.Setuid(uid)
	}
	if err == nil {
		err = errors.Join(os.Setenv("HOME", home), conceal.Process())
	}
	if err != nil {
		return fmt.Errorf("becoming user %d, who owns %s: %w", uid, path, err)
	}
	return nil
}

// standardInput is given instead of a file's name.
const standardInput = "-"

// readAddress reads the database's URL from a file that holds nothing else.
func (a *app) readAddress(path string) (string, error) {
	var in io.Reader = a.in
	if path != standardInput {
		f, err := os.Open(path)
		if err != nil {
			return "", fmt.Errorf("reading the database's address: %w", err)
		}
		defer f.Close()
		in = f
	}
	text, err := io.ReadAll(io.LimitReader(in, 64<<10))
	if err != nil {
		return "", fmt.Errorf("reading the database's address from %s: %w", path, err)
	}
	address := strings.TrimSpace(string(text))
	if address == "" {
		return "", fmt.Errorf("the database's address: %s is empty: it should hold a URL", path)
	}
	return address, nil
}
