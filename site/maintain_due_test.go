package site_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/site"
	"github.com/globalrefdb/globalrefdb/site/internal/sitetest"
	"github.com/globalrefdb/globalrefdb/site/maintenance"
	"github.com/globalrefdb/globalrefdb/site/projects"
	"github.com/globalrefdb/globalrefdb/test/dbtest/local"
)

func TestWhatIsDueIsMaintained(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	for _, row := range []struct {
		name, setting string
		want          int // that are maintained
	}{
		{"once a day", "maintain = daily", 1},
		{"only if the configuration says so", "", 0},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			g := idleGuard(t, local.SQLite(t), "eu-1", row.setting)
			fresh, never := g.newRepository("team/fresh"), g.newRepository("team/never")
			g.register("team/fresh")
			g.register("team/never")
			noted := func(repo string, ago time.Duration) time.Time {
				t.Helper()
				at := time.Now().Add(-ago)
				if err := os.WriteFile(maintenance.File(repo), nil, 0o644); err != nil {
					t.Fatal(err)
				}
				if err := os.Chtimes(maintenance.File(repo), at, at); err != nil {
					t.Fatal(err)
				}
				return at
			}
			noted(g.repo, day+time.Hour)
			noted(fresh, day-time.Hour)
			g.start()
			for range 2 { // what has been maintained is not due again
				g.daemon.MaintainDue()
			}
			if got := strings.Count(g.log.String(), "a repository was maintained"); got != row.want {
				t.Errorf("%d were maintained", got)
			}
			age := func(repo string) time.Duration {
				t.Helper()
				info, err := os.Stat(maintenance.File(repo))
				if err != nil {
					t.Fatal(err)
				}
				return time.Since(info.ModTime())
			}
			if done := age(g.repo) < time.Hour; done != (row.want == 1) {
				t.Errorf("the last maintenance of what is due is %s ago", age(g.repo))
			}
			if age(fresh) < day-2*time.Hour {
				t.Error("what was maintained today was maintained again")
			}
			if _, err := os.Stat(maintenance.File(never)); (err == nil) != (row.want == 1) {
				t.Errorf("what was never maintained has a time: %v", err)
			}
		})
	}
}

// Maintenance reads a repository by its path.
func TestTheRepositoryOfARemovedProjectStaysDuringMaintenance(t *testing.T) {
	t.Parallel()
	g := idleGuard(t, local.SQLite(t), "eu-1")
	dir := filepath.Join(g.dir, "removed")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	g.followsRemovals(dir)
	g.limits = func(d *site.Daemon) { d.SetSettle(time.Millisecond) }
	g.start()
	end := g.daemon.Maintaining()
	if _, _, err := projects.Remove(t.Context(), g.db, g.project()); err != nil {
		t.Fatal(err)
	}
	g.shared.Exec(t, `UPDATE projects SET time = time - ?`, time.Hour.Microseconds())
	sitetest.Eventually(t, "the daemon waits", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		to, err := g.daemon.FollowRemoval(ctx, "team/app")
		if to != "" {
			t.Fatal("the repository was moved")
		}
		return errors.Is(err, context.DeadlineExceeded)
	})
	if _, err := os.Stat(g.repo); err != nil {
		t.Error(err)
	}
	end()
	sitetest.Eventually(t, "it goes", func() bool {
		_, err := os.Stat(g.repo)
		return os.IsNotExist(err)
	})
}
