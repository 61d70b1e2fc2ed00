//go:build linux

package sites

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A quietRow is something that happens in a site's repository without a push.
// Before it, refs/heads/x holds A, refs/heads/y B and refs/tags/v A, at both sites
// and in the database.
type quietRow struct {
	name string
	do   func(c *cluster) error
	// after is what the database and the repository have of those three then; nil:
	// what they had.
	after map[string]string
	// refused, unless empty, says that git must fail, and print that.
	refused string
}

// inRepo runs git in eu's repository.
func inRepo(args ...string) func(*cluster) error {
	return func(c *cluster) error {
		_, err := c.g.try(c.eu.repo(project), c.spell(args)...)
		return err
	}
}

// spell replaces letters by the names of objects.
func (c *cluster) spell(args []string) (spelt []string) {
	object := strings.NewReplacer("{A}", c.h.a, "{B}", c.h.b, "{C}", c.h.c, "{US}", c.us.repo(project))
	for _, arg := range args {
		spelt = append(spelt, object.Replace(arg))
	}
	return spelt
}

// all does one thing after the other.
func all(steps ...func(*cluster) error) func(*cluster) error {
	return func(c *cluster) error {
		for _, do := range steps {
			if err := do(c); err != nil {
				return err
			}
		}
		return nil
	}
}

// asEarlierReplica runs git update-ref with that input, marked as a daemon of an earlier version
// marked a git that followed the database.
func asEarlierReplica(input string) func(*cluster) error {
	return func(c *cluster) error {
		cmd := c.g.command(c.eu.repo(project), "update-ref", "--stdin")
		cmd.Env = append(cmd.Env[:len(cmd.Env):len(cmd.Env)], "REFDB_REPLICA=1")
		cmd.Stdin = strings.NewReader(c.spell([]string{input})[0])
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	}
}

// byHand sets a ref of us without hooks.
func byHand(args ...string) func(*cluster) error {
	return func(c *cluster) error {
		_, err := c.g.try(c.us.repo(project), append([]string{"-c", "core.hooksPath=/dev/null"}, c.spell(args)...)...)
		return err
	}
}

var packed = inRepo("-c", "core.hooksPath=/dev/null", "pack-refs", "--all")

var quietRows = []quietRow{
	{name: "gc", do: inRepo("gc", "--quiet", "--prune=now")},
	{name: "pack-refs", do: inRepo("pack-refs", "--all")},
	{name: "pack-refs with the hooks off", do: packed},
	{name: "pack-refs of what is packed", do: all(packed, inRepo("pack-refs", "--all"))},
	{name: "refs that are a site's own", do: all(
		inRepo("update-ref", "refs/peer/us/x", "{C}"), inRepo("update-ref", "-d", "refs/peer/us/x"))},
	{name: "HEAD elsewhere", do: all(
		inRepo("symbolic-ref", "HEAD", "refs/heads/x"), inRepo("symbolic-ref", "HEAD", "refs/heads/main"))},
	{name: "fetch that brings nothing new", do: inRepo("fetch", "--quiet", "--prune", "{US}", "+refs/*:refs/*")},

	{
		name: "update-ref without an old value", do: inRepo("update-ref", "refs/heads/x", "{B}"),
		after: map[string]string{"refs/heads/x": "B", "refs/heads/y": "B", "refs/tags/v": "A"},
	},
	{
		name: "update-ref -d without an old value", do: inRepo("update-ref", "-d", "refs/heads/x"),
		after: map[string]string{"refs/heads/y": "B", "refs/tags/v": "A"},
	},
	{
		name: "update-ref -d without an old value, packed", do: all(packed, inRepo("update-ref", "-d", "refs/heads/x")),
		after: map[string]string{"refs/heads/y": "B", "refs/tags/v": "A"},
	},
	{
		name: "branch -D", do: inRepo("branch", "-D", "x"),
		after: map[string]string{"refs/heads/y": "B", "refs/tags/v": "A"},
	},
	{
		name: "branch -D, packed", do: all(packed, inRepo("branch", "-D", "x", "y")),
		after: map[string]string{"refs/tags/v": "A"},
	},
	{
		name: "branch -D, loose and packed", do: all(packed, inRepo("update-ref", "refs/heads/x", "{C}"), inRepo("branch", "-D", "x")),
		after: map[string]string{"refs/heads/y": "B", "refs/tags/v": "A"},
	},
	{
		name: "tag -d", do: inRepo("tag", "-d", "v"),
		after: map[string]string{"refs/heads/x": "A", "refs/heads/y": "B"},
	},
	{
		name: "tag -d, packed", do: all(packed, inRepo("tag", "-d", "v")),
		after: map[string]string{"refs/heads/x": "A", "refs/heads/y": "B"},
	},
	{
		name: "fetch --prune of a peer that has less",
		do:   all(byHand("update-ref", "-d", "refs/heads/x"), inRepo("fetch", "--quiet", "--prune", "{US}", "+refs/*:refs/*", "^refs/peer/*")),
		// It is not marked as replication: it is a deletion like any other.
		after: map[string]string{"refs/heads/y": "B", "refs/tags/v": "A"},
	},
	{
		name: "a git that follows for a daemon of an earlier version", do: asEarlierReplica("update refs/heads/x {B} {A}\n"),
		refused: "another version",
	},
	{
		name: "a site that is behind", do: all(
			func(c *cluster) error { c.us.pushed("+" + c.h.c + ":refs/heads/x"); return nil },
			inRepo("update-ref", "refs/heads/x", "{B}")),
		refused: "refs/heads/x",
		after:   map[string]string{"refs/heads/x": "C", "refs/heads/y": "B", "refs/tags/v": "A"},
	},
}

