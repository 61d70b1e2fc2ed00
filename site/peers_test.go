package site_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/globalrefdb/globalrefdb/test/dbtest"
)

// The refs of peers are sync's alone: a push to refs/peer/asia would keep asia's from being fetched.
func TestNobodyPushesToPeersRefs(t *testing.T) {
	t.Parallel()
	g := newGuard(t, dbtest.SQLite(t), "eu-1")
	client := g.client()
	said, ok := client.push("c0:refs/peer/asia", "c1:refs/peer/asia/heads/x", ":refs/peer/test/tip", "c2:refs/heads/x")
	if ok {
		t.Error("the push succeeded")
	}
	for _, ref := range []string{"refs/peer/asia", "refs/peer/asia/heads/x", "refs/peer/test/tip"} {
		contains(t, said, "remote: "+ref+": only `refdbctl site sync` moves the refs of peers")
	}
	if got := g.git("for-each-ref", "--format=%(refname)"); got != "refs/heads/x\nrefs/peer/test/tip" {
		t.Errorf("the refs are\n%s", got)
	}
}

func TestPeersRefsAreHiddenFromClients(t *testing.T) {
	t.Parallel()
	r := newGuarded(t)
	if got := gitIn(t, r.b.dir, "for-each-ref", "refs/peer"); got == "" {
		t.Fatal("there are none here")
	}
	if got := gitIn(t, "/", "ls-remote", "file://"+r.b.dir); strings.Contains(got, "refs/peer") || !strings.Contains(got, mainRef) {
		t.Errorf("clients see\n%s", got)
	}
	mirror := filepath.Join(t.TempDir(), "mirror.git")
	gitIn(t, "/", "clone", "--quiet", "--mirror", r.b.dir, mirror)
	if got := gitIn(t, mirror, "for-each-ref", "refs/peer"); got != "" {
		t.Errorf("a new site gets\n%s", got)
	}
}

// What hides other refs stays, and stays after the guard.
func TestRefsThatWereHiddenBeforeStayHidden(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		before []string
		found  string // by check, before it is put right
		after  string
	}{
		"others":         {[]string{"refs/meta", "!refs/meta/x"}, "setting transfer.hideRefs", "refs/meta\n!refs/meta/x\nrefs/peer"},
		"the peers":      {[]string{"refs/peer/", "refs/meta"}, "", "refs/peer/\nrefs/meta"},
		"all but theirs": {[]string{"!refs/peer"}, "setting transfer.hideRefs", "!refs/peer\nrefs/peer"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newGuarded(t)
			if err := r.disable(t); err != nil {
				t.Fatal(err)
			}
			for _, value := range c.before {
				gitIn(t, r.b.dir, "config", "--add", "transfer.hideRefs", value)
			}
			was := r.b.files(t)
			if _, err := r.enable(t, hookFile(t, "")); err != nil {
				t.Fatal(err)
			}
			if got := gitIn(t, r.b.dir, "config", "--get-all", "transfer.hideRefs"); got != c.after {
				t.Errorf("enabled: %q, want %q", got, c.after)
			}
			if err := r.disable(t); err != nil {
				t.Fatal(err)
			}
			if is := r.b.files(t); is != was {
				t.Errorf("was:\n%s\nis:\n%s", was, is)
			}
			if _, err := r.enable(t, hookFile(t, "")); err != nil {
				t.Fatal(err)
			}
			gitIn(t, r.b.dir, "config", "--unset-all", "transfer.hideRefs")
			for _, value := range c.before {
				gitIn(t, r.b.dir, "config", "--add", "transfer.hideRefs", value)
			}
			if got := r.check(t, r.db, false); got != c.found {
				t.Errorf("check finds %q, want %q", got, c.found)
			}
			r.check(t, r.db, true)
			if got := r.check(t, r.db, false); got != "" {
				t.Errorf("after the repair: %q", got)
			}
		})
	}
}

func TestCheckFindsWhatKeepsAPeerFromBeingFetched(t *testing.T) {
	t.Parallel()
	r := newGuarded(t)
	r.b.quietly(t, "update-ref", "refs/peer/asia", mainRef)
	if got := r.check(t, r.db, true); got != "peer-ref refs/peer/asia" {
		t.Errorf("check finds %q", got)
	}
	r.b.quietly(t, "update-ref", "-d", "refs/peer/asia")
	if got := r.check(t, nil, false); got != "" {
		t.Errorf("without it: %q", got)
	}
}
