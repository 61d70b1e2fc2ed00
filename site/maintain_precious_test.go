package site_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/site/client"
	"github.com/globalrefdb/globalrefdb/site/maintenance"
	"github.com/globalrefdb/globalrefdb/test/dbtest/local"
)

// Git neither prunes nor repacks a repository whose objects are precious. That is as its owner wants it, and no failure.
func TestARepositoryWithPreciousObjectsIsMaintained(t *testing.T) {
	t.Parallel()
	g := idleGuard(t, local.SQLite(t), "eu-1", "[site]\n\tmaintain = daily")
	g.git("config", "extensions.preciousObjects", "true")
	g.start()
	g.git("update-ref", "refs/heads/x", g.commit[0])
	old := time.Now().Add(-48 * time.Hour)
	if err := os.WriteFile(maintenance.File(g.repo), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(maintenance.File(g.repo), old, old); err != nil {
		t.Fatal(err)
	}
	g.daemon.MaintainDue()
	if log := g.log.String(); strings.Contains(log, "could not be maintained") || !strings.Contains(log, "a repository was maintained") {
		t.Error(log)
	}
	did, err := client.Maintain(t.Context(), filepath.Join(g.dir, "sock"), g.repo, func(string) {})
	if err != nil || !strings.Contains(did.Left, "extensions.preciousObjects") || did.Busy {
		t.Errorf("%+v, %v", did, err)
	}
}
