package gerrit_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/globalrefdb/globalrefdb/site/gerrit"
)

// edited applies a plan to the files, and returns what a file holds then.
func edited(tb testing.TB, d *gerrit.Directory, of func() (gerrit.ConfigPlan, error), file string) string {
	tb.Helper()
	plan, err := of()
	if err == nil {
		err = plan.Apply(tb.Context())
	}
	if err != nil {
		tb.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(d.Path, file))
	if err != nil {
		tb.Fatal(err)
	}
	return string(text)
}

// What another file says is neither copied into the file that includes it, nor does ours stay over it.
func TestWhatIsIncludedCountsAgainAfterwards(t *testing.T) {
	t.Parallel()
	const shared = "[core]\n\tfsyncObjectFiles = false\n[gc]\n\tauto = 6700\n"
	const before = "[include]\n\tpath = shared.config\n"
	d := open(t, map[string]string{
		"etc/gerrit.config": "[gerrit]\n\tbasePath = git\n", "etc/jgit.config": before, "etc/shared.config": shared,
	})
	settings := d.Settings("/s", "gerrit-eu")
	during := edited(t, d, func() (gerrit.ConfigPlan, error) { return d.PlanSettings(t.Context(), settings) }, gerrit.JGitConfig)
	if missing, _, err := d.Missing(t.Context(), settings); err != nil || len(missing) > 0 {
		t.Errorf("missing: %v, %v", missing, err)
	}
	if strings.Contains(during, "6700") {
		t.Errorf("an included value was copied:\n%s", during)
	}
	after := edited(t, d, func() (gerrit.ConfigPlan, error) { return d.PlanRestore(t.Context(), d.Restorable()) }, gerrit.JGitConfig)
	if after != before {
		t.Errorf("afterwards:\n%s", after)
	}
	if text, err := os.ReadFile(filepath.Join(d.Path, "etc/shared.config")); err != nil || string(text) != shared {
		t.Errorf("the included file: %s, %v", text, err)
	}
}

// What was ours in the file goes also if an included file says something else after it.
func TestOursGoesAlthoughAnIncludedFileComesAfterIt(t *testing.T) {
	t.Parallel()
	d := open(t, map[string]string{"etc/gerrit.config": "[gerrit]\n\tbasePath = git\n", "etc/shared.config": "[gc]\n\tauto = 6700\n"})
	edited(t, d, func() (gerrit.ConfigPlan, error) { return d.PlanSettings(t.Context(), d.Settings("/s", "gerrit-eu")) }, gerrit.JGitConfig)
	path := filepath.Join(d.Path, gerrit.JGitConfig)
	text, err := os.ReadFile(path)
	if err == nil {
		err = os.WriteFile(path, append(text, "[include]\n\tpath = shared.config\n"...), 0o640)
	}
	if err != nil {
		t.Fatal(err)
	}
	after := edited(t, d, func() (gerrit.ConfigPlan, error) { return d.PlanRestore(t.Context(), d.Restorable()) }, gerrit.JGitConfig)
	if after != "[include]\n\tpath = shared.config\n" {
		t.Errorf("afterwards:\n%s", after)
	}
}

// A value that ours can't replace, because an included file comes after it, is refused before anything is changed.
func TestAnIncludedFileThatComesAfterOursIsNamed(t *testing.T) {
	t.Parallel()
	d := open(t, map[string]string{
		"etc/gerrit.config": "[gerrit]\n\tbasePath = git\n",
		"etc/jgit.config":   "[core]\n\tfsyncObjectFiles = false\n[include]\n\tpath = shared.config\n",
		"etc/shared.config": "[core]\n\tfsyncObjectFiles = false\n",
	})
	_, err := d.PlanSettings(t.Context(), d.Settings("/s", "gerrit-eu"))
	if err == nil || !strings.Contains(err.Error(), filepath.Join(d.Path, "etc/shared.config")) || !strings.Contains(err.Error(), "core.fsyncObjectFiles") {
		t.Errorf("%v", err)
	}
	entries, err := os.ReadDir(filepath.Join(d.Path, "etc"))
	if err != nil || len(entries) != 3 {
		t.Errorf("in etc: %v, %v", entries, err)
	}
}

// Without its jar a Gerrit with the guard's module does not start: disable must not leave one that it can't remove.
func TestAModuleInAnIncludedFileIsNotLeftBehind(t *testing.T) {
	t.Parallel()
	d := open(t, map[string]string{
		"etc/gerrit.config": "[gerrit]\n\tbasePath = git\n[include]\n\tpath = shared.config\n",
		"etc/shared.config": "[gerrit]\n\tinstallModule = " + gerrit.SysModule + "\n",
	})
	_, err := d.PlanRestore(t.Context(), d.Restorable())
	if err == nil || !strings.Contains(err.Error(), filepath.Join(d.Path, "etc/shared.config")) || !strings.Contains(err.Error(), "gerrit.installModule") {
		t.Errorf("%v", err)
	}
}
