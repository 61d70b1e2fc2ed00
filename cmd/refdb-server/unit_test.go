package main

import (
	"context"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/test/dbtest/local"
)

// unit returns the lines of a service's unit, which the packages install.
func unit(t *testing.T, name string) []string {
	t.Helper()
	text, err := os.ReadFile("../../deploy/systemd/" + name + ".service")
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(string(text), "\n")
}

func TestTheUnitConfinesTheServerAndKeepsThePasswordOutOfTheEnvironment(t *testing.T) {
	t.Parallel()
	lines := unit(t, "refdb-server")
	wants := []string{"DynamicUser=yes", "StandardInput=file:/etc/refdb/database", "Type=notify", "MemoryDenyWriteExecute=yes", "ProtectProc=invisible"}
	confines := regexp.MustCompile("^(NoNewPrivileges|CapabilityBoundingSet|Protect[A-Za-z]+|PrivateDevices|LockPersonality|Restrict[A-Za-z]+|SystemCall[A-Za-z]+)=")
	for _, line := range unit(t, "refdb-site") {
		if confines.MatchString(line) {
			wants = append(wants, line)
		}
	}
	if len(wants) < 18 {
		t.Fatalf("the daemon's unit confines it by %q alone", wants)
	}
	for _, want := range wants {
		if !slices.Contains(lines, want) {
			t.Errorf("the unit lacks %s", want)
		}
	}
	for _, line := range lines {
		if strings.HasPrefix(line, "Environment") || strings.HasPrefix(line, "ReadWritePaths") {
			t.Errorf("the unit has %s", line)
		}
	}
}

// valueOf returns what the one line of the unit that sets a key sets it to.
func valueOf(t *testing.T, key string) string {
	t.Helper()
	var values []string
	for _, line := range unit(t, "refdb-server") {
		if value, ok := strings.CutPrefix(line, key+"="); ok {
			values = append(values, value)
		}
	}
	if len(values) != 1 {
		t.Fatalf("%s is %q", key, values)
	}
	return values[0]
}

func TestTheUnitRunsAServer(t *testing.T) {
	t.Parallel()
	args := strings.Fields(valueOf(t, "ExecStart"))
	listen := slices.Index(args, "--listen")
	if args[0] != "/usr/bin/refdb-server" || listen < 0 {
		t.Fatalf("it runs %q", args)
	}
	args[listen+1] = "127.0.0.1:0"
	file := filepath.Join(t.TempDir(), "database")
	if err := os.WriteFile(file, []byte(local.SQLite(t).URL()+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	input, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer input.Close()
	servesUntilItsContextEnds(t, input, append(args[1:], "--stop-delay", "0")...)
}

// The page shows a drop-in by which the server itself has a certificate.
func TestTheDropInOfTheDocumentationRunsAServerWithACertificate(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/SERVICE.md")
	if err != nil {
		t.Fatal(err)
	}
	shown := regexp.MustCompile(`(?m)^LoadCredential=certificate:.*\nLoadCredential=private-key:.*\nExecStart=\nExecStart=/usr/bin/refdb-server (.*)$`).FindSubmatch(page)
	if shown == nil {
		t.Fatal("the page shows no drop-in")
	}
	missesItsCertificate(t, string(shown[1]), "%d", "certificate")
}

// The page shows a drop-in by which a web server on the same machine reaches a socket.
func TestTheDropInOfTheDocumentationListensOnASocketInTheUnitsDirectory(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/SERVICE.md")
	if err != nil {
		t.Fatal(err)
	}
	shown := regexp.MustCompile(`(?m)^Group=.+\nExecStart=\nExecStart=/usr/bin/refdb-server (.* --listen (/run/(.*)/.*))$`).FindSubmatch(page)
	if shown == nil {
		t.Fatal("the page shows no drop-in")
	}
	args, socket, directory := string(shown[1]), string(shown[2]), string(shown[3])
	if directory != valueOf(t, "RuntimeDirectory") || valueOf(t, "RuntimeDirectoryMode") != "0750" {
		t.Errorf("the group can't enter the directory of %s, or there is none", socket)
	}
	dir, input := withAddress(t)
	here := filepath.Join(dir, "socket")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	args = strings.ReplaceAll(args, socket, here) + " --stop-delay 0"
	if err := run(ctx, strings.Fields(args), noEnv, input, &output{}, func(net.Addr) {
		info, err := os.Stat(here)
		if err != nil || info.Mode() != fs.ModeSocket|0o660 {
			t.Errorf("the socket: %v, %v", info, err)
		}
		cancel()
	}); err != nil {
		t.Error(err)
	}
}

// The page shows how the image's server is started.
func TestTheContainerOfTheDocumentationRunsAServerWithACertificate(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/CONTAINERS.md")
	if err != nil {
		t.Fatal(err)
	}
	shown := regexp.MustCompile(`(?m)^    podman run .* --volume \./server:/etc/refdb:ro globalrefdb/server \\\n(.*)$`).FindSubmatch(page)
	if shown == nil {
		t.Fatal("the page shows no command")
	}
	missesItsCertificate(t, string(shown[1]), "/etc/refdb", "tls.crt")
}

// withAddress returns a directory whose only file, database, has the address of a SQLite file, and that file.
func withAddress(t *testing.T) (dir string, input *os.File) {
	t.Helper()
	dir = t.TempDir()
	file := filepath.Join(dir, "database")
	if err := os.WriteFile(file, []byte("sqlite:"+filepath.Join(dir, "db")), 0o600); err != nil {
		t.Fatal(err)
	}
	input, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { input.Close() })
	return dir, input
}

// missesItsCertificate runs a server with documented arguments. Of the files of its directory there is only the database's address.
func missesItsCertificate(t *testing.T, args, directory, certificate string) {
	t.Helper()
	dir, input := withAddress(t)
	err := run(t.Context(), strings.Fields(strings.ReplaceAll(args, directory, dir)), noEnv, input, &output{},
		func(net.Addr) { t.Error("it listens without a certificate") })
	if err == nil || !strings.Contains(err.Error(), "the certificate "+filepath.Join(dir, certificate)) {
		t.Errorf("without a certificate: %v", err)
	}
}

func TestTheUnitGivesCallsInProgressTheTimeThatTheServerDoes(t *testing.T) {
	t.Parallel()
	limit, err := time.ParseDuration(valueOf(t, "TimeoutStopSec") + "s")
	if err != nil || limit <= stopDelay+stopTimeout {
		t.Errorf("systemd kills the server after %s, %v", limit, err)
	}
}
