package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/exit"
	"github.com/globalrefdb/globalrefdb/site/client"
	"github.com/globalrefdb/globalrefdb/test/dbtest"
)

// patientSite are a site's limits that only a hang reaches.
const patientSite = "timeout = 10m\nlockWait = 10m\n"

// siteConfig writes a site's configuration and returns its path.
func siteConfig(tb testing.TB, dir, more string) string {
	tb.Helper()
	path := filepath.Join(dir, "site.config")
	text := fmt.Sprintf("[site]\nname = eu-1\nsocket = %s\nstate = %s\nroot = %s\nstore = none\n"+patientSite+"%s\n",
		filepath.Join(dir, "sock"), filepath.Join(dir, "state"), dir, more)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		tb.Fatal(err)
	}
	return path
}

// serving runs `site serve` in a process of its own, and returns what it has logged so far.
func (w *world) serving(tb testing.TB, config string) (*exec.Cmd, func() string) {
	tb.Helper()
	cmd := w.program(tb, "site", "serve", "--config", config)
	stderr, err := os.Create(filepath.Join(tb.TempDir(), "log"))
	if err != nil {
		tb.Fatal(err)
	}
	defer stderr.Close()
	cmd.Stderr = stderr
	if err := cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	return cmd, func() string {
		b, err := os.ReadFile(stderr.Name())
		if err != nil {
			tb.Fatal(err)
		}
		return string(b)
	}
}

// awaitStatus waits until the daemon's status is as it should be.
func awaitStatus(tb testing.TB, dir, what string, ok func(client.Status) bool) (s client.Status) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), patience)
	defer cancel()
	eventually(tb, what, func() bool {
		var err error
		s, err = client.Query(ctx, filepath.Join(dir, "sock"))
		return err == nil && ok(s)
	})
	return s
}

func TestServeFromStartToStop(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	dir := t.TempDir()
	config := siteConfig(t, dir, "")
	w.run(t, "site", "status", "--config", config).is(t, exit.Failed, "the site daemon does not answer at "+dir)
	cmd, log := w.serving(t, config)
	awaitStatus(t, dir, "serving", client.Status.OK)
	out := w.do(t, "site", "status", "--config", config)
	for _, line := range []string{"site         eu-1", "serving      yes", "database     yes", "since start  0 transactions accepted"} {
		if !strings.Contains(out, line) {
			t.Errorf("no %q in\n%s", line, out)
		}
	}
	if s := decode[client.Status](t, w.do(t, "site", "status", "--config", config, "-o", "json")); s.Site != "eu-1" || s.PID != cmd.Process.Pid || !s.Presence {
		t.Errorf("%+v", s)
	}
	w.run(t, "site", "serve", "--config", config).is(t, exit.Failed, "a site daemon runs already")
	cmd.Process.Signal(syscall.SIGTERM)
	if err := cmd.Wait(); err != nil {
		t.Errorf("it ended with %v", err)
	}
	for _, line := range []string{"level=INFO msg=serving", "msg=stopping"} {
		if !strings.Contains(log(), line) {
			t.Errorf("no %q in\n%s", line, log())
		}
	}
}

// The library's metrics are exported beside the daemon's.
func TestServeExportsMetrics(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	dir := t.TempDir()
	address := filepath.Join(dir, "metrics")
	config := siteConfig(t, dir, "metrics = "+address)
	cmd, log := w.serving(t, config)
	awaitStatus(t, dir, "serving", client.Status.OK)
	metrics := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", address)
	}}
	defer metrics.CloseIdleConnections()
	read := func() string {
		response, err := (&http.Client{Transport: metrics}).Get("http://site/metrics")
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		text, err := io.ReadAll(response.Body)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	// On a busy machine the daemon may have lost its presence for a moment, and taken it again.
	for _, line := range []string{
		"refdb_site_serving 1", "refdb_site_database_up 1", `refdb_operations_total\{op="trylock",outcome="ok"\} [1-9]`, "refdb_locks_held 1",
		"refdb_lease_left_seconds ", "refdb_batch_requests_count ",
	} {
		exported := regexp.MustCompile("(?m)^" + line)
		eventually(t, line, func() bool { return exported.MatchString(read()) })
	}
	siteConfig(t, dir, "metrics = 127.0.0.1:1")
	cmd.Process.Signal(syscall.SIGHUP)
	eventually(t, "a refusal", func() bool {
		return strings.Contains(log(), "site.metrics can't change while the daemon runs: restart it")
	})
}

func TestReloadIsLogged(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	dir := t.TempDir()
	config := siteConfig(t, dir, "")
	cmd, log := w.serving(t, config)
	awaitStatus(t, dir, "serving", client.Status.OK)
	for _, c := range []struct{ more, says string }{
		{"[guard]\nskipRef = refs/heads/wip/*", "configuration reloaded"},
		{"[sote]\nx = 1", "the old one stays"},
		{"database = sqlite:/x", "site.database can't change while the daemon runs"},
	} {
		if strings.Contains(log(), c.says) {
			t.Errorf("it says too early: %s", c.says)
		}
		siteConfig(t, dir, c.more)
		cmd.Process.Signal(syscall.SIGHUP)
		eventually(t, c.says, func() bool { return strings.Contains(log(), c.says) })
		awaitStatus(t, dir, "serving still", client.Status.OK)
	}
	cmd.Process.Signal(syscall.SIGTERM)
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}

// A daemon that starts without a database, or with a schema of another version, serves once
// the database is ready.
func TestServeBeforeTheDatabaseIsReady(t *testing.T) {
	t.Parallel()
	url := dbtest.SQLiteEmpty(t)
	w := &world{env: map[string]string{"REFDB_URL": url}}
	dir := t.TempDir()
	config := siteConfig(t, dir, "")
	w.serving(t, config)
	awaitStatus(t, dir, "refusing", func(s client.Status) bool {
		return !s.OK() && strings.Contains(s.PresenceError, "refdbctl migrate up")
	})
	w.run(t, "site", "status", "--config", config).is(t, exit.Failed, "")
	w.do(t, "migrate", "up")
	awaitStatus(t, dir, "serving", client.Status.OK)
}

func TestServeRefusesWhatIsWrong(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, c := range []struct {
		name, more string
		code       int
		says       string
	}{
		{"a key that is not known", "sokket = /x", exit.Failed, "site.sokket: there is no such key in this version"},
		{"a database of no kind", "database = oracle:x", exit.Misuse, `unknown database scheme "oracle"`},
		{"metrics at no address", "metrics = :9464", exit.Failed, `site.metrics: ":9464" has no host: give 127.0.0.1:9464`},
		{"metrics nowhere", "metrics = /nowhere/at/all/sock", exit.Failed, "site.metrics: making the socket /nowhere/at/all/sock: "},
		{"a socket nowhere", "socket = /nowhere/at/all/sock", exit.Failed, "making the socket /nowhere/at/all/sock: "},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := w.run(t, "site", "serve", "--config", siteConfig(t, t.TempDir(), c.more), "--log-level", "error")
			r.is(t, c.code, c.says)
			r.isOneLine(t)
		})
	}
	w.run(t, "site", "serve", "--config", "/nowhere/site.config").is(t, exit.Failed, "no such file")
}
