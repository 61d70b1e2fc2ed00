package site_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/internal/testprogram"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/site/internal/sitetest"
	"github.com/globalrefdb/globalrefdb/test/dbtest/local"
)

// exporting is a setting by which a daemon exports metrics, and where it does.
func exporting(tb testing.TB) (setting, socket string) {
	tb.Helper()
	dir, err := os.MkdirTemp("", "m") // the name of a socket is short
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { os.RemoveAll(dir) })
	socket = filepath.Join(dir, "metrics.sock")
	return "[site]\n\tmetrics = " + socket, socket
}

// get makes a request to a daemon that exports at a socket, or at an address.
func get(tb testing.TB, at, path string) (status int, body string) {
	tb.Helper()
	network := "tcp"
	if strings.HasPrefix(at, "/") {
		network = "unix"
	}
	transport := &http.Transport{DisableKeepAlives: true, DisableCompression: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, at)
	}}
	defer transport.CloseIdleConnections()
	response, err := (&http.Client{Transport: transport, Timeout: sitetest.Patience}).Get("http://daemon" + path)
	if err != nil {
		tb.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		tb.Fatal(err)
	}
	return response.StatusCode, string(text)
}

// metric reads one of the metrics at an address, or fails.
func metric(tb testing.TB, at, name string) float64 {
	tb.Helper()
	_, text := get(tb, at, "/metrics")
	for line := range strings.Lines(text) {
		if value, ok := strings.CutPrefix(line, name+" "); ok {
			v, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
			if err != nil {
				tb.Fatal(err)
			}
			return v
		}
	}
	tb.Fatalf("no %s in\n%s", name, text)
	return 0
}

func metricIs(tb testing.TB, at, name string, want float64) {
	tb.Helper()
	if v := metric(tb, at, name); v != want {
		tb.Errorf("%s is %g, want %g", name, v, want)
	}
}

func TestTheDaemonExportsWhatPushesDid(t *testing.T) {
	t.Parallel()
	setting, at := exporting(t)
	shared := local.SQLite(t)
	g := newGuard(t, shared, "eu-1", setting, "[site]\n\tlockWait = 100ms")
	other := newGuard(t, shared, "eu-2")
	a, b, c := g.commit[0], g.commit[1], g.commit[2]
	for _, name := range []string{
		"refdb_site_intents_pending", "refdb_site_intent_oldest_seconds", "refdb_site_stuck_refs", `refdb_site_transactions_total{result="accepted"}`,
		`refdb_site_refusals_total{reason="behind"}`, `refdb_site_refusals_total{reason="database"}`, `refdb_site_refs_total{result="moved"}`,
	} {
		metricIs(t, at, name, 0)
	}
	metricIs(t, at, "refdb_site_serving", 1)
	metricIs(t, at, "refdb_site_database_up", 1)
	metricIs(t, at, `refdb_site_info{version="test"}`, 1)
	if v := metric(t, at, "refdb_site_start_time_seconds"); v < float64(time.Now().Add(-time.Hour).Unix()) || v > float64(time.Now().Unix()+1) {
		t.Errorf("it started at %f", v)
	}

	g.git("update-ref", "refs/heads/x", a)
	metricIs(t, at, `refdb_site_transactions_total{result="accepted"}`, 1)
	metricIs(t, at, `refdb_site_refs_total{result="moved"}`, 1)
	metricIs(t, at, `refdb_operations_total{op="prepare",outcome="ok"}`, 1)
	if metric(t, at, `refdb_site_hook_duration_seconds_count{hook="prepared"}`) != 1 {
		t.Error("the hook's time is not counted")
	}

	for _, ref := range []string{"refs/heads/lagging", "refs/heads/locked"} {
		g.set(ref, a)
		other.set(ref, a)
	}
	g.git("-c", "core.hooksPath=/dev/null", "update-ref", "refs/heads/stray", a)
	other.git("update-ref", "refs/heads/lagging", b)
	s := other.session()
	client := g.client()
	pushed := 0
	for _, refused := range []struct{ ref, reason string }{
		{"lagging", "behind"}, {"locked", "locked"}, {"stray", "unknown_ref"},
	} {
		if refused.reason == "locked" { // not before: what is locked for long is refused for another reason
			if err := s.prepare("update refs/heads/locked " + b + " " + a); err != nil {
				t.Fatal(err)
			}
		}
		before := metric(t, at, fmt.Sprintf(`refdb_site_refusals_total{reason=%q}`, refused.reason))
		g.fails("update-ref", "refs/heads/"+refused.ref, c)
		if said, ok := client.push("c2:refs/heads/" + refused.ref); ok { // it has another hook
			t.Fatalf("%s was pushed: %s", refused.ref, said)
		}
		pushed++
		metricIs(t, at, `refdb_site_refs_total{result="refused"}`, float64(2*pushed))
		if n := metric(t, at, fmt.Sprintf(`refdb_site_refusals_total{reason=%q}`, refused.reason)); n != before+2 {
			t.Errorf("%s was refused %g times, want 2", refused.reason, n-before)
		}
	}
	g.git("symbolic-ref", "refs/heads/symbolic", "refs/heads/x")
	if said, ok := client.push("c2:refs/heads/symbolic"); ok {
		t.Fatalf("a symbolic ref was pushed: %s", said)
	}
	metricIs(t, at, `refdb_site_refusals_total{reason="unguardable"}`, 1)
	client.push("c0:refs/peer/eu-2/x")
	metricIs(t, at, `refdb_site_refusals_total{reason="peer_refs"}`, 1)
	metricIs(t, at, `refdb_site_refusals_total{reason="other"}`, 0)

	mine := g.session()
	if err := mine.prepare("update refs/heads/x " + b + " " + a); err != nil {
		t.Fatal(err)
	}
	metricIs(t, at, "refdb_site_intents_pending", 1)
	metricIs(t, at, "refdb_site_pushes_active", 1)
	if first := metric(t, at, "refdb_site_intent_oldest_seconds"); first <= 0 || metric(t, at, "refdb_site_intent_oldest_seconds") <= first {
		t.Error("an intent that stands does not age")
	}
	mine.must("commit")
	mine.close()
	metricIs(t, at, "refdb_site_intents_pending", 0)
	metricIs(t, at, "refdb_site_intent_oldest_seconds", 0)
	s.close()

	_, text := get(t, at, "/metrics")
	for _, name := range append([]string{"refs/", "heads", "team", "eu-", g.owner}, g.commit...) { // P9
		if strings.Contains(text, name) {
			t.Errorf("the metrics name %s", name)
		}
	}
}

