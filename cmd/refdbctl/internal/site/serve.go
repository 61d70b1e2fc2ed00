package site

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"

	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/cli"
	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/conceal"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/drivers"
	"github.com/globalrefdb/globalrefdb/refdb/metrics"
	"github.com/globalrefdb/globalrefdb/site"
	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/journal"
	"github.com/globalrefdb/globalrefdb/site/presence"
)

func (a *App) serveCommand() *cobra.Command {
	var f Flags
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
		RunE: a.Body(func(ctx context.Context, cmd *cobra.Command, _ []string) error {
			if !cmd.Flags().Changed("log-level") && !cmd.Flags().Changed("verbose") {
				a.LogLevel = slog.LevelInfo
			}
			return a.serve(ctx, f)
		}),
	}
	f.Add(cmd)
	return cmd
}

func (a *App) serve(ctx context.Context, f Flags) (err error) {
	if err := conceal.Process(); err != nil {
		return err
	}
	c, err := a.Load(ctx, f)
	if err != nil {
		return err
	}
	if _, err := a.Dialect(); err != nil {
		return err
	}
	key := []byte(a.Env("REFDB_DIGEST_KEY"))
	open := func(ctx context.Context) (refdb.Driver, error) { return cli.OpenURL(ctx, a.Run, a.OpenDriver) }
	driver := drivers.OpenLazy(open, a.Logger())
	requests := metrics.New()
	known := journal.New(c.State)
	db, err := refdb.New(driver, refdb.Options{Site: c.Site, Logger: a.Logger(), DigestKey: key, Observe: requests.Observe, Journal: known})
	if err != nil {
		return errors.Join(err, driver.Close())
	}
	defer func() { err = errors.Join(err, db.Close(), known.Close()) }()
	requests.Watch(db)
	daemon := site.New(c, db, site.Options{
		Logger: a.Logger(), DigestKey: key, Version: cli.Version(), Journal: known, Hook: FindHook(), Collectors: []prometheus.Collector{requests},
	})

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
func (a *App) reload(ctx context.Context, f Flags, daemon *site.Daemon) {
	defer site.NotifyReloading()()
	c, err := config.Load(ctx, string(f.Config))
	if err == nil {
		err = daemon.Reload(c)
	}
	if err != nil {
		a.Logger().ErrorContext(ctx, "the configuration was not reloaded, the old one stays", "error", err)
	}
}

func (a *App) takeOverCommand() *cobra.Command {
	var f Flags
	var yes bool
	var why cli.Reason
	cmd := &cobra.Command{
		Use:   "take-over",
		Short: "Let the site be served with this state directory from now on",
		Long: `Let the site be served with the state directory that its configuration names (site.state), and with no
other one, from now on. The daemon asks for that if the directory was copied or moved here, if it was set
back or is new while another one has served the site, or if the database was restored from a backup.

Say so only if no other machine or container serves the site any more, and will not: pushes that are pending
are settled by the repositories that are here. A daemon with another copy of the directory then refuses to
start, and one that lost its lock refuses to go on. It is refused while a daemon of the site runs, or
until the lock of one that was killed is stale. Run it as root, as which it becomes the daemon's user, or as that user;
then start the daemon.`,
		Example: `  refdbctl site take-over`,
		Args:    cobra.NoArgs,
		RunE: a.Body(func(ctx context.Context, _ *cobra.Command, _ []string) error {
			c := cli.Confirmation{Yes: yes}
			if err := c.Check(a.Run); err != nil {
				return err
			}
			config, err := a.Load(ctx, f)
			if err == nil {
				err = BecomeOwner(config.State)
			}
			if err != nil {
				return err
			}
			return a.WithDB(ctx, refdb.Options{}, func(db *refdb.DB) error {
				if err := a.RequireRights(ctx, db, "site take-over"); err != nil {
					return err
				}
				question := fmt.Sprintf("Serve site %s here, with %s, and nowhere else?", config.Site, config.State)
				if err := c.Confirm(ctx, a.Run, question); err != nil {
					return err
				}
				what := cli.Act{Action: "site take-over", Detail: "site " + config.Site + " with " + config.State, Reason: why}
				err := a.Audited(ctx, db, what, func() (string, error) {
					return "", presence.TakeOver(ctx, config, db, a.Logger())
				})
				if err != nil {
					return err
				}
				return a.PrintSummary(config.Site, "it is to be served with "+config.State+" from now on")
			})
		}),
	}
	f.Add(cmd)
	why.AddFlag(cmd)
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "don't ask")
	return cmd
}
