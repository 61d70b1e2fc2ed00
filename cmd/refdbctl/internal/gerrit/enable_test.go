package gerrit

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/site"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/gerrit"
	"github.com/globalrefdb/globalrefdb/site/projects"
)

func TestRulesAreExtendedByWhatGerritNeeds(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		rules         string
		lacks, refuse []string // before and after they were extended
	}{
		{"", gerritPatterns, nil},
		{"alsoRef refs/changes/*", []string{"refs/draft-comments/*"}, nil},
		{"ref refs/heads/*\nalsoRef refs/changes/*\nalsoRef refs/draft-comments/*", nil, nil},
		// An alsoRef does not bring back what a skipRef leaves out: an operator has to change that.
		{"alsoRef refs/draft-comments/*\nskipRef refs/changes/*", []string{"refs/changes/*"}, []string{"refs/changes/*"}},
	} {
		lacks := func(p driver.Project) []string {
			ruled, err := projects.WithRulesOf(&config.Config{}, p)
			if err != nil {
				t.Fatal(err)
			}
			return unguardedPatterns(ruled, p.Project)
		}
		p := driver.Project{Project: "team/app", Rules: c.rules}
		next, err := withAlso(p, lacks(p))
		if err != nil || !slices.Equal(lacks(p), c.lacks) || !slices.Equal(lacks(next), c.refuse) {
			t.Errorf("%q lacks %q, became %q and lacks %q, %v", c.rules, lacks(p), next.Rules, lacks(next), err)
		}
	}
}

func TestChangesAreDescribed(t *testing.T) {
	t.Parallel()
	for want, c := range map[string]gerrit.Change{
		"f k: b, was a":       {Where: "f", What: "k", Before: "a", After: "b"},
		"f k: b":              {Where: "f", What: "k", After: "b"},
		"f k: removed, was a": {Where: "f", What: "k", Before: "a"},
		`f k: b\n`:            {Where: "f", What: "k", After: "b\n"},
	} {
		if got := describeChange(c); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestACommandThatChangesTheConfigurationCanBeTyped(t *testing.T) {
	t.Parallel()
	got := commandsOf(site.Flags{Config: "/etc/site.config"}, []config.Edit{{"--add", "guard.alsoRef", "refs/changes/*"}, {"--unset-all", "site.gerrit"}})
	want := "git config -f /etc/site.config --add guard.alsoRef 'refs/changes/*'; git config -f /etc/site.config --unset-all site.gerrit"
	if got != want {
		t.Errorf("%s", got)
	}
}

func TestAPathMayLeadThroughSymbolicLinks(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	real, link := filepath.Join(dir, "real"), filepath.Join(dir, "link")
	if err := os.Mkdir(real, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(real, link); err != nil {
		t.Fatal(err)
	}
	if !samePath(link, real) || !samePath(real, real) || samePath(dir, real) || samePath("", real) {
		t.Error("paths are not compared as the directories that they lead to")
	}
}
