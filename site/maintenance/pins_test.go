package maintenance_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/globalrefdb/globalrefdb/site/internal/sitetest"
	"github.com/globalrefdb/globalrefdb/site/maintenance"
)

// While git can't determine which objects are here, no pin is removed: other sites may build on its
// objects.
func TestABrokenRefRemovesNoPins(t *testing.T) {
	t.Parallel()
	repo, dir := sitetest.EmptyRepo(t)
	tree := sitetest.GitIn(t, dir, "mktree")
	commit := strings.TrimSpace(sitetest.GitIn(t, dir, "-c", "user.name=x", "-c", "user.email=x@example.org", "commit-tree", "-m", "x", tree))
	if p, err := maintenance.Pin(t.Context(), repo, []string{commit}, false); err != nil || p.Added != 1 {
		t.Fatalf("%+v, %v", p, err)
	}
	broken := filepath.Join(dir, "refs", "heads", "broken")
	if err := os.WriteFile(broken, []byte(strings.Repeat("1", len(commit))+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	p, err := maintenance.Pin(t.Context(), repo, []string{commit}, false)
	if err == nil || !strings.Contains(err.Error(), "refs/heads/broken") || p.Removed > 0 {
		t.Errorf("%+v, %v", p, err)
	}
	if err := os.Remove(broken); err != nil {
		t.Fatal(err)
	}
	if p, err := maintenance.Pin(t.Context(), repo, []string{commit}, false); err != nil || p != (maintenance.Pins{All: 1}) {
		t.Errorf("once the ref is repaired: %+v, %v", p, err)
	}
}
