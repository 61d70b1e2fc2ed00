// Package site has the commands about a site's repositories and its daemon: refdbctl site.
package site

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/cli"
	"github.com/globalrefdb/globalrefdb/internal/addressfile"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/site/config"
)

// App has the commands as methods.
type App struct {
	*cli.Run
	addressFile string // that Load read the database's URL from, or ""
}

// Command returns the group of commands.
func Command(r *cli.Run) *cobra.Command {
	a := &App{Run: r}
	return cli.Group("site", "Guard this site's Git repositories",
		a.serveCommand(),
		a.httpCommand(),
		a.statusCommand(),
		a.enableCommand(),
		a.disableCommand(),
		a.syncCommand(),
		a.checkCommand(),
		a.maintainCommand(),
		a.storeCommand(),
		a.cloneCommand(),
		a.waitCommand(),
		a.repairCommand(),
		a.takeOverCommand(),
	)
}

// Flags are the flags that the commands about a site share.
type Flags struct {
	Config       file
	databaseFile string
}

// Add adds the flags to a command.
func (f *Flags) Add(cmd *cobra.Command) {
	f.Config = config.DefaultFile
	cmd.Flags().Var(&f.Config, "config", "the site's configuration `file`")
	cmd.Flags().StringVar(&f.databaseFile, "database-file", "", "`file` with the database's URL, - for standard input (default: site.databaseFile)")
}

// file is the value of a flag: a path, which Set makes absolute, because other programs may use it
// in another directory.
type file string

func (f *file) String() string { return string(*f) }

func (f *file) Type() string { return "file" }

func (f *file) Set(path string) error {
	absolute, err := filepath.Abs(path)
	*f = file(absolute)
	return err
}

// Load reads the configuration, and takes the site's name from it. The database's URL comes from
// the first of --database-file, site.database, --db or REFDB_URL, site.databaseFile.
func (a *App) Load(ctx context.Context, f Flags) (*config.Config, error) {
	c, err := config.Load(ctx, string(f.Config))
	if err != nil {
		return nil, err
	}
	a.Site = c.Site
	switch {
	case f.databaseFile != "":
		a.addressFile = f.databaseFile
	case c.Database != "":
		a.URL = c.Database
	case a.URL == "" && c.DatabaseFile != "":
		a.addressFile = c.DatabaseFile
	}
	if a.addressFile != "" {
		a.URL, err = addressfile.Read(a.addressFile, a.In)
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("%w, as docs/GIT.md shows", err)
	}
	return c, err
}

// WithSiteDB is WithDB for work that sends many requests to the database: the timeout applies to
// each request that reads rows.
func (a *App) WithSiteDB(ctx context.Context, do func(*refdb.DB) error) (err error) {
	db, err := a.openForSite(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	return do(db)
}

func (a *App) openForSite(ctx context.Context) (*refdb.DB, error) {
	copied := *a.Run
	copied.OpenDriver = func(ctx context.Context, url string) (refdb.Driver, error) {
		d, err := a.OpenDriver(ctx, url)
		if err != nil {
			return nil, err
		}
		return limitedDriver{d, a}, nil
	}
	return copied.Open(ctx, refdb.Options{})
}

// limitedDriver applies the timeout to each request that reads rows.
type limitedDriver struct {
	refdb.Driver
	app *App
}

// Unwrap gives access to roles without the timeout.
func (d limitedDriver) Unwrap() refdb.Driver { return d.Driver }

func (d limitedDriver) List(ctx context.Context, q driver.RefQuery) (driver.RefPage, error) {
	ctx, cancel := d.app.Limited(ctx)
	defer cancel()
	return d.Driver.List(ctx, q)
}

func (d limitedDriver) Get(ctx context.Context, project string, refs []string) ([]refdb.Ref, error) {
	ctx, cancel := d.app.Limited(ctx)
	defer cancel()
	return d.Driver.Get(ctx, project, refs)
}

func (d limitedDriver) States(ctx context.Context, project string, refs []string) ([]driver.State, error) {
	ctx, cancel := d.app.Limited(ctx)
	defer cancel()
	return d.Driver.States(ctx, project, refs)
}

func (d limitedDriver) Intents(ctx context.Context, q driver.IntentQuery) (driver.IntentPage, error) {
	ctx, cancel := d.app.Limited(ctx)
	defer cancel()
	return d.Driver.Intents(ctx, q)
}

// BecomeOwner switches this process, if it is root's, to the user who owns path, a repository or
// the daemon's state: files that it writes there must belong to that user. It is called after the
// database's address was read, which may be readable only by root.
func BecomeOwner(path string) error {
	o, another, err := otherOwner(path)
	if err != nil || !another {
		return err
	}
	err = errors.Join(syscall.Setgroups([]int{o.gid}), syscall.Setgid(o.gid))
	if err == nil {
		err = syscall.Setuid(o.uid)
	}
	if err == nil {
		err = errors.Join(os.Setenv("HOME", o.home), makeUndumpable())
	}
	if err != nil {
		return fmt.Errorf("becoming user %d, who owns %s: %w", o.uid, path, err)
	}
	return nil
}

// owner is a user with its group and home.
type owner struct {
	uid, gid int
	home     string
}

// otherOwner returns the owner of path. It reports false if this process need not switch to that
// user: it is not root's, or path belongs to root or does not exist.
func otherOwner(path string) (owner, bool, error) {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return owner{}, false, nil
	}
	if err != nil {
		return owner{}, false, err
	}
	s, ok := info.Sys().(*syscall.Stat_t)
	if !ok || os.Geteuid() != 0 || s.Uid == 0 {
		return owner{}, false, nil
	}
	o := owner{int(s.Uid), int(s.Gid), "/"}
	if u, err := user.LookupId(strconv.Itoa(o.uid)); err == nil {
		o.home = u.HomeDir
		if n, err := strconv.Atoi(u.Gid); err == nil {
			o.gid = n
		}
	}
	return o, true, nil
}
