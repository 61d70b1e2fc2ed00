//go:build linux

package sites

import (
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/internal/faultproxy"
	"github.com/globalrefdb/globalrefdb/site/smarthttp"
	"github.com/globalrefdb/globalrefdb/site/wire"
)

// brief is how long sites wait for a database that does not answer.
const brief = "\ttimeout = 500ms\n"

// The database is cut off from one site for a while, with a push of that site between
// prepared and committed.
func TestWithoutTheDatabasePushesAreRefusedWithAReasonAndGoOnByThemselvesAfterwards(t *testing.T) {
	length := time.Duration(0)
	if long() {
		length = time.Minute
	}
	eachGit(t, func(t *testing.T, g *git) {
		c, way := clusterWithSlowLink(t, g, files)
		url := serveHTTP(t, g, c.eu.root) + "/" + project + ".git"
		c.eu.pushed(c.h.a+":refs/heads/x", c.h.a+":refs/heads/y")
		c.us.sync()
		gate := gateIn(t, c.eu.repo(project), "reference-transaction")
		gate.shut("committed")
		told := c.eu.startPush(c.h.b + ":refs/heads/x")
		gate.waits("committed")
		c.eu.reconfigure(brief)
		way.Cut()
		cut := time.Now()
		gate.open("committed")

		for n := 0; n < 3 || time.Since(cut) < length; n++ {
			p := c.h.push(t, url, c.h.b+":refs/heads/y")
			if p.ok || !strings.Contains(p.remote(), "the global ref database ") || !strings.Contains(p.remote(), "nothing was changed") {
				t.Fatalf("push %d without the database: %+v", n, p)
			}
			// The pusher must not learn the database's address.
			if strings.Contains(p.said, way.Address()) && n == 0 {
				t.Errorf("the pusher reads the database's address: %s", p.said)
			}
		}
		// Git has done it, and ignores what its hook says then.
		if p := told(); !p.ok {
			t.Errorf("the push that was under way: %+v", p)
		}
		// The pending ref is closed to the other site, and no other ref is.
		c.us.refusedInVain("refs/heads/x", c.h.c+":refs/heads/x")
		c.us.pushed(c.h.a + ":refs/heads/z")
		if got := c.global(project)["refs/heads/x"]; got != c.h.a {
			t.Errorf("the database has %q", got)
		}
		if status, err := c.eu.status(); err != nil || status.Database || status.OK() {
			t.Errorf("the daemon's status without the database: %+v, %v", status, err)
		}

		way.restore(c)
		c.eu.reconfigure("")
		c.settled()
		if got := c.global(project)["refs/heads/x"]; got != c.h.b {
			t.Errorf("the database has %q", got)
		}
		c.caughtUp()
		eventually(t, "a push after the outage", func() error {
			if p := c.eu.push(c.h.b + ":refs/heads/y"); !p.ok {
				return fmt.Errorf("%+v", p)
			}
			return nil
		})
		c.caughtUp()
	})
}

// PostgreSQL is killed and started again, with pushes at both sides of it.
func TestADatabaseThatIsKilledAndComesBackLosesNothing(t *testing.T) {
	for _, state := range []string{"prepared", "committed"} {
		t.Run(state, func(t *testing.T) {
			if testing.Short() && state == "committed" {
				t.Skip("left out by -short: the same once git has done it; make test-all runs it")
			}
			eachGit(t, func(t *testing.T, g *git) {
				db := newPostgres(t)
				c := newCluster(t, g, design{database: func(testing.TB) database { return db }})
				c.eu.pushed(c.h.a + ":refs/heads/x")
				c.us.sync()
				gate := gateIn(t, c.eu.repo(project), "reference-transaction")
				gate.shut(state)
				told := c.eu.startPush(c.h.b + ":refs/heads/x")
				pack := parentOf(t, gate.waits(state))
				if state == "prepared" { // decided, and git has done nothing yet
					signal(t, pack, syscall.SIGSTOP)
					gate.open(state)
					eventually(t, "the intent", func() error {
						if c.intents() == 0 {
							return errPending
						}
						return nil
					})
				}
				for _, s := range []*server{c.eu, c.us} {
					s.reconfigure(brief)
				}
				db.crash()
				if state == "prepared" {
					signal(t, pack, syscall.SIGCONT)
				}
				gate.open(state)
				c.us.refused("", c.h.c+":refs/heads/x")
				if p := told(); !p.ok {
					t.Errorf("the push under way: %+v", p)
				}
				db.start()
				for _, s := range []*server{c.eu, c.us} {
					s.reconfigure("")
				}
				c.settled()
				if got := c.global(project)["refs/heads/x"]; got != c.h.b {
					t.Errorf("the database has %q", got)
				}
				c.caughtUp()
				eventually(t, "a push after the outage", func() error {
					if p := c.us.push("+" + c.h.c + ":refs/heads/x"); !p.ok {
						return fmt.Errorf("%+v", p)
					}
					return nil
				})
				c.caughtUp()
			})
		})
	}
}

