package test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/globalrefdb/globalrefdb/internal/testprogram"
)

// scripts/release-check.sh says what keeps a commit from being released. Go is a stand-in here, which finds each go.mod
// tidy, unless there is a file untidy beside it.
func TestReleaseCheckComparesTheChangelogWithTheTags(t *testing.T) {
	t.Parallel()
	const begin = "# Changelog\n\n## [Unreleased]\n\n"
	for name, row := range map[string]struct {
		changelog string
		tags      string
		untidy    bool // tools/go.mod
		version   string
		want      []string // nil: it can be released
	}{
		"nothing was released yet":     {begin + "- New.\n", "", false, "", nil},
		"a first release":              {begin + "## [0.1.0] - 2026-01-02\n\n- New.\n", "", false, "v0.1.0", nil},
		"a release that is tagged":     {begin + "## [0.1.0] - 2026-01-02\n\n- New.\n", "v0.1.0", false, "v0.1.0", nil},
		"a second release":             {begin + "## [0.2.0] - 2026-02-02\n\n- More.\n\n## [0.1.0] - 2026-01-02\n\n- New.\n", "v0.1.0", false, "v0.2.0", nil},
		"0.10 comes after 0.9":         {begin + "## [0.10.0] - 2026-02-02\n\n## [0.9.0] - 2026-01-02\n", "v0.9.0 v0.10.0", false, "", nil},
		"no section":                   {begin, "", false, "v0.1.0", []string{"has no section of v0.1.0"}},
		"something is unreleased":      {begin + "- Newer.\n\n## [0.1.0] - 2026-01-02\n", "", false, "v0.1.0", []string{"has unreleased changes"}},
		"an older section":             {begin + "## [0.2.0] - 2026-01-02\n\n## [0.1.0] - 2026-01-02\n", "v0.1.0 v0.2.0", false, "v0.1.0", []string{"v0.1.0 is not the newest section"}},
		"a tag without a section":      {begin, "v0.1.0", false, "", []string{"no section of the tag v0.1.0"}},
		"a version to be tagged":       {begin + "## [0.2.0] - 2026-02-02\n\n## [0.1.0] - 2026-01-02\n", "v0.1.0", false, "", nil},
		"a section without a tag":      {begin + "## [0.2.0] - 2026-02-02\n\n## [0.1.0] - 2026-01-02\n", "v0.2.0", false, "", []string{"a section of 0.1.0, and there is no tag v0.1.0"}},
		"sections that are not sorted": {begin + "## [0.1.0] - 2026-01-02\n\n## [0.2.0] - 2026-01-02\n", "v0.1.0 v0.2.0", false, "", []string{"not in the order of their versions"}},
		"a section without its date":   {begin + "## [0.1.0]\n", "", false, "v0.1.0", []string{"line 5: a section's title is"}},
		"no version":                   {begin, "", false, "0.1", []string{"0.1 is no version such as v0.1.0"}},
		"a go.mod that is not tidy":    {begin, "", true, "", []string{"tools/go.mod or go.sum is not tidy"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			script, err := os.ReadFile("../scripts/release-check.sh")
			if err != nil {
				t.Fatal(err)
			}
			if err := os.Mkdir(filepath.Join(dir, "scripts"), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.Mkdir(filepath.Join(dir, "tools"), 0o755); err != nil {
				t.Fatal(err)
			}
			files := map[string]string{
				"CHANGELOG.md": row.changelog, "go.mod": "", "tools/go.mod": "", "scripts/release-check.sh": string(script),
				"scripts/go": "#!/bin/sh\n! [ -e untidy ]\n",
			}
			if row.untidy {
				files["tools/untidy"] = ""
			}
			for path, text := range files {
				if err := testprogram.Write(filepath.Join(dir, path), []byte(text)); err != nil {
					t.Fatal(err)
				}
			}
			runIn(t, dir, nil, "git", "init", "--quiet")
			runIn(t, dir, nil, "git", "add", ".")
			runIn(t, dir, nil, "git", "-c", "user.name=A", "-c", "user.email=a@example.com", "commit", "--quiet", "-m", "all")
			for _, tag := range strings.Fields(row.tags) {
				runIn(t, dir, nil, "git", "tag", tag)
			}
			cmd := exec.Command(filepath.Join(dir, "scripts/release-check.sh"), strings.Fields(row.version)...)
			cmd.Env = append(cleanEnviron(), "GO="+filepath.Join(dir, "scripts/go"))
			out, err := cmd.CombinedOutput()
			if (err == nil) != (row.want == nil) {
				t.Errorf("%v: %s", err, out)
			}
			for _, want := range row.want {
				if strings.Count(string(out), "\n") != len(row.want) || !strings.Contains(string(out), want) {
					t.Errorf("it says %swant %q", out, row.want)
				}
			}
		})
	}
}
