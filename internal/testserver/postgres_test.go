package testserver_test

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/globalrefdb/globalrefdb/internal/testserver"
)

func start(t *testing.T, o testserver.PostgresOptions) *testserver.Postgres {
	t.Helper()
	s, err := testserver.StartPostgres(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// callersDir returns a directory that every account gets to, as t.TempDir's is not.
func callersDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "testserver-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func TestAKilledServerStartsAgainWithItsData(t *testing.T) {
	t.Parallel()
	for name, network := range map[string]testserver.Network{"socket": testserver.UnixSocket, "loopback": testserver.Loopback} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t, testserver.PostgresOptions{
				Dir: callersDir(t), Network: network, Durability: testserver.NoFsync, Password: "a/b c", Settings: []string{"max_connections=17"},
			})
			if err := s.Exec(t.Context(), "postgres", "CREATE TABLE t (n int)", "INSERT INTO t VALUES (1)"); err != nil {
				t.Fatal(err)
			}
			if err := s.Kill(); err != nil {
				t.Fatal(err)
			}
			if err := s.Exec(t.Context(), "postgres", "SELECT 1"); err == nil {
				t.Error("a killed server answers")
			}
			if err := s.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			err := s.Connect(t.Context(), "postgres", func(c *pgx.Conn) error {
				var n, connections int
				err := c.QueryRow(t.Context(), "SELECT count(*), current_setting('max_connections')::int FROM t").Scan(&n, &connections)
				if n != 1 || connections != 17 {
					t.Errorf("%d rows and %d connections, want 1 and 17", n, connections)
				}
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
		})
	}
}

func TestAFrozenServerAnswersWhenItIsThawed(t *testing.T) {
	t.Parallel()
	s := start(t, testserver.PostgresOptions{Durability: testserver.NoFsync})
	thaw, err := s.Freeze()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := s.Exec(ctx, "postgres", "SELECT 1"); err == nil {
		t.Error("a frozen server answers")
	}
	thaw()
	if err := s.Exec(t.Context(), "postgres", "SELECT 1"); err != nil {
		t.Error(err)
	}
}

func TestAServerThatDoesNotStartSaysWhyAndLeavesNothing(t *testing.T) {
	t.Parallel()
	parent := callersDir(t)
	if err := os.Chmod(parent, 0o711); err != nil {
		t.Fatal(err)
	}
	_, err := testserver.StartPostgres(t.Context(), testserver.PostgresOptions{Parent: parent, Durability: testserver.NoFsync, Settings: []string{"no_such_setting=1"}})
	if err == nil {
		t.Fatal("it started")
	}
	t.Log(err)
	if left, _ := os.ReadDir(parent); len(left) > 0 {
		t.Errorf("%s is left", left)
	}
}

func TestADirectoryWithoutTheProgramsIsNamed(t *testing.T) {
	for _, dir := range []string{t.TempDir(), "relative/bin"} {
		t.Setenv(testserver.BinVariable, dir)
		_, err := testserver.NewPostgres(testserver.PostgresOptions{})
		if want := testserver.BinVariable + "=" + dir + ": it must be the absolute path of a directory with initdb and postgres"; err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
