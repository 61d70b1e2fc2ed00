package config_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/globalrefdb/globalrefdb/site/config"
)

func TestRefsWithAMeaning(t *testing.T) {
	t.Parallel()
	for ref, want := range map[string]struct{ in, like string }{
		"refs/peer/eu/heads/x":          {in: "refs/peer/"},
		"refs/refdb/kept/1":             {in: "refs/refdb/"},
		"refs/replace/0123":             {in: "refs/replace/"},
		"refs/worktree/x":               {in: "refs/worktree/"},
		"refs/multi-site/version":       {in: "refs/multi-site/"},
		"refs/multi-site/version/value": {in: "refs/multi-site/"},
		"refs/multi-site/other":         {in: "refs/multi-site/"},
		"refs/multi-sites":              {},
		"refs/peers/x":                  {},
		"refs/heads/refs/peer/x":        {},
		"refs/Replace/0123":             {like: "refs/replace/"},
		"refs/PEER/eu/heads/x":          {like: "refs/peer/"},
		"refs/refDB/x":                  {like: "refs/refdb/"},
		"refs/Multi-Site/version":       {like: "refs/multi-site/"},
		"refs/Multi-Site/version/value": {like: "refs/multi-site/"},
		"refs/Bisect/bad":               {like: "refs/bisect/"},
		"refs/Bisect":                   {like: "refs/bisect/"},
		"refs/rewrittEn/onto":           {like: "refs/rewritten/"},
		"refs/wor\u212atree/x":          {like: "refs/worktree/"}, // the sign of the kelvin
		"refs/heads/main":               {},
		"refs/sites/eu":                 {},
		"refs/unpacked/x/eu":            {},
	} {
		in, _ := config.Reserved(ref)
		like, _ := config.Resembles(ref)
		if in.Prefix != want.in || like.Prefix != want.like {
			t.Errorf("%s: in %q, resembles %q", ref, in.Prefix, like.Prefix)
		}
		if guardable := want.in == "" || want.in == "refs/replace/"; config.Guardable(ref) != guardable {
			t.Errorf("%s: guardable is %v", ref, !guardable)
		}
	}
}

func TestTheDocumentsHaveAllNamesWithAMeaning(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/GIT.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(text), "#### Names with a meaning\n")
	table, _, _ = strings.Cut(table, "\n#")
	for _, n := range config.Namespaces {
		if !strings.Contains(table, "| `"+strings.TrimSuffix(n.Prefix, "/")) {
			t.Errorf("docs/GIT.md lacks a row of %s", n.Prefix)
		}
	}
}

// Whoever could push to it could make sites up that all others wait for.
func TestNoRepositoryIsTheProjectOfTheSites(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	repo := filepath.Join(root, config.SitesProject+".git")
	for _, name := range []string{"HEAD", "objects", "refs"} {
		if err := os.MkdirAll(filepath.Join(repo, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	c, err := load(t, "[site]\nname = x\nroot = "+root)
	if err != nil {
		t.Fatal(err)
	}
	if r, err := c.Find(repo); !errors.Is(err, config.ErrNotConfigured) {
		t.Errorf("by its path: %+v, %v", r, err)
	}
	if r, err := c.Repository(config.SitesProject); !errors.Is(err, config.ErrNotConfigured) {
		t.Errorf("by its name: %+v, %v", r, err)
	}
	if path, err := c.NewPath(config.SitesProject); !errors.Is(err, config.ErrNotConfigured) {
		t.Errorf("a new one: %q, %v", path, err)
	}
	if all, err := c.Repositories(); err != nil || len(all) != 0 {
		t.Errorf("found: %+v, %v", all, err)
	}
	if _, err := load(t, "[site]\nname = x\n[repository \""+config.SitesProject+"\"]\npath = "+repo); err == nil {
		t.Error("the configuration may name one")
	}
}