// A daemon that is stopped serves what is prepared. A push that begins then waits for the next daemon.
func TestAGracefulStopFinishesWhatIsPrepared(t *testing.T) {
	eachGit(t, func(t *testing.T, g *git) {
		c := newCluster(t, g, design{})
		gate := gateIn(t, c.eu.repo(project), "reference-transaction")
		gate.shut("committed")
		told := c.eu.startPush(c.h.a + ":refs/heads/x")
		hook := gate.waits("committed")
		signal(t, hook, syscall.SIGSTOP) // so that others may pass the gate
		gate.open("committed")
		signal(t, c.eu.daemon.Process.Pid, syscall.SIGTERM)
		eventually(t, "the daemon to stop", func() error {
			status, err := c.eu.status()
			if err == nil && !status.Stopping {
				return errPending
			}
			return err
		})
		p, late := c.h.startPush(t, c.eu.repo(project), c.h.a+":refs/heads/y")
		eventually(t, "the push to wait for the next daemon", func() error {
			if !strings.Contains(p.out.String(), wire.DaemonRestarts) {
				return errPending
			}
			return nil
		})
		c.eu.git("update-ref", "refs/heads/z", c.h.a) // git may hold locks for it
		signal(t, hook, syscall.SIGCONT)
		if p := told(); !p.ok {
			t.Errorf("the push under way: %+v", p)
		}
		if !c.eu.daemon.wait(t) {
			t.Errorf("the daemon ended with %s", c.eu.daemon.ProcessState)
		}
		if n := c.intents(); n > 0 {
			t.Errorf("%d intents are left", n)
		}
		c.eu.start()
		if p := late(p); !p.ok {
			t.Errorf("the push that began while the daemon stopped: %+v", p)
		}
		c.caughtUp()
	})
}

// SIGHUP makes the daemon read its configuration again, with a push under way; one that is
// wrong changes nothing.
func TestAReloadDropsNothing(t *testing.T) {
	eachGit(t, func(t *testing.T, g *git) {
		c := newCluster(t, g, design{})
		gate := gateIn(t, c.eu.repo(project), "reference-transaction")
		gate.shut("committed")
		told := c.eu.startPush(c.h.a + ":refs/heads/x")
		pack := parentOf(t, gate.waits("committed"))
		signal(t, pack, syscall.SIGSTOP) // so that others may pass the gate
		gate.open("committed")
		c.eu.reconfigure("[guard]\n\tskipRef = refs/heads/free/*")
		c.eu.pushed(c.h.a + ":refs/heads/free/x") // the project's rules stay
		if c.global(project)["refs/heads/free/x"] == "" {
			t.Error("what the database's rules guard is not guarded")
		}
		signal(t, pack, syscall.SIGCONT)
		if p := told(); !p.ok {
			t.Errorf("the push under way: %+v", p)
		}
		c.settled()
		if got := c.global(project)["refs/heads/x"]; got != c.h.a {
			t.Errorf("the database has %q", got)
		}

		c.eu.configure("[guard]\n\tnoSuchKey = refs/heads/x")
		signal(t, c.eu.daemon.Process.Pid, syscall.SIGHUP)
		eventually(t, "a complaint", func() error {
			if !strings.Contains(strings.ToLower(c.eu.daemon.out.String()), "nosuchkey") {
				return errPending
			}
			return nil
		})
		c.eu.pushed(c.h.b + ":refs/heads/x")
		if got := c.global(project)["refs/heads/x"]; got != c.h.b {
			t.Errorf("the database has %q", got)
		}
		if status, err := c.eu.status(); err != nil || !status.OK() {
			t.Errorf("the daemon's status: %+v, %v", status, err)
		}
	})
}