func TestIntentsThatAnEarlierDaemonLeftAreExported(t *testing.T) {
	t.Parallel()
	setting, at := exporting(t)
	g := newGuard(t, local.SQLite(t), "eu-1", setting)
	a, b := g.commit[0], g.commit[1]
	g.set("refs/heads/x", a)
	s := g.session()
	if err := s.prepare("update refs/heads/x " + b + " " + a); err != nil {
		t.Fatal(err)
	}
	if err := g.halt(); err != nil {
		t.Fatal(err)
	}
	g.start()
	sitetest.Eventually(t, "the intent is known", func() bool { return metric(t, at, "refdb_site_intents_pending") == 1 })
	s.must("commit")
	s.close()
	sitetest.Eventually(t, "it has ended", func() bool { return metric(t, at, "refdb_site_intents_pending") == 0 })
}

func TestTheDaemonExportsThatTheDatabaseIsDown(t *testing.T) {
	t.Parallel()
	setting, at := exporting(t)
	g := idleGuard(t, local.SQLite(t), "eu-1", setting)
	down := g.unplug()
	g.start()
	down.Store(true)
	g.fails("update-ref", "refs/heads/x", g.commit[0])
	metricIs(t, at, `refdb_site_refusals_total{reason="database"}`, 1)
	metricIs(t, at, `refdb_site_transactions_total{result="refused"}`, 1)
	if said, ok := g.client().push("c1:refs/heads/y", "c2:refs/heads/z"); ok { // refused as a whole
		t.Fatal(said)
	}
	metricIs(t, at, `refdb_site_refs_total{result="refused"}`, 3)
	sitetest.Eventually(t, "the outage is seen", func() bool {
		return metric(t, at, "refdb_site_database_up") == 0 && metric(t, at, "refdb_site_database_failures_total") > 0
	})
	// Of the lock on the site's name nothing is heard any more.
	g.halt()
	g.stale = shortLease
	down.Store(false)
	g.start()
	down.Store(true)
	sitetest.Eventually(t, "it does not serve", func() bool { return metric(t, at, "refdb_site_serving") == 0 })
	if status, said := get(t, at, "/readyz"); status != http.StatusServiceUnavailable || !strings.Contains(said, "refuses pushes") {
		t.Errorf("ready: %d: %s", status, said)
	}
	if status, said := get(t, at, "/healthz"); status != http.StatusOK {
		t.Errorf("alive: %d: %s", status, said)
	}
	down.Store(false)
	sitetest.Eventually(t, "it serves", func() bool {
		return metric(t, at, "refdb_site_serving") == 1 && metric(t, at, "refdb_site_database_up") == 1
	})
	if status, said := get(t, at, "/readyz"); status != http.StatusOK {
		t.Errorf("not ready: %d: %s", status, said)
	}
	// At its start, as at the boot of a machine whose database is not there yet: it runs, and waits.
	g.halt()
	down.Store(true)
	g.start()
	if status, said := get(t, at, "/readyz"); status != http.StatusServiceUnavailable || !strings.Contains(said, "refuses pushes, as the database does not answer") {
		t.Errorf("ready without the database: %d: %s", status, said)
	}
	down.Store(false)
	sitetest.Eventually(t, "it serves once the database is there", func() bool {
		status, _ := get(t, at, "/readyz")
		return status == http.StatusOK
	})
}

