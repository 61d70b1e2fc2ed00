package smarthttp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/site/internal/sitetest"
)

// outage makes the database unavailable, or available again.
func (r *rig) outage(begins bool) { r.driver.away.Store(begins) }

// stale gets the list of refs from a server whose database is unavailable. The response must be a
// stale list or a refusal.
func (r *rig) stale(what string, served bool) {
	r.Helper()
	w := r.get(r.Context(), refsURL)
	header := w.Header().Get(StaleHeader)
	switch {
	case served && (w.Code != http.StatusOK || header == "" || !strings.Contains(w.Body.String(), r.a+" "+main)):
		r.Errorf("%s: not served: %d, %q: %s", what, w.Code, header, w.Body)
	case !served && (w.Code != http.StatusServiceUnavailable || header != ""):
		r.Errorf("%s: served: %d, %q: %s", what, w.Code, header, w.Body)
	}
}

// newStaleRig returns a rig that allows stale reads, and whose copy is known to be complete.
func newStaleRig(t *testing.T) *rig {
	t.Helper()
	r := newRig(t)
	r.o.StaleReads = time.Hour
	r.want("the database is there", r.a, false)
	return r
}

func TestDuringAnOutageReadsAreServedFromTheCopyIfThatIsAllowed(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	var log bytes.Buffer
	r.o.Logger = slog.New(slog.NewTextHandler(&log, nil))
	r.o.StaleReads = time.Hour
	r.outage(true)
	r.stale("nothing is known of the project", false)
	r.outage(false)
	r.want("the database is there", r.a, false)
	r.want("the database is there", r.a, true)

	r.outage(true)
	for i := range 2 {
		r.stale(fmt.Sprint("outage ", i), true)
	}
	r.wantCount(r.counts.stale, 2)
	r.wantCount(r.counts.passed, 0)
	if w := r.get(t.Context(), "/"+project+".git/info/refs?service=git-receive-pack"); w.Code != http.StatusServiceUnavailable || w.Header().Get(StaleHeader) != "" {
		t.Errorf("a push: %d", w.Code)
	}
	r.o.StaleReads = 0
	r.stale("it is not allowed", false)
	r.o.StaleReads = time.Nanosecond
	r.stale("the copy was complete too long ago", false)
	r.o.StaleReads = time.Hour

	// Another site accepts a push, so this site's copy is behind.
	r.outage(false)
	r.must(r.db.Update(t.Context(), project, []refdb.Update{{Ref: main, Old: refdb.Value(r.a), New: refdb.Value(r.b)}}))
	r.behind("the database is back, and the copy behind")
	r.outage(true)
	r.stale("the copy is known to be behind", false)
	r.outage(false)
	r.git(r.dir, "update-ref", main, r.b)
	r.daemon.count.Add(1)
	r.want("the copy has followed", r.b, false)

	if n := strings.Count(log.String(), "reads are served from this site's copies"); n != 1 {
		t.Errorf("the log has %d lines about it: %s", n, &log)
	}
	if strings.Contains(log.String(), project) {
		t.Errorf("the log has a name: %s", &log)
	}
}

// The database may become unavailable between the request for the key and the comparison.
func TestAnOutageMayBeginDuringARequest(t *testing.T) {
	t.Parallel()
	r := newStaleRig(t)
	r.daemon.starts.Add(1) // earlier comparisons no longer count
	r.driver.onList = func() { r.outage(true) }
	r.stale("it begins", true)
}

func TestOnlyAnUnavailableDatabaseAllowsStaleReads(t *testing.T) {
	t.Parallel()
	late := func(err error) error { return errors.Join(context.DeadlineExceeded, err) }
	for name, row := range map[string]struct {
		err    error
		served bool
	}{
		"it does not answer in time":           {context.DeadlineExceeded, true},
		"it is unavailable":                    {refdb.ErrUnavailable, true},
		"it is not admitted":                   {refdb.ErrNotAdmitted, false},
		"it says late that it is not admitted": {late(refdb.ErrNotAdmitted), false},
		"it lost changes":                      {refdb.ErrLostChanges, false},
		"it says late that it lost changes":    {late(refdb.ErrLostChanges), false},
		"it refuses":                           {errors.New("no privilege"), false},
	} {
		r := newStaleRig(t)
		r.driver.fails.Store(&row.err)
		r.stale(name, row.served)
	}
}

// A request ends with its context, whatever error the driver then returns.
func TestADatabaseThatDoesNotAnswerIsUnavailable(t *testing.T) {
	t.Parallel()
	r := newStaleRig(t)
	r.config.Timeout = 10 * time.Millisecond
	r.driver.silent.Store(true)
	r.stale("silent", true)
}

// A repository that has replaced the complete one may be another project's, or an older copy.
func TestOnlyTheRepositoryThatWasCompleteIsServedStale(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(r *rig){
		"another project's": func(r *rig) { r.git(r.dir, "config", "refdb.projectid", "another") },
		"another file": func(r *rig) {
			file := filepath.Join(r.dir, "config")
			text, err := os.ReadFile(file)
			r.must(err)
			r.must(os.WriteFile(file+".new", text, 0o644))
			r.must(os.Rename(file+".new", file))
		},
		"no longer guarded": func(r *rig) { r.must(os.Remove(filepath.Join(r.dir, "refdb", "socket"))) },
	} {
		r := newStaleRig(t)
		r.outage(true)
		change(r)
		if _, _, ok := r.remembered(t.Context(), project); ok {
			t.Errorf("%s: it is remembered", name)
		}
	}
}

// After a change of the row, the name may belong to another project.
func TestAProjectWhoseRowHasChangedIsForgotten(t *testing.T) {
	t.Parallel()
	r := newStaleRig(t)
	p, _, err := r.db.Projects().Get(t.Context(), project)
	r.must(err)
	p.Mode = "log"
	_, err = r.db.Projects().Put(t.Context(), p)
	r.must(err)
	r.driver.noRows.Store(true)
	r.stale("its row can't be read", false)
	r.outage(true)
	r.stale("its row could not be read", false)
}

// By the time the server has capacity, the database may be back.
func TestAStaleReadDoesNotWaitForCapacity(t *testing.T) {
	t.Parallel()
	r := newStaleRig(t)
	r.limits.queue = sitetest.Patience
	r.readers = make(semaphore)
	r.outage(true)
	ctx, cancel := context.WithTimeout(t.Context(), sitetest.Patience/5)
	defer cancel()
	w := r.get(ctx, refsURL)
	if w.Code != http.StatusServiceUnavailable || w.Header().Get(StaleHeader) != "" || ctx.Err() != nil {
		t.Errorf("%d, %q: %s", w.Code, w.Header().Get(StaleHeader), w.Body)
	}
}

func TestALogLineIsDueOnceAMinute(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(*testing.T) {
		var l staleLog
		for i, row := range []struct {
			after  time.Duration
			served int
			due    bool
		}{{0, 1, true}, {time.Second, 0, false}, {time.Second, 0, false}, {time.Minute, 3, true}} {
			time.Sleep(row.after)
			if served, due := l.add(); served != row.served || due != row.due {
				t.Errorf("%d: %d, %v", i, served, due)
			}
		}
	})
}
