package maintenance_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/internal/testprogram"
	"github.com/globalrefdb/globalrefdb/site/internal/sitetest"
	"github.com/globalrefdb/globalrefdb/site/maintenance"
)

func TestRefsOfPeersWithoutRecentFetchesAreRemoved(t *testing.T) {
	t.Parallel()
	repo, dir := sitetest.EmptyRepo(t)
	tree := sitetest.GitIn(t, dir, "mktree")
	commit := sitetest.GitIn(t, dir, "-c", "user.name=x", "-c", "user.email=x@example.org", "commit-tree", "-m", "x", tree)
	const kept = "refs/heads/main refs/peer/new/heads/main refs/peer/unknown/heads/main"
	for _, ref := range []string{"refs/heads/main", "refs/peer/new/heads/main", "refs/peer/old/heads/main", "refs/peer/old/tags/v1", "refs/peer/unknown/heads/main"} {
		sitetest.GitIn(t, dir, "update-ref", ref, commit)
	}
	// A removal does not run the guard's hook.
	hook := filepath.Join(dir, "hooks", "reference-transaction")
	if err := os.MkdirAll(filepath.Dir(hook), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := testprogram.Write(hook, []byte("#!/bin/sh\nexit 1\n")); err != nil {
		t.Fatal(err)
	}
	ago := func(peer string, d time.Duration) {
		t.Helper()
		if err := maintenance.NotePeer(dir, peer, time.Now().Add(-d)); err != nil {
			t.Fatal(err)
		}
	}
	ago("new", maintenance.PeerFor-time.Hour)
	ago("old", maintenance.PeerFor+time.Hour)
	for _, want := range []int{2, 0} {
		if n, err := maintenance.DropPeers(t.Context(), repo); err != nil || n != want {
			t.Fatalf("%d removed, %v, want %d", n, err, want)
		}
		if got := strings.Join(strings.Fields(sitetest.GitIn(t, dir, "for-each-ref", "--format=%(refname)")), " "); got != kept {
			t.Errorf("left: %s", got)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "refdb", "peers", "old")); !os.IsNotExist(err) {
		t.Errorf("the record of the peer is left: %v", err)
	}
	// The time of the unknown peer began when it was first seen.
	ago("unknown", maintenance.PeerFor+time.Hour)
	if n, err := maintenance.DropPeers(t.Context(), repo); err != nil || n != 1 {
		t.Errorf("%d removed, %v", n, err)
	}
}
