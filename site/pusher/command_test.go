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
		if got, _ := commandOf(strings.Fields(words)); got != want {
			t.Errorf("%s: %q, want %q", words, got, want)
		}
	}
	if got, _ := commandOf(nil); got != "" {
		t.Errorf("of none: %q", got)
	}
}

func TestTheNewNameOfABranch(t *testing.T) {
	t.Parallel()
	for words, want := range map[string]string{
		"git branch -m old new":               "refs/heads/new",
		"git branch -M old new":               "refs/heads/new",
		"git branch --move old new":           "refs/heads/new",
		"git branch --mov -f old new":         "refs/heads/new",
		"git branch -fm new":                  "refs/heads/new",
		"git branch old new -m":               "refs/heads/new",
		"git -C /srv branch -m -- old new":    "refs/heads/new",
		"/usr/lib/git-core/git-branch -m a b": "refs/heads/b",
		"git branch -m old refs/heads/new":    "refs/heads/refs/heads/new",
		"git branch old new":                  "",
		"git branch -d old":                   "",
		"git branch --merged":                 "",
		"git branch -c old new":               "",
		"git -c x=m branch -d m":              "",
		"git push -m old new":                 "",
		"git branch -m":                       "",
		"git remote rename old new":           "",
	} {
		if got := renamedTo(strings.Fields(words)); got != want {
			t.Errorf("%s: %q, want %q", words, got, want)
		}
	}
}