func TestWhatIsNoPushIsEitherNothingToTheDatabaseOrWhatItSays(t *testing.T) {
	eachStorage(t, func(t *testing.T, g *git, kind storage) {
		t.Parallel()
		c := newCluster(t, g, design{storage: kind})
		object := map[string]string{"A": c.h.a, "B": c.h.b, "C": c.h.c}
		before := map[string]string{"refs/heads/x": "A", "refs/heads/y": "B", "refs/tags/v": "A"}
		c.eu.pushed(c.h.b+":refs/heads/main", c.h.c+":refs/heads/c")
		for _, row := range quietRows {
			t.Run(row.name, func(t *testing.T) {
				if testing.Short() && strings.HasSuffix(row.name, ", packed") {
					t.Skip("left out by -short: the same with packed refs; make test-all runs it")
				}
				c := c.in(t)
				want := map[string]string{"refs/heads/main": c.h.b, "refs/heads/c": c.h.c}
				var args []string
				for ref, letter := range before {
					args = append(args, "+"+object[letter]+":"+ref)
				}
				c.eu.pushed(args...)
				c.us.sync()
				here := maps.Clone(before)
				err := row.do(c)
				switch {
				case row.refused == "" && err != nil:
					t.Errorf("it fails: %v", err)
				case row.refused != "" && (err == nil || !strings.Contains(err.Error(), row.refused)):
					t.Errorf("it should be refused with %q: %v", row.refused, err)
				}
				c.settled()
				if row.after != nil && row.refused == "" {
					here = row.after
				}
				there := row.after
				if there == nil {
					there = before
				}
				sameRefs(t, "the repository", c.eu.refs(project), with(want, here, object))
				sameRefs(t, "the database", c.global(project), with(want, there, object))
				c.caughtUp()
			})
		}
	})
}

// with returns m and those refs, with letters replaced by the names of objects.
func with(m, letters, object map[string]string) map[string]string {
	all := maps.Clone(m)
	for ref, letter := range letters {
		all[ref] = object[letter]
	}
	return all
}

