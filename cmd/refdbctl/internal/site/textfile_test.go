package site

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/exit"
)

func TestTheTextfileHasTheMetricsOfACheck(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "refdb.prom")
	now := time.UnixMilli(1_800_000_000_500)
	for _, x := range []struct {
		result checkResult
		want   []string
	}{
		{checkResult{complete: true, repositories: 3, checked: 3, notCompared: 1, repaired: 2, took: 1500 * time.Millisecond}, []string{
			"# TYPE refdb_check_ok gauge", "# HELP refdb_check_ok ", "refdb_check_ok 1", "refdb_check_complete 1", "refdb_check_repositories 3", "refdb_check_checked_repositories 3",
			"refdb_check_unguarded_repositories 1", "refdb_check_repaired_findings 2", "refdb_check_duration_seconds 1.5", "refdb_check_timestamp_seconds 1.8000000005e+09"}},
		{checkResult{complete: true, left: map[string]int{"behind": 2, "hook-missing": 1}}, []string{
			"# TYPE refdb_check_findings gauge", `refdb_check_findings{code="behind"} 2`, `refdb_check_findings{code="hook-missing"} 1`, "refdb_check_ok 0", "refdb_check_complete 1"}},
		{checkResult{}, []string{"refdb_check_ok 0", "refdb_check_complete 0"}},
	} {
		if err := writeTextfile(file, x.result, now); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range x.want {
			if !strings.Contains("\n"+string(text), "\n"+line) {
				t.Errorf("%+v: there is no %q in\n%s", x.result, line, text)
			}
		}
		if _, err := exec.LookPath("promtool"); err == nil {
			check := exec.Command("promtool", "check", "metrics")
			check.Stdin = bytes.NewReader(text)
			if said, err := check.CombinedOutput(); err != nil {
				t.Errorf("promtool: %v: %s", err, said)
			}
		}
	}
	info, err := os.Stat(file)
	if err != nil || info.Mode() != 0o644 {
		t.Errorf("%v, %v", info, err)
	}
	taken := filepath.Join(dir, "taken.prom")
	if err := os.Mkdir(taken, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := writeTextfile(taken, checkResult{}, now); err == nil {
		t.Error("it replaces a directory")
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 2 {
		t.Errorf("it leaves %v, %v", entries, err)
	}
}

func TestATextfileThatCannotBeWrittenIsRefusedBeforeTheCheck(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for file, code := range map[string]int{
		filepath.Join(dir, "refdb.prom"):           exit.OK,
		filepath.Join(dir, "refdb.txt"):            exit.Misuse,
		filepath.Join(dir, "missing/refdb.prom"):   exit.Failed,
		"/proc/nobody/can/write/here/refdb_x.prom": exit.Failed,
	} {
		if err := checkTextfile(file); exit.Code(err) != code {
			t.Errorf("%s: %v", file, err)
		}
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 0 {
		t.Errorf("it leaves %v, %v", entries, err)
	}
}
