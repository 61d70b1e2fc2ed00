// Package test holds the tests that need several processes: sites contend,
// freeze, die and lose their database, on each of the databases.
package test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/internal/testprogram"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/drivers"
	"github.com/globalrefdb/globalrefdb/test/dbtest"
)

const (
	// These tell a process that a test started which role to play.
	roleVariable = "REFDB_TEST_ROLE"
	urlVariable  = "REFDB_TEST_URL"

	project = "company/product"
	mainRef = "refs/heads/main"

	// Leases so long that none ends because the machine is busy. A lock that is to be stale is aged.
	staleAfter = time.Hour
	beatEvery  = 100 * time.Millisecond

	// Leases that end soon, for holders that are to lose them.
	shortStaleAfter = 2 * time.Second
	shortBeatEvery  = 400 * time.Millisecond

	// patience is how long a test waits for what surely happens, however busy the machine is.
	patience = 10 * time.Minute
)

// A role is what a process does with a driver. It closes the driver.
type role func(refdb.Driver) error

var roles = map[string]role{
	"contender":    onDB(contend, refdb.Options{Site: "us", StaleAfter: staleAfter}),
	"holder":       onDB(hold, refdb.Options{Site: "us", StaleAfter: staleAfter, Heartbeat: beatEvery}),
	"short holder": onDB(hold, refdb.Options{Site: "us", StaleAfter: shortStaleAfter, Heartbeat: shortBeatEvery}),
	"historian":    makeHistory,
	"lessee":       onDB(lessee, refdb.Options{Site: "us", StaleAfter: leaseStale}),
}

// onDB makes a role of a function that works on a DB.
func onDB(play func(*refdb.DB) error, o refdb.Options) role {
	return func(d refdb.Driver) error {
		db, err := refdb.New(d, o)
		if err != nil {
			return err
		}
		defer db.Close()
		return play(db)
	}
}

func TestMain(m *testing.M) {
	r, ok := roles[os.Getenv(roleVariable)]
	if !ok {
		os.Exit(runTests(m))
	}
	if err := play(r); err != nil {
		fmt.Fprintln(os.Stderr, os.Getenv(roleVariable)+":", err)
		os.Exit(1)
	}
}

func runTests(m *testing.M) int {
	defer dbtest.Stop()
	defer os.RemoveAll(programsDir)
	return m.Run()
}

var programsDir = filepath.Join(os.TempDir(), fmt.Sprint("refdb-programs-", os.Getpid()))

var buildPrograms = sync.OnceValue(func() error { return testprogram.Build(programsDir, "cmd/refdbctl", "cmd/refdb-hook") })

// programs returns the directory of refdbctl and refdb-hook, as they are released.
func programs(t *testing.T) string {
	t.Helper()
	if err := buildPrograms(); err != nil {
		t.Fatal(err)
	}
	return programsDir
}

// play is the main function of a process that a test started. On a busy machine the database may not
// answer within the few seconds for which a driver waits for it.
func play(r role) error {
	for deadline := time.Now().Add(patience); ; time.Sleep(beatEvery) {
		driver, err := drivers.Open(context.Background(), os.Getenv(urlVariable))
		switch {
		case err == nil:
			return r(driver)
		case refdb.ClassOf(err) != refdb.Retryable || time.Now().After(deadline):
			return err
		}
	}
}

// onEach runs test on a new database of each kind.
func onEach(t *testing.T, test func(t *testing.T, d *dbtest.Database)) {
	for _, kind := range dbtest.All() {
		t.Run(string(kind.Dialect), func(t *testing.T) {
			t.Parallel()
			test(t, kind.New(t))
		})
	}
}

// site opens a DB of this process.
func site(t *testing.T, d *dbtest.Database) *refdb.DB {
	t.Helper()
	return siteOn(t, d.Open(t), refdb.Options{Site: "eu", StaleAfter: staleAfter, Heartbeat: beatEvery})
}

func siteOn(t *testing.T, d refdb.Driver, o refdb.Options) *refdb.DB {
	t.Helper()
	db, err := refdb.New(d, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

// A process is this test binary in one of the roles. It gets commands line by
// line, and answers each with a line.
type process struct {
	*exec.Cmd
	in  io.WriteCloser
	out *bufio.Scanner
}

// start starts a process, which is killed at the test's end if it still runs then.
func start(t *testing.T, d *dbtest.Database, role string, args ...string) *process {
	t.Helper()
	return startIn(t, nil, d, role, args...)
}

// startIn is start with other environment variables.
func startIn(t *testing.T, env []string, d *dbtest.Database, role string, args ...string) *process {
	t.Helper()
	p := &process{Cmd: exec.Command(os.Args[0], args...)}
	p.Env = append(os.Environ(), roleVariable+"="+role, urlVariable+"="+d.URL())
	p.Env = append(p.Env, env...)
	p.Stderr = os.Stderr
	var err error
	if p.in, err = p.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := p.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.out = bufio.NewScanner(out)
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.Process.Kill()
		p.Wait()
	})
	return p
}

// receive returns the process's next line.
func (p *process) receive(t *testing.T) string {
	t.Helper()
	if !p.out.Scan() {
		t.Fatalf("the process ended: %v", p.out.Err())
	}
	return p.out.Text()
}

// ask sends a line and returns the answer.
func (p *process) ask(t *testing.T, line string) string {
	t.Helper()
	if _, err := fmt.Fprintln(p.in, line); err != nil {
		t.Fatal(err)
	}
	return p.receive(t)
}

// answer is how a process reports an error, in one line.
func answer(err error) string {
	if err == nil {
		return "ok"
	}
	return refdb.ClassOf(err).String() + ": " + strings.ReplaceAll(err.Error(), "\n", " ")
}
