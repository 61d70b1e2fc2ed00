package pusher

import (
	"strings"
	"testing"
)

func TestTheCommandOfAGit(t *testing.T) {
	t.Parallel()
	for words, want := range map[string]string{
		"git push backup":   "push",
		"/usr/bin/git push": "push",
		"git-push --mirror": "push",
		"/usr/lib/git-core/git send-pack --stateless-rpc x": "send-pack",
		"git -C push fetch": "fetch",
		"git -c push.default=current --git-dir push -p push":                                 "push",
		"git --git-dir=/x --no-replace-objects --config-env a=B --namespace push update-ref": "update-ref",
		"git receive-pack push":               "receive-pack",
		"git-receive-pack /srv/push":          "receive-pack",
		".git-wrapped --bare push":            "push",
		"git --version":                       "",
		"git":                                 "",
		"git -C":                              "",
		"git branch push":                     "branch",
		"git push --receive-pack=git-fetch x": "push",
	} {
		if got := commandOf(strings.Fields(words)); got != want {
			t.Errorf("%s: %q, want %q", words, got, want)
		}
	}
	if got := commandOf(nil); got != "" {
		t.Errorf("of none: %q", got)
	}
}
