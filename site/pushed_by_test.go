package site_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/site/internal/sitetest"
	"github.com/globalrefdb/globalrefdb/test/dbtest/local"
)

// pushers is the history of a ref: who pushed, through which owner of intents, oldest first.
func (g *guard) pushers(ref string) (by, owners []string) {
	g.tb.Helper()
	for c, err := range g.db.History(g.tb.Context(), "team/app", ref) {
		if err != nil {
			g.tb.Fatal(err)
		}
		by, owners = append([]string{c.By}, by...), append([]string{c.Owner}, owners...)
	}
	return by, owners
}

// gitAs runs git in the repository as a front end would that sets variables.
func (g *guard) gitAs(env []string, args ...string) {
	g.tb.Helper()
	cmd := exec.Command("git", append([]string{"--git-dir=" + g.repo}, args...)...)
	cmd.Env = append(os.Environ(), env...)
	if out, err := cmd.CombinedOutput(); err != nil {
		g.tb.Fatalf("git %q: %v: %s", args, err, out)
	}
}

func TestTheHistorySaysWhoPushedAndNoLogDoes(t *testing.T) {
	t.Parallel()
	g := newGuard(t, local.SQLite(t), "eu-1", "[site]\n\tpusherEnv = WHO")
	for i, c := range []struct {
		env  []string
		want string
	}{
		{nil, ""},
		{[]string{"REMOTE_USER=alice-1"}, "alice-1"},
		{[]string{"GL_USER=alice-2", "REMOTE_USER=x"}, "alice-2"},
		{[]string{"WHO=alice-3", "GL_USER=x"}, "alice-3"},
		{[]string{"WHO=alice\x01\n4 \xff"}, "alice  4 \uFFFD"},
		{[]string{"WHO=" + strings.Repeat("alice-5", 1000)}, strings.Repeat("alice-5", 1000)[:200]},
	} {
		ref := fmt.Sprint("refs/heads/", i)
		g.gitAs(c.env, "update-ref", ref, g.commit[0])
		if by, owners := g.pushers(ref); len(by) != 1 || by[0] != c.want || owners[0] != g.owner {
			t.Errorf("%q: it was pushed by %q through %q, want %q through %q", c.env, by, owners, c.want, g.owner)
		}
	}
	g.halt()
	if strings.Contains(g.log.String(), "alice") {
		t.Errorf("the log names who pushed:\n%s", g.log)
	}
}

// The daemon that finishes it knows who pushed from the intent: the process may have ended.
func TestAPushThatALaterDaemonFinishesIsOfWhoPushed(t *testing.T) {
	t.Parallel()
	for _, end := range []string{"commit", "kill"} {
		t.Run(end, func(t *testing.T) {
			t.Parallel()
			g := newGuard(t, local.SQLite(t), "eu-1")
			s := g.session("GITEA_PUSHER_NAME=alice")
			if err := s.prepare("create refs/heads/x " + g.commit[0]); err != nil {
				t.Fatal(err)
			}
			owner := g.owner
			for i, err := range g.db.Intents().All(t.Context(), driver.IntentFilter{Project: "team/app"}) {
				if err != nil || i.By != "alice" || i.Op == "" {
					t.Errorf("the intent is %+v, %v", i, err)
				}
			}
			g.halt()
			if end == "kill" {
				s.kill()
				if err := os.Remove(filepath.Join(g.repo, "refs/heads/x.lock")); err != nil {
					t.Fatal(err)
				}
				g.git("-c", "core.hooksPath=/dev/null", "update-ref", "refs/heads/x", g.commit[0])
			}
			g.start()
			if end == "commit" {
				s.must("commit")
				s.close()
			}
			g.resolved()
			if by, owners := g.pushers("refs/heads/x"); len(by) != 1 || by[0] != "alice" || owners[0] != owner || owner == g.owner {
				t.Errorf("it was pushed by %q through %q, want alice through %q", by, owners, owner)
			}
		})
	}
}

func TestInModeLogTheHistorySaysWhoPushedToo(t *testing.T) {
	t.Parallel()
	shared := local.SQLite(t)
	east, west := newGuard(t, shared, "east"), newGuard(t, shared, "west")
	for i := range 2 {
		east.git("update-ref", fmt.Sprint("refs/heads/", i), east.commit[0])
	}
	logs(east, west)
	for i, name := range []string{"alice", "bob"} { // the database does not agree: this site is behind
		west.gitAs([]string{"REMOTE_USER=" + name}, "update-ref", fmt.Sprint("refs/heads/", i), west.commit[1+i])
	}
	for i, name := range []string{"alice", "bob"} {
		ref := fmt.Sprint("refs/heads/", i)
		sitetest.Eventually(t, "the database follows", func() bool { return west.global(ref) == west.commit[1+i] })
		if by, _ := west.pushers(ref); len(by) != 2 || by[1] != name {
			t.Errorf("%s was pushed by %q, want %s", ref, by, name)
		}
	}
}
