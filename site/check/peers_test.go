package check_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/globalrefdb/globalrefdb/site/internal/sitetest"
)

func TestPeersRefsAreHiddenFromClients(t *testing.T) {
	t.Parallel()
	r := sitetest.NewGuarded(t)
	if got := sitetest.GitIn(t, r.B.Dir, "for-each-ref", "refs/peer"); got == "" {
		t.Fatal("there are none here")
	}
	if got := sitetest.GitIn(t, "/", "ls-remote", "file://"+r.B.Dir); strings.Contains(got, "refs/peer") || !strings.Contains(got, sitetest.MainRef) {
		t.Errorf("clients see\n%s", got)
	}
	mirror := filepath.Join(t.TempDir(), "mirror.git")
	sitetest.GitIn(t, "/", "clone", "--quiet", "--mirror", r.B.Dir, mirror)
	if got := sitetest.GitIn(t, mirror, "for-each-ref", "refs/peer"); got != "" {
		t.Errorf("a new site gets\n%s", got)
	}
}

// What hides other refs stays, and stays after the guard.
func TestRefsThatWereHiddenBeforeStayHidden(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		before []string
		found  string // by check, before it is put right: what is hidden is written after what shows refs to pushes
		after  string
	}{
		"others":         {[]string{"refs/meta", "!refs/meta/x"}, "setting receive.hideRefs, setting transfer.hideRefs", "refs/meta\n!refs/meta/x\nrefs/peer\nrefs/refdb"},
		"the peers":      {[]string{"refs/peer/", "refs/meta"}, "setting receive.hideRefs, setting transfer.hideRefs", "refs/peer/\nrefs/meta\nrefs/refdb"},
		"both":           {[]string{"refs/"}, "setting receive.hideRefs", "refs/"},
		"all but theirs": {[]string{"!refs/peer"}, "setting receive.hideRefs, setting transfer.hideRefs", "!refs/peer\nrefs/peer\nrefs/refdb"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := sitetest.NewGuarded(t)
			if err := r.Disable(t); err != nil {
				t.Fatal(err)
			}
			for _, value := range c.before {
				sitetest.GitIn(t, r.B.Dir, "config", "--add", "transfer.hideRefs", value)
			}
			was := r.B.Files(t)
			if _, err := r.Enable(t, sitetest.HookFile(t, "")); err != nil {
				t.Fatal(err)
			}
			if got := sitetest.GitIn(t, r.B.Dir, "config", "--get-all", "transfer.hideRefs"); got != c.after {
				t.Errorf("enabled: %q, want %q", got, c.after)
			}
			if err := r.Disable(t); err != nil {
				t.Fatal(err)
			}
			if is := r.B.Files(t); is != was {
				t.Errorf("was:\n%s\nis:\n%s", was, is)
			}
			if _, err := r.Enable(t, sitetest.HookFile(t, "")); err != nil {
				t.Fatal(err)
			}
			sitetest.GitIn(t, r.B.Dir, "config", "--unset-all", "transfer.hideRefs")
			for _, value := range c.before {
				sitetest.GitIn(t, r.B.Dir, "config", "--add", "transfer.hideRefs", value)
			}
			if got := r.Check(t, r.DB, false); got != c.found {
				t.Errorf("check finds %q, want %q", got, c.found)
			}
			r.Check(t, r.DB, true)
			if got := r.Check(t, r.DB, false); got != "" {
				t.Errorf("after the repair: %q", got)
			}
		})
	}
}

func TestCheckFindsWhatKeepsAPeerFromBeingFetched(t *testing.T) {
	t.Parallel()
	r := sitetest.NewGuarded(t)
	r.B.Quietly(t, "update-ref", "refs/peer/asia", sitetest.MainRef)
	if got := r.Check(t, r.DB, true); got != "peer-ref refs/peer/asia" {
		t.Errorf("check finds %q", got)
	}
	r.B.Quietly(t, "update-ref", "-d", "refs/peer/asia")
	if got := r.Check(t, nil, false); got != "" {
		t.Errorf("without it: %q", got)
	}
}
