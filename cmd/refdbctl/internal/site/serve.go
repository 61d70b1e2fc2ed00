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
	"github.com/globalrefdb/globalrefdb/migrations"
	"github.com/globalrefdb/globalrefdb/refdb"
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
		Short: "Run the site daemon, which answers the repositories' hooks",
		Long: `Run the site daemon. The hooks of this site's repositories (see refdbctl site enable) ask the daemon about every push;
without the daemon pushes are refused. It logs on stderr, by default from level info on (--log-level).

While the database is down, the daemon refuses pushes with the reason; it resumes by itself afterwards. At its start
it resolves what a crash has left behind.

With --database-file - the daemon reads the database's address, which may contain a password, from standard input.
That can be a file that only root can read: no other process of the daemon's user can read the address from the
daemon.

On SIGTERM or SIGINT the daemon stops: it waits, for at most site.stopTimeout, for pushes that are moving refs. New pushes
wait for the next daemon. A second signal stops the daemon immediately. On SIGHUP it reloads its configuration and the database's
address; if a new one is invalid, the daemon logs that and keeps the old one. Each new connection to the database reads
the address, too: the password and the certificates may change while the daemon runs.`,
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
	if err := makeUndumpable(); err != nil {
		return err
	}
	c, err := a.Load(ctx, f)
	if err != nil {
		return err
	}
	if _, err := a.Dialect(); err != nil {
		return err
	}
	address := a.addressOf()
	key := []byte(a.Env("REFDB_DIGEST_KEY"))
	requests := metrics.New()
	known := journal.New(c.State)
	db, err := refdb.Open(address.open, refdb.Options{Site: c.Site, Logger: a.Logger(), DigestKey: key, Observe: requests.Observe, Journal: known})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close(), known.Close()) }()
	requests.Watch(db)
	daemon := site.New(c, db, site.Options{
		Logger: a.Logger(), DigestKey: key, Version: cli.Version(), Schema: int(migrations.Latest(migrations.SQLite)), Journal: known, Hook: FindHook(), Collectors: []prometheus.Collector{requests},
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
			a.reload(ctx, f, daemon, address)
		}
	}
}

// reload reloads the configuration and the database's address. An error is logged, and does not end
// the daemon.
func (a *App) reload(ctx context.Context, f Flags, daemon *site.Daemon, address *address) {
	defer site.NotifyReloading()()
	c, err := config.Load(ctx, string(f.Config))
	if err == nil {
		err = daemon.Reload(c)
	}
	if err != nil {
		a.Logger().ErrorContext(ctx, "the configuration was not reloaded, the old one stays", "error", err)
	}
	address.reread(ctx)
}

func (a *App) takeOverCommand() *cobra.Command {
	var f Flags
	var c cli.Confirmation
	var why cli.Reason
	cmd := &cobra.Command{
		Use:   "take-over",
		Short: "Serve the site with this state directory from now on",
		Long: `Serve the site from now on with the state directory that its configuration names (site.state), and with no other one.
The daemon asks for this command if the directory was copied or moved here, if the directory was set back, or is new
while another one has served the site, or if the database was restored from a backup.

Run it only if no other machine or container serves the site any more, or ever will: pending pushes are settled by the
repositories that are here. A daemon with another copy of the directory then refuses to start, and a daemon that lost
its lock refuses to continue. The command is refused while a daemon of the site runs, or until the lock of a daemon
that was killed is stale. Run it as root or as the daemon's user; as root, it switches to that user. Then start the
daemon.`,
		Example: `  refdbctl site take-over`,
		Args:    cobra.NoArgs,
		RunE: a.Body(func(ctx context.Context, _ *cobra.Command, _ []string) error {
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
				return c.Perform(ctx, a.Run, db, cli.Operation{
					Act:      cli.Act{Action: "site take-over", Detail: "site " + config.Site + " with " + config.State, Reason: why},
					Question: fmt.Sprintf("Serve site %s here, with %s, and nowhere else?", config.Site, config.State),
					Do:       func() (string, error) { return "", presence.TakeOver(ctx, config, db, a.Logger()) },
					Print: func(err error) error {
						if err != nil {
							return err
						}
						return a.PrintSummary(config.Site, "it is to be served with "+config.State+" from now on")
					},
				})
			})
		}),
	}
	f.Add(cmd)
	why.AddFlag(cmd)
	c.AddYes(cmd)
	return cmd
}
