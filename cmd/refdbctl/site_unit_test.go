package main

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/cli"
)

// unit returns a service's unit, which the packages install.
func unit(tb testing.TB, name string) string {
	tb.Helper()
	text, err := os.ReadFile("../../deploy/systemd/" + name + ".service")
	if err != nil {
		tb.Fatal(err)
	}
	return string(text)
}

// The documentation shows the example of a configuration that the packages install, and leads to the units.
func TestTheDocumentationHasTheFilesOfThePackages(t *testing.T) {
	t.Parallel()
	docs, err := os.ReadFile("../../docs/GIT.md")
	if err != nil {
		t.Fatal(err)
	}
	example, err := os.ReadFile("../../deploy/site.config.example")
	if err != nil {
		t.Fatal(err)
	}
	shown := regexp.MustCompile("(?s)```ini\n( +\\[site\\].*?)```").FindSubmatch(docs)
	if shown == nil {
		t.Fatal("docs/GIT.md shows no configuration")
	}
	if text := strings.ReplaceAll("\n"+strings.TrimRight(string(shown[1]), " "), "\n   ", "\n"); !strings.HasSuffix(string(example), text) {
		t.Errorf("docs/GIT.md shows\n%sand deploy/site.config.example is\n%s", text, example)
	}
	for _, name := range []string{"refdb-site", "refdb-http"} {
		if !strings.Contains(string(docs), "](../deploy/systemd/"+name+".service)") {
			t.Errorf("docs/GIT.md does not lead to the unit %s", name)
		}
	}
}

func TestTheUnitsKeepThePasswordOutOfTheEnvironmentAndTheServicesConfined(t *testing.T) {
	t.Parallel()
	for name, wants := range map[string][]string{
		"refdb-site": {
			"ExecReload=/bin/kill -HUP $MAINPID",
			"TimeoutStartSec=infinity", // after a crash of the machine it looks for lock files in all repositories
			"LoadCredential=product_uuid:/sys/class/dmi/id/product_uuid", "SetCredential=product_uuid:-",
			"ExecStart=/usr/bin/refdbctl site serve --database-file -",
			"OOMPolicy=continue", // a git that unpacks too much does not take the daemon along
		},
		"refdb-http": {
			"ExecStart=/usr/bin/refdbctl site http --database-file - --listen /run/refdb-http/socket --user-header X-Remote-User --metrics 127.0.0.1:9471",
			"RuntimeDirectory=refdb-http",
			"KillMode=mixed", "OOMPolicy=continue", // no push's git is killed with the server
		},
	} {
		lines := strings.Split(unit(t, name), "\n")
		for _, want := range append(wants,
			"Type=notify", // systemd 252 knows no notify-reload
			"StandardInput=file:/etc/refdb/database", "NoNewPrivileges=yes", "ProtectSystem=strict", "ReadWritePaths=/srv/git",
		) {
			if !slices.Contains(lines, want) {
				t.Errorf("the unit %s lacks %s", name, want)
			}
		}
		for _, line := range lines {
			for _, bad := range []string{"Environment", "PrivatePIDs", "ProtectProc", "ProcSubset"} { // the daemon must see all that pushes
				if strings.HasPrefix(line, bad) {
					t.Errorf("the unit %s has %s", name, line)
				}
			}
		}
	}
}

// The check that a timer runs, in docs/OPERATIONS.md, gets the database's address as the daemon does.
func TestTheDocumentedCheckKeepsThePasswordOutOfTheEnvironment(t *testing.T) {
	t.Parallel()
	docs, err := os.ReadFile("../../docs/OPERATIONS.md")
	if err != nil {
		t.Fatal(err)
	}
	shown := regexp.MustCompile("(?s)```ini\n# /etc/systemd/system/refdb-check.service.*?```").FindString(string(docs))
	if !strings.Contains(shown, "\nUser=git\nStandardInput=file:/etc/refdb/database\n") || strings.Contains(shown, "Environment") {
		t.Errorf("docs/OPERATIONS.md shows\n%s", shown)
	}
	command := regexp.MustCompile("(?m)^ExecStart=/usr/bin/refdbctl (site check --database-file - --textfile .*)$").FindStringSubmatch(shown)
	if command == nil {
		t.Fatalf("it does not read the address from standard input:\n%s", shown)
	}
	dir := t.TempDir()
	w, metrics, address := newWorld(t), filepath.Join(dir, "refdb.prom"), filepath.Join(dir, "database")
	args := strings.Fields(strings.Replace(command[1], "/var/lib/refdb-metrics/refdb.prom", metrics, 1))
	program := w.program(t, append(args, "--config", siteConfig(t, dir, ""))...)
	program.Env = without(program.Env, "REFDB_URL")
	if err := os.WriteFile(address, []byte(w.URL()+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	stdin, err := os.Open(address)
	if err != nil {
		t.Fatal(err)
	}
	defer stdin.Close()
	program.Stdin = stdin
	out, _ := program.CombinedOutput() // that no daemon runs is a finding
	if text, err := os.ReadFile(metrics); err != nil || !strings.Contains(string(text), "refdb_check_complete 1\n") {
		t.Errorf("%v: %s\n%s", err, text, out)
	}
}

func TestSystemdUnderstandsTheUnits(t *testing.T) {
	t.Parallel()
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("systemd-analyze is not installed (package systemd): whether systemd understands the units is not looked at")
	}
	units, err := filepath.Glob("../../deploy/systemd/*.service")
	if err != nil || len(units) != 3 {
		t.Fatalf("%q, %v", units, err)
	}
	for _, path := range units {
		name := filepath.Base(path)
		text := regexp.MustCompile("/usr/bin/refdb(ctl|-server)").ReplaceAllString(unit(t, strings.TrimSuffix(name, ".service")), "/bin/true") // it has to be there
		text = strings.ReplaceAll(text, "\nUser=git\n", "\nUser=root\n")
		path = filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		out, err := exec.Command(analyze, "verify", "--man=no", path).CombinedOutput()
		if strings.Contains(string(out), name+":") {
			t.Errorf("%v: %s", err, out)
		}
	}
}

// The command that the unit of the HTTP server runs is one.
func TestTheUnitsRunCommandsThatThereAre(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"refdb-site", "refdb-http"} {
		found := regexp.MustCompile("(?m)^ExecStart=/usr/bin/refdbctl (.*)$").FindStringSubmatch(unit(t, name))
		if found == nil {
			t.Fatalf("the unit %s starts nothing", name)
		}
		a := newApp(cli.Streams{In: strings.NewReader(""), Out: io.Discard, Err: io.Discard, Env: func(string) string { return "" }})
		cmd, rest, err := a.rootCommand().Find(strings.Fields(found[1]))
		if err == nil {
			err = cmd.ParseFlags(rest)
		}
		if err != nil {
			t.Errorf("%s: %v", found[1], err)
		}
	}
}
