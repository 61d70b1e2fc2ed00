package afterboot_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/memory"
	"github.com/globalrefdb/globalrefdb/site/afterboot"
	"github.com/globalrefdb/globalrefdb/site/follow"
	"github.com/globalrefdb/globalrefdb/site/internal/sitetest"
	"github.com/globalrefdb/globalrefdb/site/maintenance"
	"github.com/globalrefdb/globalrefdb/site/serving"
)

// A watched driver calls reads before it reads a project.
type watched struct {
	refdb.Driver
	reads func(project string)
}

func (w watched) Projects(ctx context.Context, q driver.ProjectQuery) ([]driver.Project, error) {
	w.reads(q.Project)
	return w.Driver.Projects(ctx, q)
}

func TestABootIsNotRecordedBeforeAllRepositoriesAreRepaired(t *testing.T) {
	t.Parallel()
	const noProject = "none" // the daemon has ended before it read a project
	for name, endsIn := range map[string]string{
		"the daemon ends before the first":    noProject,
		"the daemon ends with the first":      "a",
		"the daemon ends after the first":     "b",
		"the daemon does not end before that": "",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root := t.TempDir()
			c := sitetest.SiteConfig(t, root, "")
			for _, project := range []string{"a", "b"} {
				dir := filepath.Join(root, project+".git")
				sitetest.GitIn(t, root, "init", "--quiet", "--bare", dir)
				err := os.Mkdir(filepath.Join(dir, "refdb"), 0o755)
				if err == nil {
					err = os.Symlink(c.Socket, filepath.Join(dir, "refdb", "socket"))
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			db, err := refdb.New(watched{memory.New().Open(), func(project string) {
				if project == endsIn {
					cancel(errors.New("the daemon ends"))
				}
			}}, refdb.Options{Site: "b"})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { db.Close() })

			daemon := func(boot string) *serving.State {
				s := serving.New(c, nil)
				s.Boot = boot
				return s
			}
			before := afterboot.Repair{State: daemon("before"), Logger: slog.New(slog.DiscardHandler)}
			if booted, err := before.Booted(root); booted || err != nil {
				t.Fatal(booted, err)
			}
			now := daemon("now")
			if endsIn == noProject {
				cancel(errors.New("the daemon ends, and does not know yet what earlier daemons left"))
			} else {
				now.Inherit()
				now.Start()
			}
			r := afterboot.Repair{
				Patience: time.Minute, State: now, DB: db, Pruning: &maintenance.Pruning{},
				Follower: follow.New(db, follow.Options{}), Logger: slog.New(slog.DiscardHandler),
			}
			r.CatchUp(ctx, c)
			want := endsIn != ""
			if booted, err := r.Booted(root); booted != want || err != nil {
				t.Errorf("the next daemon repairs: %t, %v; want %t", booted, err, want)
			}
		})
	}
}
