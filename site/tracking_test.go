package site_test

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/globalrefdb/globalrefdb/internal/testprogram"
	"github.com/globalrefdb/globalrefdb/site/internal/sitetest"
	"github.com/globalrefdb/globalrefdb/test/dbtest/local"
)

// backup gives the repository a remote whose pre-receive hook runs a script, between what a push there reads here and what it writes back.
func (g *guard) backup(fetch, script string) {
	g.tb.Helper()
	dir := filepath.Join(g.dir, "backup.git")
	sitetest.Run(g.tb, "", "git", "init", "--quiet", "--bare", dir) // or leaves it
	text := fmt.Sprintf("#!/bin/sh\nexec </dev/null\nunset GIT_DIR GIT_QUARANTINE_PATH GIT_OBJECT_DIRECTORY GIT_ALTERNATE_OBJECT_DIRECTORIES\n%s\n", script)
	if err := testprogram.Write(filepath.Join(dir, "hooks/pre-receive"), []byte(text)); err != nil {
		g.tb.Fatal(err)
	}
	g.git("config", "remote.backup.url", dir)
	if fetch != "" {
		g.git("config", "remote.backup.fetch", fetch)
	}
	g.git("config", "remote.backup.push", "+refs/heads/*:refs/heads/*")
}

// Git push believes that the other repository has what it has sent, and writes that to the refs here by which the remote is tracked: what these refs
// held when it began.
func TestAPushToAnotherRepositoryUndoesNothing(t *testing.T) {
	t.Parallel()
	for name, push := range map[string][]string{
		"by name":  {"push", "backup"},
		"an alias": {"-c", "alias.p=push backup", "p"},
		"deletes":  {"push", "backup", ":refs/heads/x"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newGuard(t, local.SQLite(t), "eu-1")
			a, b := g.commit[0], g.commit[1]
			g.set("refs/heads/x", a)
			want := a
			if name == "deletes" {
				g.backup("", "")
				g.git("push", "backup")
				want = ""
			}
			g.backup("+refs/*:refs/*", fmt.Sprintf("git --git-dir=%s update-ref refs/heads/x %s", g.repo, b))
			sitetest.Contains(t, g.fails(push...), "refs/heads/x: git push would undo what others have pushed in the meantime")
			g.has("refs/heads/x", b, b)
			if got := sitetest.Run(t, "", "git", "--git-dir="+filepath.Join(g.dir, "backup.git"), "for-each-ref", "--format=%(objectname)"); got != want {
				t.Errorf("the other repository has %q, want %q", got, want)
			}
		})
	}
}

func TestAPushToAnotherRepositoryGoesOnWhereItTracksIt(t *testing.T) {
	t.Parallel()
	g := newGuard(t, local.SQLite(t), "eu-1")
	a := g.commit[0]
	g.set("refs/heads/x", a)
	g.backup("+refs/heads/*:refs/remotes/backup/*", "")
	g.git("push", "backup")
	g.has("refs/remotes/backup/x", a, a)

	// A push from the repository into itself, as forges make branches: receive-pack moves the ref.
	g.git("push", g.repo, a+":refs/heads/y")
	g.has("refs/heads/y", a, a)

	// What is equal moves nothing.
	g.git("config", "remote.backup.fetch", "+refs/*:refs/*")
	g.git("push", "backup", "x:refs/heads/x")
	if out, err := exec.Command("git", "--git-dir="+g.repo, "push", "backup").CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
	g.has("refs/heads/x", a, a)
}