func TestTheDaemonExportsHowFarItLags(t *testing.T) {
	t.Parallel()
	setting, at := exporting(t)
	g := idleGuard(t, local.SQLite(t), "eu-1", setting, "[repository \"gone\"]\n\tpath = /nowhere/gone.git")
	a, b := g.commit[0], g.commit[1]
	g.newRepository("team/equal")
	for _, ref := range []string{"refs/heads/equal", "refs/heads/behind", "refs/heads/moving"} {
		g.set(ref, a)
	}
	for ref, v := range map[string]refdb.Value{"refs/heads/behind": refdb.Value(b), "refs/heads/new": refdb.Value(b)} {
		if _, err := g.db.Put(t.Context(), "team/app", ref, v); err != nil {
			t.Fatal(err)
		}
	}
	g.git("-c", "core.hooksPath=/dev/null", "update-ref", "refs/heads/only-here", a)
	lock, err := g.db.TryLock(t.Context(), "team/app", "refs/heads/moving")
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Release(t.Context())
	g.git("-c", "core.hooksPath=/dev/null", "update-ref", "refs/heads/moving", b) // its holder is about to write it
	put := time.Now()
	g.start()
	sitetest.Eventually(t, "all were looked at", func() bool { return metric(t, at, "refdb_site_repositories") == 3 })
	metricIs(t, at, "refdb_site_repositories_behind", 1)
	metricIs(t, at, "refdb_site_refs_behind", 2)
	metricIs(t, at, "refdb_site_repositories_not_compared", 1)
	least := time.Since(put)
	if v := metric(t, at, "refdb_site_lag_seconds"); v < least.Seconds() || v > least.Seconds()+sitetest.Patience.Seconds() {
		t.Errorf("it lags by %g s, at least %s", v, least)
	}
	for _, ref := range []string{"refs/heads/behind", "refs/heads/new"} {
		g.git("-c", "core.hooksPath=/dev/null", "update-ref", ref, b)
	}
	sitetest.Eventually(t, "it has caught up", func() bool { return metric(t, at, "refdb_site_refs_behind") == 0 })
	metricIs(t, at, "refdb_site_repositories_behind", 0)
	metricIs(t, at, "refdb_site_lag_seconds", 0)
	if v := metric(t, at, "refdb_site_lag_look_age_seconds"); v <= 0 || v > 2*sitetest.Patience.Seconds() {
		t.Errorf("it looked %g s ago", v)
	}
}

func TestMetricsAreServedAtAnAddressAndNothingElseIs(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	at := l.Addr().String()
	taken := idleGuard(t, local.SQLite(t), "eu-1", "[site]\n\tmetrics = "+at)
	if err := taken.tryStart(); err == nil || !strings.Contains(err.Error(), "site.metrics: listen tcp "+at) || !strings.Contains(err.Error(), "configure another") {
		t.Errorf("an address that is taken: %v", err)
	}
	l.Close()
	testprogram.AwaitForks()
	taken.start()
	if code, text := get(t, at, "/metrics"); code != http.StatusOK || !strings.Contains(text, "# TYPE refdb_site_serving gauge\n") {
		t.Errorf("%d: %s", code, text)
	}
	for _, path := range []string{"/", "/metrics/", "/debug/pprof/", "/favicon.ico"} {
		if code, text := get(t, at, path); code != http.StatusNotFound {
			t.Errorf("%s: %d: %s", path, code, text)
		}
	}
	response, err := http.Post("http://"+at+"/metrics", "text/plain", strings.NewReader("x"))
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	if response.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("a post: %s", response.Status)
	}
	http.DefaultClient.CloseIdleConnections()
	// Who connects and says nothing does not keep the daemon from ending.
	idle, err := net.Dial("tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	defer idle.Close()
	if err := taken.halt(); err != nil {
		t.Error(err)
	}
	if strings.Contains(taken.log.String(), "no longer served") {
		t.Error("the log has an error")
	}
	// Whoever listens there now is somebody else, or the child of another test that has not closed what it inherited.
	switch response, err := (&http.Client{Timeout: sitetest.Patience}).Get("http://" + at + "/metrics"); {
	case os.IsTimeout(err):
		t.Error("somebody listens after the end, and does not answer")
	case err == nil:
		defer response.Body.Close()
		if text, err := io.ReadAll(response.Body); err == nil && strings.Contains(string(text), "refdb_site_serving") {
			t.Error("metrics are served after the end")
		}
	}
}

func TestTheSocketOfMetrics(t *testing.T) {
	t.Parallel()
	setting, at := exporting(t)
	g := newGuard(t, local.SQLite(t), "eu-1", setting)
	info, err := os.Lstat(at)
	if err != nil || info.Mode() != os.ModeSocket|0o660 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	if err := g.halt(); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(g.log.String(), "no longer served") {
		t.Error("the log has an error")
	}
	if _, err := os.Lstat(at); !os.IsNotExist(err) {
		t.Errorf("it is left behind: %v", err)
	}
	if err := os.WriteFile(at, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := g.tryStart(); err == nil || !strings.Contains(err.Error(), "site.metrics: making the socket "+at+": there is something that is not a socket") {
		t.Errorf("a file in its place: %v", err)
	}
}
