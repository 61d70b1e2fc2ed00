package testserver

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/jackc/pgx/v5"
)

// A PgBouncer is a PgBouncer of our own, in transaction mode.
type PgBouncer struct {
	*Process
	URL string // of the database behind it
}

// StartPgBouncer starts one in front of the PostgreSQL database at address.
func StartPgBouncer(ctx context.Context, address string) (*PgBouncer, error) {
	program, err := pgbouncerPath()
	if err != nil {
		return nil, err
	}
	to, err := pgx.ParseConfig(address)
	if err != nil {
		return nil, err
	}
	as, err := unprivileged()
	if err != nil {
		return nil, err
	}
	dir, err := newDirectory("")
	if err != nil {
		return nil, err
	}
	config, err := configurePgBouncer(dir, as, to)
	if err != nil {
		dir.removeTemporary()
		return nil, err
	}
	p, err := command{argv: []string{program, config}, dir: dir, signal: "TERM", as: as}.start()
	if err != nil {
		return nil, err
	}
	through := url.URL{Scheme: "postgres", Path: "/" + to.Database,
		RawQuery: url.Values{"host": {dir.path}, "port": {"6432"}, "user": {to.User}}.Encode()}
	err = p.until(ctx, func(ctx context.Context) error {
		c, err := pgx.Connect(ctx, through.String())
		if err != nil {
			return err
		}
		return c.Close(ctx)
	})
	if err != nil {
		_ = p.Stop()
		return nil, err
	}
	return &PgBouncer{p, through.String()}, nil
}

// configurePgBouncer writes the configuration and returns its path.
func configurePgBouncer(dir directory, as *syscall.Credential, to *pgx.ConnConfig) (string, error) {
	// Authentication "any" logs every client in as the user of the line in [databases].
	text := fmt.Sprintf(`[databases]
* = %s
[pgbouncer]
listen_addr =
unix_socket_dir = %s
auth_type = any
pool_mode = transaction
max_client_conn = 300
default_pool_size = 20
ignore_startup_parameters = extra_float_digits
`, connection(to), dir.path)
	config := filepath.Join(dir.path, "pgbouncer.ini")
	// It may hold a password.
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		return "", err
	}
	return config, give(as, dir.path, config)
}

// connection returns where to connect, in the words of libpq.
func connection(to *pgx.ConnConfig) string {
	quote := strings.NewReplacer(`'`, `''`).Replace
	s := fmt.Sprintf("host='%s' port=%d user='%s'", quote(to.Host), to.Port, quote(to.User))
	if to.Password != "" {
		s += fmt.Sprintf(" password='%s'", quote(to.Password))
	}
	return s
}

func pgbouncerPath() (string, error) {
	if path, err := exec.LookPath("pgbouncer"); err == nil {
		return path, nil
	}
	// Not on every account's PATH.
	if path := "/usr/sbin/pgbouncer"; executable(path) {
		return path, nil
	}
	return "", NotInstalledError{"PgBouncer"}
}
