package dbtest

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
)

// PgBouncer starts a PgBouncer in transaction mode in front of the PostgreSQL
// database at address, and returns the address through it. It is stopped at the
// test's end.
func PgBouncer(tb testing.TB, address string) string {
	tb.Helper()
	program, err := pgbouncerPath()
	if err != nil {
		tb.Fatal(err)
	}
	to, err := pgx.ParseConfig(address)
	if err != nil {
		tb.Fatalf("PgBouncer: %v", err)
	}
	as, err := unprivileged()
	if err != nil {
		tb.Fatal(err)
	}
	dir, err := serverDir(as)
	if err != nil {
		tb.Fatalf("PgBouncer: %v", err)
	}
	config := filepath.Join(dir, "pgbouncer.ini")
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
`, connection(to), dir)
	// It may hold a password.
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		tb.Fatalf("PgBouncer: %v", err)
	}
	if as != nil {
		if err := os.Chown(config, int(as.Uid), int(as.Gid)); err != nil {
			tb.Fatalf("PgBouncer: %v", err)
		}
	}
	p, err := start(dir, "TERM", as, program, config)
	if err != nil {
		tb.Fatalf("PgBouncer: %v", err)
	}
	tb.Cleanup(p.stop)

	through := url.URL{Scheme: "postgres", Path: "/" + to.Database,
		RawQuery: url.Values{"host": {dir}, "port": {"6432"}, "user": {to.User}}.Encode()}
	ctx := within(tb)
	err = p.until(func() error {
		c, err := pgx.Connect(ctx, through.String())
		if err != nil {
			return err
		}
		return c.Close(ctx)
	})
	if err != nil {
		tb.Fatal(err)
	}
	return through.String()
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
	return "", errors.New("no PgBouncer: install it (`make deps`)")
}
