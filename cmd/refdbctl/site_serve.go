package main

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/drivers"
	"github.com/globalrefdb/globalrefdb/site"
)

func (a *app) siteServeCommand() *cobra.Command {
	var f siteFlags
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run the site daemon, which the repositories' hooks ask",
		Long: `Run the site daemon. The hooks of this site's repositories (see refdbctl site enable) ask it about every
push; without it pushes are refused. It logs on stderr, from --log-level info on.

While the database is down it refuses pushes with the reason, and goes on by itself afterwards. What a
crash left behind it resolves when it starts.

With --database-file - it reads the database's address, with a password in it maybe, from standard
input: that can be a file which only root can read. No other process of its user can read it off the daemon.

SIGTERM and SIGINT stop it: it takes no new push, and waits for those under way, at most
site.stopTimeout; a second signal stops it at once. SIGHUP makes it read its configuration again; if
that is wrong, it goes on with the old one and says so.`,
		Example: `  refdbctl site serve --config /etc/refdb/site.config`,
		Args:    cobra.NoArgs,
		RunE: a.body(func(ctx context.Context, cmd *cobra.Command, _ []string) error {
			if !cmd.Flags().Changed("log-level") && !cmd.Flags().Changed("verbose") {
				a.logLevel = slog.LevelInfo
			}
			return a.serve(ctx, f)
		}),
	}
	f.add(cmd)
	return cmd
}

func (a *app) serve(ctx context.Context, f siteFlags) (err error) {
	if err := conceal(); err != nil {
		return err
	}
	c, err := a.load(ctx, f)
	if err != nil {
		return err
	}
	if _, err := a.dialect(); err != nil {
		return err
	}
	key := []byte(a.env("REFDB_DIGEST_KEY"))
	open := func(ctx context.Context) (refdb.Driver, error) { return reach(ctx, a, a.openDriver) }
	driver := drivers.OpenLazy(open, a.logger())
	db, err := refdb.New(driver, refdb.Options{Site: c.Site, Logger: a.logger(), DigestKey: key})
	if err != nil {
		return errors.Join(err, driver.Close())
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	daemon := site.New(c, db, site.Options{Logger: a.logger(), DigestKey: key, Version: version()})

	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, syscall.SIGHUP)
	defer signal.Stop(hangup)
	ended := make(chan error, 1)
	go func() { ended <- daemon.Run(ctx) }()
	for {
		select {
		case err := <-ended:
			return err
		case <-hangup:
			a.reload(ctx, f, daemon)
		}
	}
}

// reload never ends the daemon.
func (a *app) reload(ctx context.Context, f siteFlags, daemon *site.Daemon) {
	defer site.NotifyReloading()()
	c, err := site.LoadConfig(ctx, string(f.config))
	if err == nil {
		err = daemon.Reload(c)
	}
	if err != nil {
		a.logger().ErrorContext(ctx, "the configuration was not reloaded, the old one stays", "error", err)
	}
}
