package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/exit"
)

// The daemon of this site does not run, which is a finding.
func TestACheckWritesItsMetrics(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.newSite(t, "eu-1", mainRef)
	file := filepath.Join(t.TempDir(), "refdb.prom")
	s.site(t, "check", "--textfile", file).is(t, exit.Failed, "finding")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{`refdb_check_findings{code="daemon-down"} 1`, "refdb_check_ok 0", "refdb_check_complete 1", "refdb_check_repositories 1", "refdb_check_checked_repositories 1"} {
		if !strings.Contains(string(text), line+"\n") {
			t.Errorf("there is no %q in\n%s", line, text)
		}
	}
	if strings.Contains(string(text), "team") {
		t.Errorf("it has names:\n%s", text)
	}
	s.site(t, "check", "--textfile", filepath.Join(file, "refdb.prom")).is(t, exit.Failed, "can't be written")
	s.site(t, "check", "--textfile", "refdb.txt").is(t, exit.Misuse, ".prom")
	s.site(t, "check", "team/app", "--textfile", file).is(t, exit.Misuse, "all repositories")
	if after, err := os.ReadFile(file); err != nil || string(after) != string(text) {
		t.Errorf("a check of some repositories replaces the metrics of all: %v\n%s", err, after)
	}
}