// Pushers do not notice that a daemon is restarted.
func TestARestartOfTheDaemonGoesUnnoticed(t *testing.T) {
	eachGit(t, func(t *testing.T, g *git) {
		c := newCluster(t, g, design{})
		c.eu.pushed(c.h.a + ":refs/heads/x")
		c.eu.kill()
		told := c.eu.startPush(c.h.b + ":refs/heads/x")
		c.eu.start()
		if p := told(); !p.ok {
			t.Errorf("the push during the restart: %+v", p)
		}
		c.caughtUp()
	})
}

// A frozen daemon is like a missing one: pushes are refused.
func TestADaemonThatDoesNotAnswerMeansNo(t *testing.T) {
	eachGit(t, func(t *testing.T, g *git) {
		c := newCluster(t, g, design{})
		c.eu.pushed(c.h.a + ":refs/heads/x")
		signal(t, c.eu.daemon.Process.Pid, syscall.SIGSTOP)
		c.eu.impatient(time.Second).refused("the site daemon does not answer", c.h.b+":refs/heads/x")
		signal(t, c.eu.daemon.Process.Pid, syscall.SIGCONT)
		c.caughtUp()
		c.eu.pushed(c.h.b + ":refs/heads/x")
		c.caughtUp()
	})
}

// The daemon does not trust what git says in committed and aborted. A shell plays git here.
func TestLinesAboutWhatDidNotHappenChangeNothing(t *testing.T) {
	shell, err := filepath.EvalSymlinks("/bin/sh")
	if err != nil {
		t.Fatal(err)
	}
	eachGit(t, func(t *testing.T, g *git) {
		c := newCluster(t, g, design{extra: "\tgitExe = " + filepath.Base(shell)})
		c.eu.pushed(c.h.a+":refs/heads/x", c.h.b+":refs/heads/other")
		line := fmt.Sprintf("%s %s refs/heads/x", c.h.a, c.h.b)
		hook := func(state, line string) string {
			return fmt.Sprintf("echo %s | $(git config core.hooksPath)/reference-transaction %s\n", line, state)
		}
		move := func(to string) string {
			return "git -c core.hooksPath=/dev/null update-ref refs/heads/x " + to + "\n"
		}
		for _, row := range []struct {
			name, script, want string
		}{
			{"committed without prepared", hook("committed", line), c.h.a},
			{"aborted without prepared", hook("aborted", line), c.h.a},
			{"committed, and nothing was done", hook("prepared", line) + hook("committed", line), c.h.a},
			{"aborted, and nothing was done", hook("prepared", line) + hook("aborted", line), c.h.a},
			{"prepared, and the end of the process", hook("prepared", line), c.h.a},
			{"prepared twice", hook("prepared", line) + hook("prepared", line), c.h.a},
			{"aborted, though it was done", hook("prepared", line) + move(c.h.b) + hook("aborted", line), c.h.b},
			{"the end of the process, after it was done", hook("prepared", line) + move(c.h.b), c.h.b},
			{"committed 0 0", hook("prepared", line) + hook("committed", fmt.Sprintf("%s %s refs/heads/x", c.h.zero, c.h.zero)), c.h.a},
		} {
			t.Run(row.name, func(t *testing.T) {
				c := c.in(t)
				c.script(row.script + "exit 0\n")
				c.settled()
				want := map[string]string{"refs/heads/x": row.want, "refs/heads/other": c.h.b}
				sameRefs(t, "the site", c.eu.refs(project), want)
				sameRefs(t, "the database", c.global(project), want)
				c.eu.pushed("+" + c.h.a + ":refs/heads/x")
			})
		}
		t.Run("neither the old value nor the new one: kept, and said", func(t *testing.T) {
			c := c.in(t)
			c.g.run(t, c.eu.repo(project), "-c", "core.hooksPath=/dev/null", "fetch", "--quiet", c.h.dir, c.h.c)
			c.script(hook("prepared", line) + move(c.h.c) + "exit 0\n")
			eventually(t, "the alarm", func() error {
				status, err := c.eu.status()
				if err == nil && (len(status.Stuck) != 1 || status.Stuck[0].Ref != "refs/heads/x") {
					err = fmt.Errorf("%+v", status)
				}
				return err
			})
			if got := c.global(project)["refs/heads/x"]; got != c.h.a {
				t.Errorf("the database has %q", got)
			}
			c.eu.impatient(time.Second).refused("", "+"+c.h.b+":refs/heads/x")
			// The one that did it undoes it.
			c.script(move(c.h.b))
			c.settled()
			if got := c.global(project)["refs/heads/x"]; got != c.h.b {
				t.Errorf("the database has %q", got)
			}
			eventually(t, "the alarm's end", func() error { // it comes after the intent's
				status, err := c.eu.status()
				if err == nil && len(status.Stuck) > 0 {
					err = fmt.Errorf("%+v", status)
				}
				return err
			})
		})
	})
}

