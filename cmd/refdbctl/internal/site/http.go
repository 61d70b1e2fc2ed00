package site

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/exit"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/smarthttp"
)

func (a *App) httpCommand() *cobra.Command {
	var f Flags
	var at smarthttp.Listen
	var userHeader string
	var cacheMB int
	var stale time.Duration
	cmd := &cobra.Command{
		Use:   "http",
		Short: "Serve this site's repositories over HTTP",
		Long: `Serve the guarded repositories of this site over Git's smart HTTP, behind a web server that handles TLS and passwords.
The command runs git http-backend, and caches lists of refs.

A client that fetches or lists refs gets everything that any site has acknowledged before the request. If some of it
does not arrive here within a second, the response is 503, and says how far this site is behind. The site must follow:
see refdbctl site store.

If the database does not answer, the response is 503, too. With --stale-reads 10m a read is then served from the local
copy, with the header Refdb-Stale, if that copy was known to be complete less than 10 minutes ago. A copy that is known
to be behind is never served.

Without --user-header all pushes are refused. With it, the web server must replace that header in clients' requests,
and no other client may have access to the address: it must be a socket, or a loopback address.

With --database-file - the database's address is read from standard input. Each new connection to the database reads the
address again, and on SIGHUP the server logs whether a connection succeeds with it: the password and the certificates
may change while the server runs. On SIGTERM and SIGINT the server stops: it waits for requests in progress, at most
site.stopTimeout.`,
		Example: `  refdbctl site http --listen /run/refdb-http/socket --user-header X-Remote-User`,
		Args:    cobra.NoArgs,
		RunE: a.Body(func(ctx context.Context, cmd *cobra.Command, _ []string) error {
			if !cmd.Flags().Changed("log-level") && !cmd.Flags().Changed("verbose") {
				a.LogLevel = slog.LevelInfo
			}
			if err := checkHTTP(at, userHeader, cacheMB, stale); err != nil {
				return err
			}
			return a.serveHTTP(ctx, f, at, smarthttp.Options{UserHeader: userHeader, CacheBytes: int64(cacheMB) << 20, StaleReads: stale})
		}),
	}
	f.Add(cmd)
	cmd.Flags().StringVar(&at.Address, "listen", "127.0.0.1:9470", "a host and a port, or the absolute path of a `socket`")
	cmd.Flags().StringVar(&at.Metrics, "metrics", "", "serve metrics at this `address`, as for --listen (default: nowhere)")
	cmd.Flags().StringVar(&userHeader, "user-header", "", "the `header` in which the web server names the user (default: none, and all pushes are refused)")
	cmd.Flags().DurationVar(&stale, "stale-reads", 0, "maximum age of stale reads, which are served while the database does not answer (default: none are)")
	cmd.Flags().IntVar(&cacheMB, "cache", 256, "size in `MiB` of the cache of ref lists")
	return cmd
}

func checkHTTP(at smarthttp.Listen, userHeader string, cacheMB int, stale time.Duration) error {
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
	if stale < 0 {
		return exit.Usage(fmt.Sprintf("--stale-reads: %s is negative", stale))
	}
	if userHeader == "" || strings.HasPrefix(at.Address, "/") {
		return nil
	}
	host, _, err := net.SplitHostPort(at.Address)
	if ip, perr := netip.ParseAddr(host); err != nil || host != "localhost" && (perr != nil || !ip.IsLoopback()) {
		return exit.Usage(fmt.Sprintf("--user-header: every client that can reach %s could claim to be any user: listen at 127.0.0.1 or a socket", at.Address))
	}
	return nil
}

func (a *App) serveHTTP(ctx context.Context, f Flags, at smarthttp.Listen, o smarthttp.Options) (err error) {
	if err := makeUndumpable(); err != nil {
		return err
	}
	if o.Config, err = a.Load(ctx, f); err != nil {
		return err
	}
	if _, err := a.Dialect(); err != nil {
		return err
	}
	address := a.addressOf()
	o.Logger, o.DigestKey = a.Logger(), []byte(a.Env("REFDB_DIGEST_KEY"))
	o.DB, err = refdb.Open(address.open, refdb.Options{Site: o.Config.Site, Logger: o.Logger, DigestKey: o.DigestKey})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, o.DB.Close()) }()
	server, err := smarthttp.New(ctx, o)
	if err != nil {
		return err
	}
	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, syscall.SIGHUP)
	defer signal.Stop(hangup)
	ended := make(chan error, 1)
	go func() { ended <- server.Run(ctx, at, o.Config.StopTimeout) }()
	for {
		select {
		case err := <-ended:
			return err
		case <-hangup:
			address.reread(ctx)
		}
	}
}