// A symbolic ref belongs to its site: the database has none. A push to one either
// moves its target, at both sites, or is refused.
func TestASymbolicRefIsNeverGuardedItself(t *testing.T) {
	eachStorage(t, func(t *testing.T, g *git, kind storage) {
		t.Parallel()
		c := newCluster(t, g, design{storage: kind})
		c.eu.pushed(c.h.a + ":refs/heads/target")
		c.eu.git("-c", "core.hooksPath=/dev/null", "symbolic-ref", "refs/heads/sym", "refs/heads/target")
		p := c.eu.push(c.h.b + ":refs/heads/sym")
		c.settled()
		want := map[string]string{"refs/heads/target": c.h.a}
		if p.ok {
			want["refs/heads/target"] = c.h.b
		} else if !strings.Contains(p.said, "symbolic") {
			t.Errorf("the client reads %s", p.said)
		}
		sameRefs(t, "the database", c.global(project), want)
		want["refs/heads/sym"] = want["refs/heads/target"]
		sameRefs(t, "the repository", c.eu.refs(project), want)
		c.us.sync()
		if got := c.us.refs(project)["refs/heads/sym"]; got != "" {
			t.Errorf("the other site has it: %s", got)
		}
	})
}

// A symref below refs/heads is refused where git asks its hook about it.
func TestNoSymbolicRefIsMadeWhereGitAsks(t *testing.T) {
	eachGit(t, func(t *testing.T, g *git) {
		c := newCluster(t, g, design{})
		c.eu.pushed(c.h.a + ":refs/heads/target")
		_, err := g.try(c.eu.repo(project), "symbolic-ref", "refs/heads/sym", "refs/heads/target")
		if asks, known := g.measured(); known && asks != (err != nil) {
			t.Errorf("symbolic-ref: %v", err)
		}
		sameRefs(t, "the database", c.global(project), map[string]string{"refs/heads/target": c.h.a})
	})
}

func TestAHookOfTheAdministratorRunsBeforeOurs(t *testing.T) {
	eachGit(t, func(t *testing.T, g *git) {
		c := newCluster(t, g, design{})
		repo := c.eu.repo(project)
		c.eu.must("site", "disable", repo)
		recordIn(t, c.h, repo, "update")
		writeScript(t, filepath.Join(repo, "hooks/reference-transaction"), "[ $1 != prepared ] || ! grep -q forbidden\n")
		c.eu.must("site", "enable", "--new", repo)
		c.eu.refused("", c.h.a+":refs/heads/forbidden")
		c.eu.pushed(c.h.a + ":refs/heads/allowed")
		c.settled()
		sameRefs(t, "the database", c.global(project), map[string]string{"refs/heads/allowed": c.h.a})
		c.caughtUp()
	})
}

func TestAPreReceiveHookOfTheAdministratorRunsBeforeOurs(t *testing.T) {
	eachGit(t, func(t *testing.T, g *git) {
		c := newCluster(t, g, design{})
		repo := c.eu.repo(project)
		c.eu.must("site", "disable", repo)
		const script = `
[ $# = 0 ] && [ -n "$GIT_QUARANTINE_PATH" ] || exit 1
cat >told
! grep -q forbidden told
`
		hook := filepath.Join(repo, "hooks/pre-receive")
		writeScript(t, hook, script)
		c.eu.must("site", "enable", "--new", repo)
		url := serveHTTP(t, g, c.eu.root) + "/" + project + ".git"
		if p := c.h.push(t, url, c.h.a+":refs/heads/forbidden", c.h.a+":refs/heads/free"); p.ok || len(p.accepted()) > 0 {
			t.Errorf("the client was told %+v", p)
		}
		c.eu.pushed(c.h.a + ":refs/heads/x")
		if p := c.h.push(t, url, c.h.b+":refs/heads/x", c.h.a+":refs/heads/y"); !p.ok {
			t.Errorf("the client was told %+v", p)
		}
		told, err := os.ReadFile(filepath.Join(repo, "told"))
		want := fmt.Sprintf("%s %s refs/heads/x\n%s %s refs/heads/y\n", c.h.a, c.h.b, c.h.zero, c.h.a)
		if err != nil || string(told) != want {
			t.Errorf("the hook was told %q, not %q: %v", told, want, err)
		}
		c.settled()
		sameRefs(t, "the database", c.global(project), map[string]string{"refs/heads/x": c.h.b, "refs/heads/y": c.h.a})
		c.eu.must("site", "disable", repo)
		if text, err := os.ReadFile(hook); err != nil || string(text) != "#!/bin/sh\n"+script {
			t.Errorf("disabling does not bring it back: %q, %v", text, err)
		}
	})
}
