//go:build linux

package sites

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/globalrefdb/globalrefdb/internal/faultproxy"
	"github.com/globalrefdb/globalrefdb/internal/testserver"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/postgres"
)

// A standbyPair is a PostgreSQL primary with a standby that it does not wait for. Clients know both, and use the one that
// takes writes.
type standbyPair struct {
	*postgresServer
	standby *testserver.Postgres
	way     *faultproxy.Proxy // of the standby to the primary
}

// newStandbyPair starts the primary. follow starts the standby.
func newStandbyPair(t testing.TB) *standbyPair {
	t.Helper()
	p := &standbyPair{postgresServer: newPostgres(t)}
	var err error
	p.standby, err = testserver.NewPostgres(testserver.PostgresOptions{Dir: shortDir(t), Durability: testserver.NoFsync})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.standby.Stop(); err != nil {
			t.Error(err)
		}
	})
	p.way, err = faultproxy.New(faultproxy.Options{Server: faultproxy.Endpoint{Network: "unix", Address: filepath.Join(p.Dir(), ".s.PGSQL.5432")}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.way.Close)
	return p
}

// URL returns the address of both servers.
func (p *standbyPair) URL() string {
	u := url.URL{Scheme: "postgres", User: url.User("postgres"), Path: "/refdb", RawQuery: url.Values{
		"host": {p.Dir() + "," + p.standby.Dir()}, "port": {"5432,5432"}, "target_session_attrs": {"read-write"},
	}.Encode()}
	return u.String()
}

// Open opens the database at whichever takes writes.
func (p *standbyPair) Open(t testing.TB) refdb.Driver {
	t.Helper()
	d, err := postgres.Open(t.Context(), p.URL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

// follow makes the standby, which streams from then on.
func (p *standbyPair) follow() {
	p.t.Helper()
	host, port, err := net.SplitHostPort(p.way.Address())
	if err != nil {
		p.t.Fatal(err)
	}
	source := fmt.Sprintf("host=%s port=%s user=postgres", host, port)
	err = p.standby.Run(p.t.Context(), "pg_basebackup", "-d", source, "-D", p.standby.DataDir(), "-R", "-X", "stream", "-c", "fast", "--no-sync")
	if err == nil {
		err = p.standby.Start(p.t.Context())
	}
	if err != nil {
		p.t.Fatal(err)
	}
}

// promote makes the standby the primary.
func (p *standbyPair) promote() {
	p.t.Helper()
	if err := p.standby.Exec(context.WithoutCancel(p.t.Context()), "postgres", "SELECT pg_promote()"); err != nil {
		p.t.Fatal(err)
	}
}

// copyFiles copies the cluster of a running server.
func (s *postgresServer) copyFiles() {
	s.t.Helper()
	err := s.Run(s.t.Context(), "pg_basebackup", "-d", "host="+s.Dir()+" user=postgres", "-D", s.copied(), "-X", "stream", "-c", "fast", "--no-sync")
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s *postgresServer) copied() string { return filepath.Join(s.Dir(), "copy") }

// putBack puts the copy in the place of the cluster of a server that is down.
func (s *postgresServer) putBack() {
	s.t.Helper()
	if err := errors.Join(os.RemoveAll(s.DataDir()), os.Rename(s.copied(), s.DataDir())); err != nil {
		s.t.Fatal(err)
	}
}

// putBackAndKeep is putBack with a copy of the copy.
func (s *postgresServer) putBackAndKeep() {
	s.t.Helper()
	if out, err := exec.Command("cp", "-a", s.copied(), s.copied()+".kept").CombinedOutput(); err != nil {
		s.t.Fatalf("%v: %s", err, out)
	}
	s.putBack()
	if err := os.Rename(s.copied()+".kept", s.copied()); err != nil {
		s.t.Fatal(err)
	}
}

// A pausing lasts a random time, with REFDB_TEST_LONG.
type pausing func(most time.Duration)

// often runs test once or, with REFDB_TEST_LONG, 25 times with random moments.
func often(t *testing.T, test func(t *testing.T, pause pausing) (took time.Duration, early int)) {
	t.Helper()
	if testing.Short() {
		t.Skip("left out by -short: two sites whose database goes back in time, some 10 s; make test-all runs it")
	}
	if !long() {
		t.Parallel()
		test(t, func(time.Duration) {})
		return
	}
	noticed, ran, longest := 0, 0, time.Duration(0)
	for i := range 25 {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			took, early := test(t, func(most time.Duration) { time.Sleep(rand.N(most)) })
			ran++
			if early == 0 {
				noticed++
			}
			longest = max(longest, took)
		})
	}
	t.Logf("noticed before the first new acknowledgement: %d of %d; the halt came within %s of the new server's answer", noticed, ran, longest.Round(time.Millisecond))
}

func TestAPromotedStandbyThatLacksAcknowledgedPushesTakesNoneBeforeItIsRecovered(t *testing.T) {
	often(t, func(t *testing.T, pause pausing) (time.Duration, int) {
		p := newStandbyPair(t)
		b := newBed(t, func(testing.TB) database { return p })
		b.pushes()
		p.follow()
		b.pushes()
		pause(time.Second)
		p.way.Cut()
		b.pushes() // which the standby does not get
		pause(time.Second)
		p.crash()
		b.rewind()
		pause(2 * time.Second)
		p.promote()
		took := b.halts()
		b.reads()
		early := b.recovers()
		b.finish()
		stays(t, p.standby)
		return took, early
	})
}

func TestACopyOfTheFilesThatIsPutBackTakesNoPushesBeforeItIsRecovered(t *testing.T) {
	often(t, func(t *testing.T, pause pausing) (time.Duration, int) {
		s := newPostgres(t)
		b := newBed(t, func(testing.TB) database { return s })
		b.pushes()
		pause(time.Second)
		s.copyFiles()
		b.pushes()
		pause(time.Second)
		s.crash()
		b.rewind()
		s.putBack()
		pause(2 * time.Second)
		s.start()
		took := b.halts()
		b.reads()
		early := b.recovers()
		b.finish()
		stays(t, s.Postgres)
		return took, early
	})
}

// stays fails the test if positions are ahead of the transaction IDs of a server whose cluster is still the same.
func stays(t testing.TB, s *testserver.Postgres) {
	t.Helper()
	var ahead int64
	err := s.Connect(t.Context(), "refdb", func(c *pgx.Conn) error {
		return c.QueryRow(t.Context(), "SELECT shift FROM history_state").Scan(&ahead)
	})
	if err != nil || ahead != 0 {
		t.Errorf("positions are %d ahead: %v", ahead, err)
	}
}
