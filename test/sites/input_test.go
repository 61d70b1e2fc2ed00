//go:build linux

package sites

import (
	"bytes"
	"crypto/sha1"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/sqlite"
	"github.com/globalrefdb/globalrefdb/site/config"
)

// Bad input: the answer is a line that says what is wrong, the push is refused, and
// nothing is changed.

func TestARepositoryThatIsNotTheSitesIsRefused(t *testing.T) {
	for name, place := range map[string]func(c *cluster, outside string) (path string){
		"outside of the root": func(_ *cluster, outside string) string { return outside },
		"a project whose name leads out of the root": func(c *cluster, outside string) string {
			link := c.eu.repo("evil")
			if err := os.Symlink(outside, link); err != nil {
				c.Fatal(err)
			}
			return link
		},
	} {
		t.Run(name, func(t *testing.T) {
			eachGit(t, func(t *testing.T, g *git) {
				c := newCluster(t, g, design{})
				// Its hooks are a good repository's.
				outside := filepath.Join(shortDir(t), "outside.git")
				if out, err := exec.Command("cp", "-a", c.eu.repo(project), outside).CombinedOutput(); err != nil {
					t.Fatalf("%v: %s", err, out)
				}
				p := c.h.push(t, place(c, outside), c.h.a+":refs/heads/x")
				if p.ok || !strings.Contains(p.said, "not a repository of this site") {
					t.Errorf("the client was told %+v", p)
				}
				sameRefs(t, "the repository", g.refs(t, outside), nil)
				sameRefs(t, "the database", c.global(project), nil)
				for _, args := range [][]string{{"enable", outside}, {"check", outside}, {"sync", "--from", c.us.repo(project), outside}} {
					if out, err := c.eu.run(append([]string{"site"}, args...)...); err == nil {
						t.Errorf("site %q: %s", args, out)
					}
				}
			})
		})
	}
}

// Names come from the database, and so from other sites.
func TestAProjectWhoseNameLeadsOutOfTheRootIsNotCloned(t *testing.T) {
	t.Parallel()
	all, err := gits()
	g := must(t, all, err)[0]
	c := newCluster(t, g, design{extra: storing + "\tautoClone = true\n"})
	before := everything(t, c.us.dir)
	var names []string
	for i, name := range []string{"../outside", "a/../../outside", "/outside", "a//outside", "outside/.", "team/app.git/outside", "-outside/../.."} {
		if _, err := c.db.Projects().Put(t.Context(), driver.Project{Project: name, ID: fmt.Sprint("id-", i), Rules: "ref *", Mode: "enforce", Store: "all"}); err == nil {
			names = append(names, name)
		}
	}
	for _, name := range names {
		if out, err := c.us.run("site", "clone", "--", name); err == nil {
			t.Errorf("%s was cloned: %s", name, out)
		}
		c.us.behind(name, "can't be cloned")
	}
	c.eu.create("inside")
	c.us.clones("inside")
	for _, path := range everything(t, c.us.dir) {
		if !slices.Contains(before, path) && strings.Contains(path, "outside") {
			t.Errorf("made: %s", path)
		}
	}
	if _, err := os.Lstat("/outside.git"); err == nil {
		t.Error("made: /outside.git")
	}
}

// everything returns all paths below a directory.
func everything(t testing.TB, dir string) (paths []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		paths = append(paths, path)
		if errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
		return err
	})
	return must(t, paths, err)
}

