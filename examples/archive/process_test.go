//go:build linux

package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/test/dbtest"
)

// roleVariable tells a process that a test started what to do until its input ends.
const roleVariable = "REFDB_ARCHIVE_ROLE"

// Short leases, so that they end soon.
var leases = refdb.Options{StaleAfter: 2 * time.Second, Heartbeat: 400 * time.Millisecond}

func TestMain(m *testing.M) {
	role := map[string]func(context.Context, *Archive) error{"backup": keepBackups, "clean": keepCleaning}[os.Getenv(roleVariable)]
	if role == nil {
		dbtest.Main(m)
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	a, err := open(context.Background(), os.Args[1], leases) // also if it is to end already
	if err == nil {
		err = role(ctx, a)
		a.DB.Close()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// keepBackups writes backup after backup, each of contents that others have and one of its own, and
// keeps two of them.
func keepBackups(ctx context.Context, a *Archive) error {
	me := rand.Text()
	for n := 0; ctx.Err() == nil; n++ {
		contents := [][]byte{fmt.Append(nil, me, n)}
		for i := range 4 {
			contents = append(contents, fmt.Append(nil, "content ", (n+i*i)%12))
		}
		if err := a.Backup(ctx, fmt.Sprint(me, n), contents...); refdb.ClassOf(err) == refdb.Permanent {
			return err
		}
		if n < 2 {
			continue
		}
		if err := a.Forget(ctx, fmt.Sprint(me, n-2)); refdb.ClassOf(err) == refdb.Permanent {
			return err
		}
	}
	return nil
}

func keepCleaning(ctx context.Context, a *Archive) error {
	for ctx.Err() == nil {
		if err := a.Clean(ctx); refdb.ClassOf(err) == refdb.Permanent {
			return err
		}
	}
	return nil
}

// Again and again all processes are frozen, others take their leases over and work, the processes go on,
// and one is killed.
func TestNoIndexEverNamesAMissingBlockWhateverDiesOrFreezes(t *testing.T) {
	rounds, cleaned := 6, 20
	if testing.Short() {
		rounds, cleaned = 2, 8
	}
	database := dbtest.Postgres(t)
	t.Setenv("REFDB_URL", database.URL())
	a, err := open(t.Context(), t.TempDir(), leases)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.DB.Close() })
	must := func(act func() error) {
		t.Helper()
		err := act()
		for err != nil && refdb.ClassOf(err) != refdb.Permanent { // a busy machine may lose a lease that is that short
			err = act()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	check := func() error { return a.Check(t.Context()) }
	clean := func() error { return a.Clean(t.Context()) }
	roles := []string{"backup", "backup", "backup", "clean", "clean"}
	var all []*process
	for _, role := range roles {
		all = append(all, start(t, a, role))
	}
	for round := range rounds {
		for recorded := count(t, a); count(t, a) < recorded+cleaned; { // the cleaners are at work, and so others
			must(check)
		}
		for _, p := range all {
			p.signal(t, syscall.SIGSTOP)
		}
		// Both wait until the leases of the others are stale.
		must(clean)
		var contents [][]byte
		for i := range 12 {
			contents = append(contents, fmt.Append(nil, "content ", i))
		}
		name := fmt.Sprint("round-", round)
		must(func() error { return a.Backup(t.Context(), name, contents...) })
		for _, p := range all {
			p.signal(t, syscall.SIGCONT)
		}
		must(check)

		i := round % len(all)
		all[i].signal(t, syscall.SIGKILL)
		_ = all[i].Wait()
		all[i] = start(t, a, roles[i])
		must(check)
		must(func() error { return a.Forget(t.Context(), name) })
	}
	for _, p := range all {
		p.in.Close()
		if err := p.Wait(); err != nil {
			t.Errorf("%v: %s", err, p.log.String())
		}
	}
	must(check)
	must(clean)
	must(check)
}

// count returns how many names are recorded.
func count(t *testing.T, a *Archive) int {
	t.Helper()
	recorded, err := a.refs(t.Context(), deadPrefix)
	if err != nil {
		t.Fatal(err)
	}
	return len(recorded)
}

// A process is this test binary in a role.
type process struct {
	*exec.Cmd
	in  io.Closer
	log bytes.Buffer
}

// start starts a process, which is killed at the test's end if it still runs then.
func start(t *testing.T, a *Archive, role string) *process {
	t.Helper()
	p := &process{Cmd: exec.Command(os.Args[0], a.Dir)}
	p.Env = append(os.Environ(), roleVariable+"="+role)
	p.Stdout, p.Stderr = &p.log, &p.log
	in, err := p.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.in = in
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = p.Process.Kill()
		_ = p.Wait()
	})
	return p
}

func (p *process) signal(t *testing.T, s syscall.Signal) {
	t.Helper()
	if err := p.Process.Signal(s); err != nil {
		t.Fatalf("%v: %s", err, p.log.String())
	}
}
