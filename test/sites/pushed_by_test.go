//go:build linux

package sites

import (
	"fmt"
	"testing"
)

// Each front end tells in its own way who pushes, all of them to git receive-pack.
func TestTheHistorySaysWhoPushed(t *testing.T) {
	eachGit(t, func(t *testing.T, g *git) {
		c := newCluster(t, g, design{extra: "\tpusherEnv = SSH_KEY_OWNER"})
		for i, row := range []struct {
			serve   func(t testing.TB, g *git, root string) (url string)
			command string // receive-pack as sshd, or a front end that it starts, runs it
			want    string
		}{
			{serveFiles, "git-receive-pack", ""},
			{serveFiles, "GL_USER=alice git-receive-pack", "alice"},
			{serveFiles, "REMOTE_USER=git GITEA_PUSHER_NAME=bob git-receive-pack", "bob"},
			{serveFiles, "SSH_KEY_OWNER='carol c.' GL_USER=git git-receive-pack", "carol c."},
			{serveHTTP, "git-receive-pack", "tester"}, // what git http-backend gets
			{serveDaemon, "git-receive-pack", ""},
		} {
			url := row.serve(t, g, c.eu.root) + "/" + project + ".git"
			ref := fmt.Sprint("refs/heads/", i)
			if p := c.h.push(t, url, "--receive-pack="+row.command, c.h.a+":"+ref); !p.ok {
				t.Fatalf("%s by %q: %s", url, row.command, p.said)
			}
			var got []string
			for change, err := range c.db.History(t.Context(), project, ref) {
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, change.By)
			}
			if len(got) != 1 || got[0] != row.want {
				t.Errorf("by %q: the history says %q, want %q", row.command, got, row.want)
			}
		}
	})
}
