package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/internal/testprogram"
	"github.com/globalrefdb/globalrefdb/test/dbtest/local"
)

func TestMain(m *testing.M) { local.Main(m) }

// output is what a server writes while a test reads it.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

func noEnv(string) string { return "" }

func TestMistakesEndTheServerBeforeItListens(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	empty, wrong, none := filepath.Join(dir, "empty"), filepath.Join(dir, "wrong"), filepath.Join(dir, "none")
	if err := errors.Join(os.WriteFile(empty, []byte("\n"), 0o600), os.WriteFile(wrong, []byte("mysql://me:hunter2@db/x"), 0o600)); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{},
		{"--database-file", none},
		{"--database-file", dir},
		{"--database-file", empty},
		{"--database-file", wrong},
		{"--database-file", wrong, "x"},
		{"--database-file", "-"}, // standard input is no file
		{"--listen", ":9480"},
		{"--listen", "x"},
		{"--certificate", "a"},
		{"--client-ca", "a"},
		{"--stop-timeout", "-1s"},
		{"--stop-delay", "-1s"},
		{"--log-level", "loud"},
		{"--token", "refdb_x"},
	} {
		var messages output
		err := run(t.Context(), args, noEnv, nil, &messages, func(net.Addr) { t.Errorf("%q: it listens", args) })
		if err == nil || strings.Contains(err.Error()+messages.String(), "hunter2") {
			t.Errorf("%q: %v", args, err)
		}
		if err != nil && slices.Contains(args, none) && !strings.HasSuffix(err.Error(), "write the file, as docs/SERVICE.md shows") {
			t.Errorf("%q: %v", args, err)
		}
	}
	sqlite := func(name string) string {
		if name == "REFDB_URL" {
			return "sqlite:" + filepath.Join(dir, "db")
		}
		return ""
	}
	for _, args := range [][]string{
		{"--max-calls", "0"}, {"--max-connections", "0"}, {"--max-calls-per-subject", "-1"}, {"--max-requests", "3"},
		{"--issuers", none}, {"--issuers", wrong},
		{"--page", "ui"}, {"--page", "/metrics"}, {"--user-header", "X-User"}, {"--page", "/ui", "--user-header", "X User"},
		{"--page", "/ui", "--user-header", "X-User", "--listen", "127.0.0.1:0"}, // everybody could be anybody
	} {
		if err := run(t.Context(), args, sqlite, nil, &output{}, nil); err == nil {
			t.Errorf("%q: no error", args)
		}
	}
}

func TestAServerReadsTheAddressFromAFileAndEndsWithItsContext(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "database")
	if err := os.WriteFile(file, []byte(local.SQLite(t).URL()+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	input, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer input.Close()
	for _, args := range [][]string{{"--database-file", file}, {"--database-file", "-"}} {
		servesUntilItsContextEnds(t, input, append(args, "--listen", "127.0.0.1:0", "--stop-delay", "0")...)
	}
}

func servesUntilItsContextEnds(t *testing.T, input io.Reader, args ...string) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	addresses, ended := make(chan net.Addr, 1), make(chan error, 1)
	var messages output
	go func() {
		ended <- run(ctx, args, noEnv, input, &messages, func(a net.Addr) { addresses <- a })
	}()
	url := ""
	select {
	case a := <-addresses:
		url = "http://" + a.String()
	case err := <-ended:
		t.Fatal(err)
	}
	for _, path := range []string{"/healthz", "/readyz"} {
		for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(10 * time.Millisecond) {
			response, err := http.Get(url + path)
			if err != nil {
				t.Fatal(err)
			}
			text, err := io.ReadAll(response.Body)
			response.Body.Close()
			if err == nil && response.StatusCode == http.StatusOK && string(text) == "ok\n" {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("%s: %s %s %v", path, response.Status, text, err)
			}
		}
	}
	http.DefaultClient.CloseIdleConnections()
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if text := messages.String(); !strings.Contains(text, "serving") || !strings.Contains(text, "stopping") {
		t.Errorf("it logs %q", text)
	}
}

func TestLogsDoNotShowThePassword(t *testing.T) {
	t.Parallel()
	for _, url := range []string{"postgres://me:hunter2%zz@127.0.0.1/x", "postgres://me:hunter2@127.0.0.1:1/x"} {
		env := func(name string) string {
			if name == "REFDB_URL" {
				return url
			}
			return ""
		}
		ctx, cancel := context.WithCancel(t.Context())
		var messages output
		err := run(ctx, []string{"--listen", "127.0.0.1:0", "--stop-delay", "0", "--log-level", "debug"}, env, nil, &messages, func(net.Addr) { cancel() })
		cancel()
		if text := messages.String(); err != nil || !strings.Contains(text, "can't be opened") || strings.Contains(text, "hunter2") {
			t.Errorf("%v, %s", err, text)
		}
	}
}

func TestADatabaseThatIsAwayKeepsTheServerFromBeingReady(t *testing.T) {
	t.Parallel()
	env := func(name string) string {
		if name == "REFDB_URL" {
			return "sqlite:" + filepath.Join(t.TempDir(), "none", "db")
		}
		return ""
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	var messages output
	go func() {
		ended <- run(ctx, []string{"--listen", "127.0.0.1:0", "--stop-delay", "0"}, env, nil, &messages, func(a net.Addr) {
			response, err := http.Get("http://" + a.String() + "/readyz")
			if err != nil {
				t.Error(err)
			} else if response.Body.Close(); response.StatusCode != http.StatusServiceUnavailable {
				t.Error(response.Status)
			}
			http.DefaultClient.CloseIdleConnections()
			cancel()
		})
	}()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	t.Log(messages.String())
}

func TestASecondSignalEndsTheServerAtOnce(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := testprogram.Build(dir, "cmd/refdb-server"); err != nil {
		t.Fatal(err)
	}
	var messages output
	c := exec.CommandContext(t.Context(), filepath.Join(dir, "refdb-server"), "--listen", "127.0.0.1:0", "--stop-delay", "1h")
	c.Env = append(os.Environ(), "REFDB_URL="+local.SQLite(t).URL())
	c.Stderr = &messages
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- c.Wait() }()
	for _, text := range []string{"serving", "stopping"} {
		for deadline := time.Now().Add(time.Minute); !strings.Contains(messages.String(), text); time.Sleep(10 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("it does not log %q: %s", text, messages.String())
			}
		}
		if err := c.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
	}
	select {
	case err := <-ended:
		if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGTERM {
			t.Errorf("%v", err)
		}
	case <-time.After(5 * time.Minute):
		t.Error("it goes on")
	}
}
