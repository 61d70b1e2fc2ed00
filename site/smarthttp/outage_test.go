package smarthttp

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/site/internal/sitetest"
)

// unavailable makes the database answer nothing, or answer again.
func (r *rig) unavailable(away bool) {
	r.driver.away.Store(away)
	if away {
		r.config.Timeout, r.limits.brief = 10*time.Millisecond, 10*time.Millisecond
	} else {
		r.config.Timeout, r.limits.brief = sitetest.Patience, sitetest.Patience
	}
}

// stale gets a URL from a server whose database is away. The response must be the stale list, or a refusal.
func (r *rig) stale(what, url string, served bool) {
	r.Helper()
	w := r.get(r.Context(), url)
	header := w.Header().Get(StaleHeader)
	switch {
	case served && (w.Code != http.StatusOK || header == "" || !strings.Contains(w.Body.String(), r.a+" "+main)):
		r.Errorf("%s: not served: %d, %q: %s", what, w.Code, header, w.Body)
	case !served && (w.Code != http.StatusServiceUnavailable || header != ""):
		r.Errorf("%s: served: %d, %q: %s", what, w.Code, header, w.Body)
	}
}

func TestWhileTheDatabaseIsAwayReadsAreServedFromTheCopyIfThatIsAllowed(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	var log bytes.Buffer
	r.outage.logger = slog.New(slog.NewTextHandler(&log, nil))
	r.o.StaleReads = time.Hour
	r.unavailable(true)
	r.stale("the database has never answered", refsURL, false)
	r.outage.answer(time.Now())
	r.stale("nothing is known of the project", refsURL, false)
	r.git(r.dir, "config", "--unset", "refdb.projectid")
	r.stale("nothing is known, and the repository has no ID", refsURL, false)
	r.git(r.dir, "config", "refdb.projectid", "id")
	r.unavailable(false)
	r.want("the database is there", r.a, false)

	r.unavailable(true)
	for i := range 2 {
		r.stale(fmt.Sprint("away ", i), refsURL, true)
	}
	r.wantCount(r.counts.stale, 2)
	r.stale("a push", "/"+project+".git/info/refs?service=git-receive-pack", false)
	r.o.StaleReads = 0
	r.stale("it is not allowed", refsURL, false)
	r.o.StaleReads = time.Nanosecond
	r.stale("for too long", refsURL, false)
	r.o.StaleReads = time.Hour

	// Other sites go on before this one: its copy is behind.
	r.unavailable(false)
	r.must(r.db.Update(r.Context(), project, []refdb.Update{{Ref: main, Old: refdb.Value(r.a), New: refdb.Value(r.b)}}))
	r.behind("the database is back, and the copy behind")
	r.git(r.dir, "update-ref", main, r.b)
	r.daemon.count.Add(1)
	r.want("the copy has followed", r.b, false)

	for _, line := range []string{"reads are served from this site's copies", "reads are refused", "the database answers again"} {
		if n := strings.Count(log.String(), line); n != 1 {
			t.Errorf("%q is logged %d times: %s", line, n, &log)
		}
	}
	if strings.Contains(log.String(), project) {
		t.Errorf("the log has a name: %s", &log)
	}
}

// The database may go between the question for the key and the comparison.
func TestTheDatabaseMayGoDuringARequest(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.want("the database is there", r.a, false)
	r.o.StaleReads = time.Hour
	r.daemon.starts.Add(1) // what was found of the refs no longer counts
	r.driver.onList = func() { r.unavailable(true) }
	r.stale("it goes", refsURL, true)
}

func TestOnlyADatabaseThatIsAwayAllowsStaleReads(t *testing.T) {
	t.Parallel()
	for name, err := range map[string]error{"it is not admitted": refdb.ErrNotAdmitted, "it lost changes": refdb.ErrLostChanges, "it refuses": fmt.Errorf("no privilege")} {
		r := newRig(t)
		r.want("the database is there", r.a, false)
		r.o.StaleReads = time.Hour
		r.driver.fails.Store(&err)
		r.stale(name, refsURL, false)
	}
}

// Another repository in the place of the one that was there may be another project's.
func TestOnlyTheRepositoryOfTheProjectIsServedStale(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(r *rig){
		"another project's": func(r *rig) { r.git(r.dir, "config", "refdb.projectid", "another") },
		"not guarded":       func(r *rig) { r.must(os.Remove(filepath.Join(r.dir, "refdb", "socket"))) },
	} {
		r := newRig(t)
		r.want("the database is there", r.a, false)
		r.o.StaleReads = time.Hour
		r.unavailable(true)
		change(r)
		if w := r.get(t.Context(), refsURL); w.Code == http.StatusOK {
			t.Errorf("%s: served: %s", name, w.Body)
		}
	}
}

// Each request asks the database, but only the first waits long.
func TestADatabaseThatIsAwayIsAskedBriefly(t *testing.T) {
	t.Parallel()
	o := outage{logger: slog.New(slog.DiscardHandler)}
	patience := func(when string, want time.Duration) {
		t.Helper()
		if got := o.patience(time.Minute, time.Second); got != want {
			t.Errorf("%s: %s, want %s", when, got, want)
		}
	}
	if _, ok := o.begin(time.Hour); ok {
		t.Error("it has never answered, and stale reads begin")
	}
	patience("before anything", time.Minute)
	o.answer(time.Now())
	if _, ok := o.begin(time.Hour); !ok {
		t.Error("it has just answered, and stale reads don't begin")
	}
	patience("away", time.Second)
	o.answer(time.Now())
	patience("back", time.Minute)
	if got := o.patience(time.Millisecond, time.Second); got != time.Millisecond {
		t.Errorf("longer than the site's limit: %s", got)
	}
}

// A request to it ends with its context, whatever the error.
func TestADatabaseThatIsSilentIsAway(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.want("the database is there", r.a, false)
	r.o.StaleReads = time.Hour
	r.config.Timeout = 10 * time.Millisecond
	r.driver.silent.Store(true)
	r.stale("silent", refsURL, true)
}
