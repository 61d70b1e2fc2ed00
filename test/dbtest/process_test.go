package dbtest_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/globalrefdb/globalrefdb/test/dbtest"
)

// endVariable makes TestServersForAnother start every server and end its process that way.
const endVariable = "DBTEST_END"

func TestServersEndWithTheirProcess(t *testing.T) {
	t.Parallel()
	for _, end := range []string{"return", "panic", "kill"} {
		t.Run(end, func(t *testing.T) {
			t.Parallel()
			self, err := os.Executable()
			if err != nil {
				t.Fatal(err)
			}
			cmd := exec.CommandContext(t.Context(), self, "-test.run=^TestServersForAnother$", "-test.v")
			// The environment of this process's start, without what it set itself.
			cmd.Env = append(environ, endVariable+"="+end)
			out, err := cmd.CombinedOutput()
			if end == "return" && err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			var checked int
			for line := range strings.Lines(string(out)) {
				if dir, ok := strings.CutPrefix(strings.TrimSpace(line), "serves "); ok {
					checked++
					waitUntilGone(t, dir)
				}
			}
			if checked == 0 {
				t.Errorf("no server was named: %s", out)
			}
		})
	}
}

// waitUntilGone waits for the last thing that happens: a server's directory is removed.
func waitUntilGone(t *testing.T, dir string) {
	t.Helper()
	for deadline := time.Now().Add(5 * time.Minute); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
			return
		}
	}
	t.Errorf("%s is still there", dir)
}

func TestServersForAnother(t *testing.T) {
	end := os.Getenv(endVariable)
	if end == "" {
		return // this is not that process
	}
	dbtest.SpannerEmpty(t)
	pooler := dbtest.PgBouncer(t, dbtest.PostgresEmpty(t))
	// Only PgBouncer's, if the environment names the others.
	for _, dir := range append(dbtest.ServerDirs(), socketDir(t, pooler)) {
		fmt.Printf("\nserves %s\n", dir)
	}

	switch end {
	case "panic":
		done := make(chan struct{})
		go func() {
			defer close(done)
			panic("as a test would")
		}()
		<-done
	case "kill":
		if err := syscall.Kill(os.Getpid(), syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
}

func socketDir(t *testing.T, address string) string {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	return u.Query().Get("host")
}

func TestPgBouncerHandsOutAnotherConnectionForEachTransaction(t *testing.T) {
	t.Parallel()
	through := dbtest.PgBouncer(t, dbtest.Postgres(t).URL())
	ctx := t.Context()
	connect := func() *pgx.Conn {
		c, err := pgx.Connect(ctx, through+"&default_query_exec_mode=exec")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close(t.Context()) })
		return c
	}
	backend := func(c interface {
		QueryRow(context.Context, string, ...any) pgx.Row
	}) (pid int) {
		if err := c.QueryRow(ctx, "SELECT pg_backend_pid()").Scan(&pid); err != nil {
			t.Fatal(err)
		}
		return pid
	}
	one, other := connect(), connect()
	before := backend(one)
	// While the other client's transaction has the only idle backend, the first gets another.
	tx, err := other.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if backend(tx) != before {
		t.Error("a transaction got a new backend although one was idle")
	}
	if backend(one) == before {
		t.Error("a client kept its backend while another's transaction was using it")
	}
	if err := tx.Rollback(ctx); err != nil {
		t.Fatal(err)
	}
}
