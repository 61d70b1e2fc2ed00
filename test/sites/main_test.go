//go:build linux

package sites

import (
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/internal/testprogram"
	"github.com/globalrefdb/globalrefdb/test/dbtest"
)

// patience bounds the wait for an event. Only a test that fails waits that long, however busy the machine is.
const patience = 5 * time.Minute

// work is the directory of what all tests share. Its path is short, because that
// of a socket ends at about 100 bytes.
var work = sync.OnceValues(func() (string, error) { return os.MkdirTemp("", "sites-") })

func TestMain(m *testing.M) {
	status := m.Run()
	dbtest.Stop()
	if dir, err := work(); err == nil {
		os.RemoveAll(dir)
	}
	os.Exit(status)
}

// programs builds refdbctl and refdb-hook as they are shipped, and, but for -short, a daemon with
// the race detector, refdbctl-race, into one directory, and returns that.
var programs = sync.OnceValues(func() (string, error) {
	dir, err := work()
	if err != nil {
		return "", err
	}
	bin := filepath.Join(dir, "bin")
	if err := testprogram.Build(bin, "cmd/refdbctl", "cmd/refdb-hook"); err != nil || testing.Short() {
		return bin, err
	}
	return bin, testprogram.BuildRaced(filepath.Join(bin, "refdbctl-race"), "cmd/refdbctl")
})

// must returns v, or ends the test.
func must[T any](t testing.TB, v T, err error) T {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// shortDir returns a new directory with a short path, for sockets. It is removed at the test's end.
func shortDir(t testing.TB) string {
	t.Helper()
	shared, err := work()
	dir, err2 := os.MkdirTemp(must(t, shared, err), "")
	must(t, dir, err2)
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// eventually calls ask, again and again, until it returns nil.
func eventually(t testing.TB, what string, ask func() error) {
	t.Helper()
	pause := 10 * time.Millisecond
	for deadline := time.Now().Add(patience); ; pause = min(2*pause, 160*time.Millisecond) { // asking mostly starts programs
		err := ask()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s did not come within %s: %v", what, patience, err)
		}
		time.Sleep(pause)
	}
}

// long reports whether outages shall be as long as real ones.
func long() bool { return os.Getenv("REFDB_TEST_LONG") != "" }