func TestGarbageOnStdinOfTheHookIsRefused(t *testing.T) {
	eachGit(t, func(t *testing.T, g *git) {
		c := newCluster(t, g, design{})
		c.eu.pushed(c.h.a + ":refs/heads/x")
		id := c.h.a
		for name, in := range map[string]string{
			"a word":             "garbage\n",
			"two fields":         id + " " + id + "\n",
			"no line feed":       id + " " + c.h.b + " refs/heads/x",
			"not hexadecimal":    strings.Repeat("z", 40) + " " + id + " refs/heads/x\n",
			"too short":          id[:39] + " " + id + " refs/heads/x\n",
			"NUL":                id + " " + c.h.b + " refs/heads/x\x00y\n",
			"no name":            id + " " + c.h.b + " \n",
			"a name with spaces": id + " " + c.h.b + " refs/heads/x y\n",
			"a path":             id + " " + c.h.b + " refs/heads/../../x\n",
			"binary":             string([]byte{0xff, 0xfe, 0, 1, 2, 3, '\n'}),
			"an empty line":      "\n",
			"a long line":        strings.Repeat("x", 1<<20) + "\n",
			"half of it":         id + " " + c.h.b + " refs/heads/x\n" + "garbage\n",
		} {
			t.Run(name, func(t *testing.T) {
				for _, state := range []string{"prepared", "committed", "aborted"} {
					out, err := c.hook("reference-transaction", in, state)
					if state == "prepared" && (err == nil || strings.TrimSpace(out) == "") {
						t.Errorf("%s: %v: %q", state, err, out)
					}
					if state != "prepared" && err != nil {
						t.Errorf("%s: %v: %q", state, err, out)
					}
					if strings.Contains(out, "panic") || strings.Contains(out, "goroutine") {
						t.Errorf("%s: %s", state, out)
					}
				}
				c.settled()
				sameRefs(t, "the database", c.global(project), map[string]string{"refs/heads/x": id})
			})
		}
		t.Run("a strange call", func(t *testing.T) {
			for _, args := range [][]string{{}, {"no-such-state"}, {"prepared", "and", "more"}} {
				if out, _ := c.hook("reference-transaction", id+" "+c.h.b+" refs/heads/x\n", args...); strings.Contains(out, "panic") {
					t.Errorf("%q: %s", args, out)
				}
			}
			if out, err := c.hook("update", "", "refs/heads/x", "garbage", "garbage"); err == nil {
				t.Errorf("update with garbage: %s", out)
			}
			c.settled()
			sameRefs(t, "the database", c.global(project), map[string]string{"refs/heads/x": id})
		})
	})
}

// hook calls a hook of eu by hand.
func (c *cluster) hook(name, in string, args ...string) (string, error) {
	cmd := exec.Command(filepath.Join(c.eu.root, config.HooksDir, "current", name), args...)
	cmd.Dir = c.eu.repo(project)
	cmd.Env = append(slices.Clone(c.g.env), "GIT_DIR=.")
	cmd.Stdin = strings.NewReader(in)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	return out.String(), err
}

func TestWithoutASocketPushesAreRefused(t *testing.T) {
	eachGit(t, func(t *testing.T, g *git) {
		c := newCluster(t, g, design{})
		link := filepath.Join(c.eu.repo(project), "refdb/socket")
		for name, put := range map[string]func() error{
			"a file":            func() error { return os.WriteFile(link, nil, 0o600) },
			"a link to a file":  func() error { return os.Symlink(c.eu.config, link) },
			"a link to nothing": func() error { return os.Symlink("/nowhere/at/all", link) },
			"a directory":       func() error { return os.Mkdir(link, 0o700) },
			"nothing":           func() error { return nil },
			"a link to itself":  func() error { return os.Symlink("socket", link) },
			"a very long link":  func() error { return os.Symlink("/"+strings.Repeat("long/", 60)+"sock", link) },
		} {
			t.Run(name, func(t *testing.T) {
				c := c.in(t)
				if err := os.RemoveAll(link); err != nil {
					t.Fatal(err)
				}
				if err := put(); err != nil {
					t.Fatal(err)
				}
				p := c.eu.impatient(300 * time.Millisecond).push(c.h.a + ":refs/heads/x")
				if p.ok || !strings.Contains(p.remote(), "refdb: ") || !strings.Contains(p.remote(), "nothing was changed") {
					t.Errorf("the client was told %+v", p)
				}
				sameRefs(t, "the repository", c.eu.refs(project), nil)
			})
		}
		t.Run("check --repair mends it", func(t *testing.T) {
			c := c.in(t)
			if err := os.RemoveAll(link); err != nil {
				t.Fatal(err)
			}
			out, err := c.eu.run("site", "check", "--repair", c.eu.repo(project))
			if p := c.eu.push(c.h.a + ":refs/heads/x"); !p.ok {
				t.Errorf("after %v %s: %+v", err, out, p)
			}
		})
	})
}

