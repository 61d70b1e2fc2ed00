package site

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"strings"

	"github.com/spf13/cobra"

	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/cli"
	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/conceal"
	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/exit"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/drivers"
	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/smarthttp"
)

func (a *App) httpCommand() *cobra.Command {
	var f Flags
	var at smarthttp.Listen
	var userHeader string
	var cacheMB int
	cmd := &cobra.Command{
		Use:   "http",
		Short: "Serve this site's repositories over HTTP, never older than what was acknowledged",
		Long: `Serve the guarded repositories of this site over Git's smart HTTP, for a web server in front that knows TLS and
passwords. It runs git http-backend, and caches lists of refs.

Whoever fetches or lists refs gets all that was acknowledged at any site before. If that does not come here within a second, the
answer is 503, with how far this site is behind. The site must follow: see refdbctl site store.

Without --user-header nobody may push. With it, the web server in front must replace what clients send in that
header, and nobody else may reach the address: it has to be a socket, or of this machine.

With --database-file - it reads the database's address from standard input. SIGTERM and SIGINT stop it: it waits for the requests
under way, at most site.stopTimeout.`,
		Example: `  refdbctl site http --listen /run/refdb-http/socket --user-header X-Remote-User`,
		Args:    cobra.NoArgs,
		RunE: a.Body(func(ctx context.Context, cmd *cobra.Command, _ []string) error {
			if !cmd.Flags().Changed("log-level") && !cmd.Flags().Changed("verbose") {
				a.LogLevel = slog.LevelInfo
			}
			if err := checkListen(at, userHeader, cacheMB); err != nil {
				return err
			}
			return a.serveHTTP(ctx, f, at, smarthttp.Options{UserHeader: userHeader, CacheBytes: int64(cacheMB) << 20})
		}),
	}
	f.Add(cmd)
	cmd.Flags().StringVar(&at.Address, "listen", "127.0.0.1:9470", "a host and a port, or the absolute path of a `socket`")
	cmd.Flags().StringVar(&at.Metrics, "metrics", "", "where to serve metrics: an `address` as for --listen (default: nowhere)")
	cmd.Flags().StringVar(&userHeader, "user-header", "", "the `header` in which the web server says who asks (default: none, and nobody pushes)")
	cmd.Flags().IntVar(&cacheMB, "cache", 256, "how many `MiB` of lists of refs to keep")
	return cmd
}

func checkListen(at smarthttp.Listen, userHeader string, cacheMB int) error {
	if err := config.CheckAddress(at.Address); err != nil {
		return exit.Usage("--listen: " + err.Error())
	}
	if at.Metrics != "" {
		if err := config.CheckAddress(at.Metrics); err != nil {
			return exit.Usage("--metrics: " + err.Error())
		}
	}
	if cacheMB < 1 {
		return exit.Usage(fmt.Sprintf("--cache: %d MiB are too few", cacheMB))
	}
	if userHeader == "" || strings.HasPrefix(at.Address, "/") {
		return nil
	}
	host, _, err := net.SplitHostPort(at.Address)
	if ip, perr := netip.ParseAddr(host); err != nil || host != "localhost" && (perr != nil || !ip.IsLoopback()) {
		return exit.Usage(fmt.Sprintf("--user-header: whoever reaches %s could claim to be anybody: listen at 127.0.0.1 or a socket", at.Address))
	}
	return nil
}

func (a *App) serveHTTP(ctx context.Context, f Flags, at smarthttp.Listen, o smarthttp.Options) (err error) {
	if err := conceal.Process(); err != nil {
		return err
	}
	if o.Config, err = a.Load(ctx, f); err != nil {
		return err
	}
	if _, err := a.Dialect(); err != nil {
		return err
	}
	o.Logger, o.DigestKey = a.Logger(), []byte(a.Env("REFDB_DIGEST_KEY"))
	open := func(ctx context.Context) (refdb.Driver, error) { return cli.OpenURL(ctx, a.Run, a.OpenDriver) }
	driver := drivers.OpenLazy(open, o.Logger)
	o.DB, err = refdb.New(driver, refdb.Options{Site: o.Config.Site, Logger: o.Logger, DigestKey: o.DigestKey})
	if err != nil {
		return errors.Join(err, driver.Close())
	}
	defer func() { err = errors.Join(err, o.DB.Close()) }()
	server, err := smarthttp.New(ctx, o)
	if err != nil {
		return err
	}
	return server.Run(ctx, at, o.Config.StopTimeout)
}
