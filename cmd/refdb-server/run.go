package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"runtime/debug"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"

	"github.com/globalrefdb/globalrefdb/internal/redact"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/metrics"
	"github.com/globalrefdb/globalrefdb/service/issuers"
	"github.com/globalrefdb/globalrefdb/service/server"
)

// How long the server takes to stop, unless the operator says otherwise.
const (
	stopDelay   = 5 * time.Second
	stopTimeout = 30 * time.Second
)

// flags are what an operator configures.
type flags struct {
	listen   server.Listen
	database string // a file, or - for standard input
	site     string
	issuers  string // a file
	page     string // the prefix of its paths
	user     string // the header in which a proxy names visitors
	limits   server.Limits
	stop     server.Stop
	level    slog.Level
}

// run executes a command line until ctx ends. Listening, unless nil, is called with the server's
// address.
func run(ctx context.Context, args []string, env func(string) string, input io.Reader, messages io.Writer, listening func(net.Addr)) error {
	f := flags{limits: server.DefaultLimits, level: slog.LevelInfo}
	cmd := &cobra.Command{
		Use:   "refdb-server",
		Short: "Serve a global ref database over HTTP",
		Long: `Serve a global ref database over HTTP, to programs that have a token, a JWT or a certificate: gRPC, and POST with JSON.
docs/SERVICE.md shows each call. refdbctl token and refdbctl access manage who may do what.

With --page it also serves a page for people, who see there what their rules let them read.

The database's address, as for refdbctl, is in the file that --database-file names, or in REFDB_URL. The file is read
again for new connections, so that the password may change.

Without a certificate the server listens only at loopback addresses and sockets. The certificate and the authorities of
clients are read again when their files change. On SIGTERM and SIGINT the server reports that it is not ready, goes on
serving for --stop-delay so that balancers notice, then ends waits, and stops when the calls in progress have ended. A
second signal ends it at once.

Environment: REFDB_URL is the database's address; REFDB_DIGEST_KEY is the key of the digests that replace names in logs.`,
		Example:       `  refdb-server --database-file /etc/refdb/database --listen :9480 --certificate cert.pem --private-key key.pem`,
		Version:       version(),
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.serve(cmd.Context(), env, input, messages, listening)
		},
	}
	o := cmd.Flags()
	o.StringVar(&f.listen.Address, "listen", "127.0.0.1:9480", "a host and a port, or the absolute path of a `socket`")
	o.StringVar(&f.listen.CertificateFile, "certificate", "", "the `file` of the certificate, in PEM form, with the certificates that lead to its root")
	o.StringVar(&f.listen.PrivateKey, "private-key", "", "the `file` of the certificate's private key")
	o.StringVar(&f.listen.ClientCA, "client-ca", "", "the `file` of the authorities, in PEM form, whose certificates identify clients (default: no certificate does)")
	o.StringVar(&f.issuers, "issuers", "", "the `file` that names the OIDC issuers whose JWTs identify clients (default: no JWT does)")
	o.StringVar(&f.page, "page", "", "serve a page for people, which only reads, below this `path`, such as /ui (default: no page)")
	o.StringVar(&f.user, "user-header", "", "the `header` in which a proxy names the visitors of the page; only at a socket, and only the proxy may use that (default: visitors log in with a token)")
	o.StringVar(&f.database, "database-file", "", "the `file` with the database's address, - for standard input (default: REFDB_URL)")
	o.StringVar(&f.site, "site", env("REFDB_SITE"), "the `name` of this server in the history (default: REFDB_SITE or the host's name)")
	o.IntVar(&f.limits.Calls, "max-calls", f.limits.Calls, "how many calls are answered at a time; more are refused")
	o.IntVar(&f.limits.CallsPerSubject, "max-calls-per-subject", f.limits.CallsPerSubject, "how many calls of one subject are answered at a time, including those that wait for a lock")
	o.IntVar(&f.limits.Connections, "max-connections", f.limits.Connections, "how many connections are open at a time; more wait")
	o.IntVar(&f.limits.Requests, "max-requests", f.limits.Requests, "how many calls have requests at the database at a time, at least 4; more wait, and those of one subject while it has a quarter (default: the size of the pool of connections, 16 without one)")
	o.IntVar(&f.limits.Streams, "max-streams", f.limits.Streams, "how many streams of changes are open at a time; more are refused")
	o.IntVar(&f.limits.StreamsPerSubject, "max-streams-per-subject", f.limits.StreamsPerSubject, "how many streams of one subject are open at a time")
	o.DurationVar(&f.stop.Delay, "stop-delay", stopDelay, "how long to go on serving, but not be ready, when the server is told to stop")
	o.DurationVar(&f.stop.Limit, "stop-timeout", stopTimeout, "how long to wait for calls in progress after that")
	o.Func("log-level", "log messages of this `level` and above: debug, info, warn or error (default: info)", func(s string) error { return f.level.UnmarshalText([]byte(s)) })
	cmd.SetArgs(append([]string{}, args...)) // nil would mean os.Args
	cmd.SetErr(messages)
	return cmd.ExecuteContext(ctx)
}

func version() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(devel)"
}

func (f flags) serve(ctx context.Context, env func(string) string, input io.Reader, messages io.Writer, listening func(net.Addr)) (err error) {
	if err := f.listen.Check(); err != nil {
		return err
	}
	if err := f.stop.Check(); err != nil {
		return err
	}
	if listening == nil {
		listening = func(net.Addr) {}
	}
	d := &address{file: f.database, input: input, fallback: env("REFDB_URL")}
	messages = &redact.Writer{To: messages, URLs: d.known}
	defer func() {
		if err != nil {
			err = errors.New(redact.Text(err.Error(), d.known()...))
		}
	}()
	if _, err := d.read(ctx); err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(messages, &slog.HandlerOptions{Level: f.level}))
	var accepted *issuers.Issuers
	if f.issuers != "" {
		configs, err := issuers.Read(f.issuers)
		if err != nil {
			return err
		}
		accepted = issuers.New(configs, log)
	}
	observed := metrics.New()
	db, err := refdb.Open(d.open, refdb.Options{Site: f.site, Logger: log, DigestKey: []byte(env("REFDB_DIGEST_KEY")), Observe: observed.Observe})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	observed.Watch(db)
	// Whatever the calls do, the rules can still be read.
	rules, err := refdb.Open(d.openForRules, refdb.Options{Site: f.site, Logger: log, DigestKey: []byte(env("REFDB_DIGEST_KEY"))})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rules.Close()) }()
	s, err := server.New(server.Options{DB: db, Rules: rules, Logger: log, Limits: f.limits, Issuers: accepted, Collectors: []prometheus.Collector{observed},
		Page: f.page, UserHeader: f.user})
	if err != nil {
		return err
	}
	return s.Run(ctx, f.listen, f.stop, listening)
}
