package config_test

import (
	"testing"

	"github.com/globalrefdb/globalrefdb/site/config"
)

func TestWhatGerritKeepsOut(t *testing.T) {
	t.Parallel()
	for ref, want := range map[string]bool{
		"refs/heads/main":                  true,
		"refs/meta/config":                 true,
		"refs/tags/v1":                     true,
		"refs/changes/01/1/1":              false,
		"refs/changes/01/1/meta":           true,
		"refs/changes/01/1/robot-comments": true,
		"refs/changesets/x":                true,
		"refs/cache-automerge/ab/cdef":     false,
		"refs/draft-comments/01/1/1000":    false,
		"refs/multi-site/version":          false,
		"refs/multi-site/version/value":    false,
		"refs/multi-sites":                 true,
		"HEAD":                             false,
	} {
		if config.GuardedByDefault(ref) != want {
			t.Errorf("%s: guarded by default is %v", ref, !want)
		}
	}
}

func TestGuards(t *testing.T) {
	t.Parallel()
	type key struct{ project, ref string }
	for _, c := range []struct {
		name, guard string
		want        map[key]bool
	}{
		{"by default", "", map[key]bool{
			{"a", "refs/heads/main"}:         true,
			{"any/thing", "refs/notes/x"}:    true,
			{"a", "HEAD"}:                    false,
			{"a", "ORIG_HEAD"}:               false,
			{"a", "refs/peer/eu/heads/x"}:    false,
			{"a", "refs/peers/x"}:            true,
			{"a", "refs/bisect/bad"}:         false,
			{"a", "refs/worktree/x"}:         false,
			{"a", "refs/rewritten/x"}:        false,
			{"a", "refs/changes/01/1/1"}:     false,
			{"a", "refs/multi-site/version"}: false,
		}},
		{"exact", "project = a\nref = refs/heads/main", map[key]bool{
			{"a", "refs/heads/main"}:   true,
			{"a", "refs/heads/main2"}:  false,
			{"a/b", "refs/heads/main"}: false,
			{"b", "refs/heads/main"}:   false,
		}},
		{"prefix", "project = team/*\nref = refs/heads/*", map[key]bool{
			{"team/a", "refs/heads/main"}: true,
			{"team", "refs/heads/main"}:   false,
			{"team/a", "refs/tags/v1"}:    false,
		}},
		{"a star in the middle is none", "ref = refs/*/main", map[key]bool{
			{"a", "refs/heads/main"}: false,
			{"a", "refs/*/main"}:     true,
		}},
		{"regex, of the whole name", "project = ^team-[0-9]+\nref = ^refs/(heads|tags)/.*", map[key]bool{
			{"team-1", "refs/heads/x"}:    true,
			{"team-12", "refs/tags/v1"}:   true,
			{"team-1/x", "refs/heads/x"}:  false,
			{"my/team-1", "refs/heads/x"}: false,
			{"team-1", "refs/notes/x"}:    false,
		}},
		{"an alternative of a regex does not escape", "ref = ^refs/heads/a|refs/heads/b.*", map[key]bool{
			{"a", "refs/heads/a"}:        true,
			{"a", "refs/heads/ab"}:       false,
			{"a", "refs/heads/bc"}:       true,
			{"a", "x/refs/heads/b"}:      false,
			{"a", "refs/x/refs/heads/b"}: false,
		}},
		{"several, and skipped ones", "project = a\nproject = b\nref = refs/heads/*\nref = refs/tags/*\nskipRef = refs/heads/wip/*\nskipRef = ^refs/tags/.*-rc[0-9]+", map[key]bool{
			{"a", "refs/heads/x"}:     true,
			{"b", "refs/tags/v1"}:     true,
			{"c", "refs/heads/x"}:     false,
			{"a", "refs/heads/wip/x"}: false,
			{"a", "refs/tags/v1-rc2"}: false,
		}},
		{"what Gerrit skips is skipped all the same", "ref = refs/changes/*", map[key]bool{
			{"a", "refs/changes/01/1/1"}:    false,
			{"a", "refs/changes/01/1/meta"}: true,
		}},
		{"unless it is guarded, too", "project = a\nref = refs/heads/*\nalsoRef = refs/changes/*\nalsoRef = refs/draft-comments/*\nskipRef = ^.*/robot-comments", map[key]bool{
			{"a", "refs/heads/x"}:                     true,
			{"a", "refs/tags/v1"}:                     false,
			{"a", "refs/changes/01/1/1"}:              true,
			{"a", "refs/changes/01/1/meta"}:           true,
			{"a", "refs/changes/01/1/robot-comments"}: false,
			{"a", "refs/draft-comments/01/1/1000"}:    true,
			{"b", "refs/changes/01/1/1"}:              false,
		}},
		{"what is a site's own never is", "alsoRef = *", map[key]bool{
			{"a", "refs/cache-automerge/ab/cdef"}: false,
			{"a", "refs/multi-site/version"}:      false,
			{"a", "refs/multi-site/x"}:            false,
			{"a", "refs/peer/eu/heads/x"}:         false,
			{"a", "refs/worktree/x"}:              false,
			{"a", "HEAD"}:                         false,
			{"a", "refs/changes/01/1/1"}:          true,
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			config, err := load(t, "[site]\nname = x\n[guard]\n"+c.guard)
			if err != nil {
				t.Fatal(err)
			}
			for k, want := range c.want {
				if got := config.Guards(k.project, k.ref); got != want {
					t.Errorf("%s %s: guarded is %v", k.project, k.ref, got)
				}
			}
		})
	}
}