func TestADatabaseOfAnotherSchemaVersionIsRefused(t *testing.T) {
	eachGit(t, func(t *testing.T, g *git) {
		c := newCluster(t, g, design{})
		c.eu.pushed(c.h.a + ":refs/heads/x")
		m, err := sqlite.Migrator(t.Context(), c.eu.db)
		must(t, m, err)
		defer m.Close()
		if err := m.To(t.Context(), 3); err != nil { // the last version without intents
			t.Fatal(err)
		}
		c.eu.impatient(time.Second).refused("nothing was changed", c.h.b+":refs/heads/x")
		c.eu.kill()
		// A new daemon waits for the right version, and says so to the operator.
		c.eu.start()
		c.eu.impatient(time.Second).refused("nothing was changed", c.h.b+":refs/heads/x")
		eventually(t, "a status that says what to do", func() error {
			status, err := c.eu.status()
			if err == nil && (status.Database || !strings.Contains(status.PresenceError+status.DatabaseError, "refdbctl migrate up")) {
				err = fmt.Errorf("%+v", status)
			}
			return err
		})
		sameRefs(t, "the repository", c.eu.refs(project), map[string]string{"refs/heads/x": c.h.a})
		if err := m.Up(t.Context()); err != nil {
			t.Fatal(err)
		}
		// The migration down removed the projects, and the history: that is a loss like any other.
		c.us.stop()
		c.us.start()
		enable := func(s *server, how string) {
			s.git("config", "--unset", "refdb.projectid")
			eventually(t, "a daemon that serves", func() error {
				if _, err := s.run("recover", "--reason", "the history went with the schema", "--yes"); err != nil {
					return err
				}
				_, err := s.run("site", "enable", how, s.repo(project))
				return err
			})
		}
		enable(c.eu, "--new")
		enable(c.us, "--copy")
		eventually(t, "a push with the right version", func() error {
			if p := c.eu.push(c.h.b + ":refs/heads/x"); !p.ok {
				return errors.New(p.said)
			}
			return nil
		})
		eventually(t, "a daemon that serves at the other site, too", func() error {
			status, err := c.us.status()
			if err == nil && !status.OK() {
				err = fmt.Errorf("%+v", status)
			}
			return err
		})
		c.caughtUp()
	})
}

func TestANameThatIsNotUTF8IsRefusedAndOthersGoOn(t *testing.T) {
	eachGit(t, func(t *testing.T, g *git) {
		c := newCluster(t, g, design{})
		p := c.eu.push(c.h.a+":refs/heads/\xff\xfe", c.h.a+":refs/heads/x")
		if p.ok || !strings.Contains(p.remote(), `\xff`) || p.status["refs/heads/x"] != '*' {
			t.Errorf("the client was told %+v", p)
		}
		c.settled()
		want := map[string]string{"refs/heads/x": c.h.a}
		sameRefs(t, "the repository", c.eu.refs(project), want)
		sameRefs(t, "the database", c.global(project), want)
		// Without the update hook, too.
		if _, err := g.try(c.eu.repo(project), "update-ref", "refs/heads/\xff\xfe", c.h.a); err == nil || !strings.Contains(err.Error(), `\xff`) {
			t.Errorf("update-ref: %v", err)
		}
		sameRefs(t, "the repository", c.eu.refs(project), want)
		c.caughtUp()
	})
}

// Git shows pre-receive all names that a client has sent, and refuses invalid ones
// after it, one by one.
func TestAnInvalidNameIsRefusedAndOthersGoOn(t *testing.T) {
	eachGit(t, func(t *testing.T, g *git) {
		c := newCluster(t, g, design{})
		c.eu.pushed(c.h.a + ":refs/heads/x")
		var in bytes.Buffer
		for _, line := range []string{
			c.h.zero + " " + c.h.a + " refs/heads/with a space\x00report-status",
			c.h.zero + " " + c.h.a + " refs/heads/two..dots",
			c.h.zero + " " + c.h.a + " refs/heads/y",
		} {
			fmt.Fprintf(&in, "%04x%s", len(line)+4, line)
		}
		pack := "PACK\x00\x00\x00\x02\x00\x00\x00\x00" // without objects
		fmt.Fprintf(&in, "0000%s%s", pack, sha1.Sum([]byte(pack)))
		said := g.feed(t, c.eu.root, in.String(), "receive-pack", c.eu.repo(project))
		for _, line := range []string{"ng refs/heads/with a space funny refname", "ng refs/heads/two..dots funny refname", "ok refs/heads/y"} {
			if !strings.Contains(said, line) {
				t.Errorf("the client was told %q, without %q", said, line)
			}
		}
		c.settled()
		sameRefs(t, "the database", c.global(project), map[string]string{"refs/heads/x": c.h.a, "refs/heads/y": c.h.a})
		c.caughtUp()
	})
}
