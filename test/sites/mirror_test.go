//go:build linux

package sites

import (
	"strings"
	"testing"
)

// A mirror of a repository elsewhere is fetched from cron at one site, and served by all.
func TestWhatOneSiteFetchesForAMirrorComesToTheOthers(t *testing.T) {
	t.Parallel()
	all, err := gits()
	g := must(t, all, err)[0]
	c := newCluster(t, g, design{h: newHistory(t, g, files.objects, 1, 1), extra: storing})
	upstream := t.TempDir()
	g.initBare(t, upstream, files)
	push := func(refspecs ...string) {
		t.Helper()
		g.run(t, c.h.dir, append([]string{"push", "--quiet", upstream}, refspecs...)...)
	}
	for _, s := range []*server{c.eu, c.us} {
		s.git("remote", "add", "--mirror=fetch", "upstream", upstream)
	}
	const found = "remote.upstream.fetch"
	check := func(s *server, says string) {
		t.Helper()
		out, err := s.run("site", "check")
		if (err == nil) != (says == "") || says != "" && (!strings.Contains(out, found) || !strings.Contains(out, says)) {
			t.Errorf("site check at %s: %v: %s", s.name, err, out)
		}
		said, err := s.command("site", "enable", project).CombinedOutput()
		if err != nil || strings.Contains(string(said), found) != (says != "") {
			t.Errorf("site enable at %s: %v: %s", s.name, err, said)
		}
	}
	check(c.eu, "project set team/app --mirror-at eu")
	c.us.must("project", "set", project, "--mirror-at", "eu")
	check(c.eu, "")
	check(c.us, "a mirror that the site eu fetches")

	for _, step := range []struct {
		name     string
		upstream []string
		fetch    []string
		want     map[string]string
	}{
		{"everything is new", []string{c.h.b + ":refs/heads/main", c.h.a + ":refs/heads/old", c.h.tag + ":refs/tags/v1"}, []string{"fetch", "--quiet", "--prune", "upstream"},
			map[string]string{"refs/heads/main": c.h.b, "refs/heads/old": c.h.a, "refs/tags/v1": c.h.tag}},
		{"a branch goes on, one is set back, and one is gone", []string{"+" + c.h.c + ":refs/heads/main", ":refs/heads/old", c.h.leaves[0] + ":refs/heads/new"},
			[]string{"fetch", "--quiet", "--prune", "upstream"}, map[string]string{"refs/heads/main": c.h.c, "refs/heads/new": c.h.leaves[0], "refs/tags/v1": c.h.tag}},
		{"by git remote update", []string{"+" + c.h.a + ":refs/heads/main", ":refs/heads/new"}, []string{"remote", "update", "--prune"},
			map[string]string{"refs/heads/main": c.h.a, "refs/tags/v1": c.h.tag}},
	} {
		push(step.upstream...)
		c.eu.git(step.fetch...)
		c.settled()
		sameRefs(t, step.name+": the database", c.global(project), step.want)
		c.us.follows(project)
		sameRefs(t, step.name+": us", c.us.refs(project), step.want)
	}
	c.us.must("site", "store", "verify", project)

	// What git push believes of the mirror is never written, declared or not.
	c.eu.pushed(c.h.b + ":refs/heads/other")
	if _, err := g.try(c.eu.repo(project), "push", "upstream", c.h.a+":refs/heads/other"); err == nil || !strings.Contains(err.Error(), "git push would undo") {
		t.Errorf("git push in the mirror: %v", err)
	}
	if got := c.eu.refs(project)["refs/heads/other"]; got != c.h.b {
		t.Errorf("it moved the branch to %s", got)
	}

	c.eu.must("project", "set", project, "--no-mirror")
	check(c.eu, "project set team/app --mirror-at eu")
}
