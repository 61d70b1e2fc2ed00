package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// unit returns the service's unit that the documentation shows.
func unit(tb testing.TB) string {
	tb.Helper()
	text, err := os.ReadFile("../../docs/GIT.md")
	if err != nil {
		tb.Fatal(err)
	}
	found := regexp.MustCompile("(?s)```ini\n# /etc/systemd/system/refdb-site.service\n(.*?)```").FindSubmatch(text)
	if found == nil {
		tb.Fatal("docs/GIT.md has no unit")
	}
	return string(found[1])
}

func TestTheUnitKeepsThePasswordOutOfTheEnvironmentAndTheDaemonConfined(t *testing.T) {
	t.Parallel()
	lines := strings.Split(unit(t), "\n")
	for _, want := range []string{
		"Type=notify", // systemd 252 knows no notify-reload
		"ExecReload=/bin/kill -HUP $MAINPID",
		"StandardInput=file:/etc/refdb/database",
		"LoadCredential=product_uuid:/sys/class/dmi/id/product_uuid", "SetCredential=product_uuid:-",
		"ExecStart=/usr/local/bin/refdbctl site serve --database-file -",
		"NoNewPrivileges=yes", "ProtectSystem=strict", "ReadWritePaths=/srv/git",
	} {
		if !slices.Contains(lines, want) {
			t.Errorf("the unit lacks %s", want)
		}
	}
	for _, line := range lines {
		for _, bad := range []string{"Environment", "PrivatePIDs", "ProtectProc", "ProcSubset"} { // the daemon must see all that pushes
			if strings.HasPrefix(line, bad) {
				t.Errorf("the unit has %s", line)
			}
		}
	}
}

func TestSystemdUnderstandsTheUnit(t *testing.T) {
	t.Parallel()
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("systemd-analyze is not installed (package systemd): whether systemd understands the documentation's unit is not looked at")
	}
	path := filepath.Join(t.TempDir(), "refdb-site.service")
	text := strings.ReplaceAll(unit(t), "/usr/local/bin/refdbctl", "/bin/true") // it has to be there
	text = strings.ReplaceAll(text, "User=git", "User=root")
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(analyze, "verify", "--man=no", path).CombinedOutput()
	if strings.Contains(string(out), "refdb-site.service") {
		t.Errorf("%v: %s", err, out)
	}
}
