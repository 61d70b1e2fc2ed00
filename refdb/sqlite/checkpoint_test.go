package sqlite_test

import (
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/sqlite"
)

// longestLog is the maximum size of the log while readers overlap.
const longestLog = 4 * sqlite.LogStep

// many fills the file with refs of one page each. Rewriting all of them appends 5 MiB to the log.
func many(t *testing.T, d *sqlite.Driver) (rewrite func()) {
	t.Helper()
	write(t, d, `
		WITH RECURSIVE n (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 1279)
		INSERT INTO refs (project, ref, value, time) SELECT ?, format('refs/heads/%d', i), 'old', 1 FROM n`, project)
	n := 0
	return func() {
		t.Helper()
		n++
		write(t, d, `UPDATE refs SET value = format('%4000d', ?)`, int64(n))
	}
}

func logSize(t *testing.T, url string) int64 {
	t.Helper()
	log, err := os.Stat(strings.TrimPrefix(url, "sqlite:") + "-wal")
	if err != nil {
		t.Fatal(err)
	}
	return log.Size()
}

func TestTheLogStaysShortWhileListingsOverlap(t *testing.T) {
	t.Parallel()
	d, url := open(t)
	rewrite := many(t, d)
	done := make(chan struct{})
	var listings sync.WaitGroup
	for range 4 {
		listings.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				if _, err := d.List(t.Context(), driver.RefQuery{Project: project, Limit: 50}); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	rewrites := 10
	if testing.Short() {
		rewrites = 2
	}
	var longest, written int64
	for range rewrites {
		before := logSize(t, url)
		rewrite()
		after := logSize(t, url)
		longest, written = max(longest, after), written+max(0, after-before)
	}
	close(done)
	listings.Wait()
	t.Logf("the log had up to %d KiB; it grew by %d KiB in all", longest>>10, written>>10)
	if longest > longestLog {
		t.Errorf("the log had %d bytes, want at most %d", longest, longestLog)
	}
}

func TestALogThatAReaderKeptLongIsTruncatedSoonAfter(t *testing.T) {
	t.Parallel()
	d, url := open(t)
	rewrite := many(t, d)
	stay, out := make(chan struct{}), make(chan error)
	reader := openAgain(t, url)
	go func() { out <- reader.Read(t.Context(), func() { stay <- struct{}{}; <-stay }) }()
	<-stay
	for logSize(t, url) <= 8*sqlite.LogStep {
		rewrite()
	}
	const want = "a program that reads without a pause keeps it from shrinking; find it with `fuser -v "
	if got := faults(t, d); len(got) != 1 || !strings.Contains(got["log"], " MiB: "+want) {
		t.Errorf("found %v", got)
	}
	stay <- struct{}{}
	if err := <-out; err != nil {
		t.Fatal(err)
	}
	for range 4 {
		rewrite()
	}
	if got := logSize(t, url); got > longestLog {
		t.Errorf("the log has %d bytes, want at most %d", got, longestLog)
	}
	if got := faults(t, d); len(got) != 0 {
		t.Errorf("found %v", got)
	}
}
