package install_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/globalrefdb/globalrefdb/site/internal/sitetest"
)

// What was force-pushed away is kept for other sites, hidden from clients. They must not see it once nothing is hidden any more.
func TestDisableShowsNothingThatWasHidden(t *testing.T) {
	t.Parallel()
	r := sitetest.NewReplicas(t)
	r.Serve(t)
	first := r.B.Commit(t, "first")
	secret := r.B.Commit(t, "a password")
	r.B.Set(t, sitetest.MainRef, first)
	if _, err := r.Enable(t, sitetest.HookFile(t, "")); err != nil {
		t.Fatal(err)
	}
	for _, ref := range []string{"refs/refdb/kept/" + secret, "refs/peer/us/heads/old", "refs/peer/us/tags/v1"} {
		sitetest.GitIn(t, r.B.Dir, "-c", "core.hooksPath=/dev/null", "update-ref", ref, secret)
	}
	sitetest.GitIn(t, r.B.Dir, "-c", "core.hooksPath=/dev/null", "symbolic-ref", "refs/peer/us/heads/link", "refs/peer/us/heads/old")
	seen := func() string { return sitetest.GitIn(t, r.B.Dir, "ls-remote", r.B.Dir) }
	before := seen()
	if strings.Contains(before, secret) {
		t.Fatalf("while it is guarded a client sees\n%s", before)
	}
	// As if another git was about to move the ref.
	lock := filepath.Join(r.B.Dir, "refs/refdb/kept", secret+".lock")
	if err := os.WriteFile(lock, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := r.Disable(t); err == nil || !strings.Contains(err.Error(), "they stay hidden: run it again") {
		t.Errorf("disable with refs that can't be removed: %v", err)
	}
	if is := seen(); is != before {
		t.Errorf("then a client sees\n%s", is)
	}
	if err := os.Remove(lock); err != nil {
		t.Fatal(err)
	}
	steps, err := r.DisableSteps(t)
	if err != nil || steps["own refs"] != "4 removed" {
		t.Errorf("again: %v, %v", steps, err)
	}
	if is := seen(); is != before {
		t.Errorf("once it is not guarded a client sees\n%s", is)
	}
	if hides := sitetest.GitIn(t, r.B.Dir, "config", "--list", "--local"); strings.Contains(hides, "hiderefs") {
		t.Errorf("the settings are\n%s", hides)
	}
}
