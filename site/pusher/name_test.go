package pusher

import (
	"strings"
	"testing"
)

func TestWhoPushesIsWhoTheFrontEndSays(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", maxNameBytes)
	for _, c := range []struct {
		what, environ string
		named         []string // in the configuration
		want          string
	}{
		{"nobody says", "PATH=/bin|USER=git|LOGNAME=git", nil, ""},
		{"no environment", "", nil, ""},
		{"a web server", "PATH=/bin|REMOTE_USER=alice", nil, "alice"},
		{"GitLab", "GL_USERNAME=alice|GL_ID=user-1", nil, "alice"},
		{"Gitolite behind a web server", "REMOTE_USER=a|GL_USER=alice", nil, "alice"},
		{"Gitea", "REMOTE_USER=a|GITEA_PUSHER_NAME=alice|GITEA_PUSHER_ID=1", nil, "alice"},
		{"Gogs", "GOGS_AUTH_USER_NAME=alice", nil, "alice"},
		{"whoever set REFDB_PUSHER", "GL_USER=a|REFDB_PUSHER=alice", nil, "alice"},
		{"the configuration's come first, in its order", "REFDB_PUSHER=a|WHO=b|SSH_WHO=alice", []string{"SSH_WHO", "WHO"}, "alice"},
		{"none of the configuration's", "REMOTE_USER=alice", []string{"WHO"}, "alice"},
		{"an empty one is not set", "REFDB_PUSHER=|GL_USER= \t|REMOTE_USER=alice", nil, "alice"},
		{"the first of two counts, as for a program", "REMOTE_USER=alice|REMOTE_USER=a", nil, "alice"},
		{"another's name in a value", "X=REMOTE_USER=a|XREMOTE_USER=b|REMOTE_USERX=c", nil, ""},
		{"no value", "REMOTE_USER", nil, ""},
		{"an equals sign", "REMOTE_USER=cn=alice,dc=example", nil, "cn=alice,dc=example"},
		{"control characters", "REMOTE_USER=\r\nal\tice\x1b[0m\u0085", nil, "al ice [0m"},
		{"not UTF-8", "REMOTE_USER=al\xffice", nil, "al\uFFFDice"},
		{"as long as it may be", "REMOTE_USER=" + long, nil, long},
		{"too long", "REMOTE_USER=" + long + "y", nil, long},
		{"too long by a part of a character", "REMOTE_USER=" + long[1:] + "é", nil, long[1:]},
	} {
		environ := strings.ReplaceAll(c.environ, "|", "\x00") + "\x00"
		variables := append(c.named, frontEndVariables[:]...)
		if got := nameIn(environ, variables); got != c.want {
			t.Errorf("%s: %q, want %q", c.what, got, c.want)
		}
	}
}