// script runs a shell script in eu's repository. The daemon takes its process for git.
func (c *cluster) script(text string) {
	c.Helper()
	cmd := c.g.command(c.eu.repo(project), "--version")
	cmd.Path, cmd.Args = "/bin/sh", []string{"sh", "-c", text}
	cmd.Env = append(slices.Clone(cmd.Env), "GIT_DIR=.")
	if out, err := cmd.CombinedOutput(); err != nil {
		c.Fatalf("%s: %v: %s", text, err, out)
	}
}

// A database that is cut off, and one whose answers don't come any more, are both away.
func TestReadersAreServedWhileTheDatabaseIsAwayIfThatIsAllowed(t *testing.T) {
	t.Parallel()
	all, err := gits()
	g := must(t, all, err)[0]
	c, way := clusterWithSlowLink(t, g, files)
	c.eu.pushed(c.h.a + ":refs/heads/main")
	c.us.sync()
	c.eu.reconfigure(brief)
	eu := c.eu.http("--stale-reads", "1h")
	const path = "/" + project + ".git/info/refs?service=git-upload-pack"
	for _, outage := range []struct {
		name       string
		begin, end func()
	}{
		{"refused", way.Cut, func() { way.restore(c) }},
		{"silent", func() { way.Set(faultproxy.Replies, faultproxy.Swallow) }, way.Clear},
	} {
		name := outage.name
		eu.confirms(path)
		outage.begin()
		const push = "/" + project + ".git/info/refs?service=git-receive-pack"
		if status, text := eu.get(push); status != http.StatusServiceUnavailable || !strings.Contains(text, "the database does not answer") {
			t.Errorf("%s: a push: %d: %s", name, status, text)
		}
		copied := filepath.Join(t.TempDir(), "copy")
		g.run(t, c.h.dir, "clone", "--quiet", "--bare", eu.repoURL(), copied)
		if got := g.run(t, copied, "rev-parse", "main"); got != c.h.a {
			t.Errorf("%s: a clone has %s, want %s", name, got, c.h.a)
		}
		outage.end()
	}
	if n := eu.count("stale"); n < 4 {
		t.Errorf("%d stale responses, want two for each clone or more", n)
	}
	// What another site pushes now is not missing from any response.
	c.us.pushed(c.h.b + ":refs/heads/main")
	c.eu.sync()
	if text := eu.confirms(path); !strings.Contains(text, c.h.b) {
		t.Errorf("the database is back: %s", text)
	}
}

// confirms reads a path until the response is one that the database has confirmed.
func (f *front) confirms(path string) (text string) {
	f.c.Helper()
	eventually(f.c, "a confirmed response of "+f.name, func() error {
		response, err := http.Get(f.url + path)
		if err != nil {
			return err
		}
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		if response.StatusCode != http.StatusOK || response.Header.Get(smarthttp.StaleHeader) != "" || err != nil {
			return fmt.Errorf("%d, %v: %s", response.StatusCode, err, body)
		}
		text = string(body)
		return nil
	})
	return text
}
