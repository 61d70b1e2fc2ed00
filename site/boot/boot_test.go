package boot_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/internal/gitrepo"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/memory"
	"github.com/globalrefdb/globalrefdb/site/boot"
	"github.com/globalrefdb/globalrefdb/site/catchup"
	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/internal/sitetest"
)

// A daemon is one of the test's.
type daemon struct {
	config           *config.Config
	inherits, shares func() // called when it is known what earlier daemons have left, and when a repository is repaired
}

func (d daemon) Config() *config.Config { return d.config }

func (d daemon) AwaitInheritance(context.Context) error {
	d.inherits()
	return nil
}

func (d daemon) Share(context.Context, string) (release func(), err error) { return d.shares, nil }

func (d daemon) Mover(config.Repository, *gitrepo.Repo) catchup.Mover { return nil } // nothing differs

func TestABootIsNotRecordedBeforeAllRepositoriesAreRepaired(t *testing.T) {
	t.Parallel()
	for name, endIn := range map[string]func(d *daemon, end func()){
		"the daemon ends before the first":    func(d *daemon, end func()) { d.inherits = end },
		"the daemon ends with the first":      func(d *daemon, end func()) { d.shares = end },
		"the daemon does not end before that": func(*daemon, func()) {},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root := t.TempDir()
			d := daemon{sitetest.SiteConfig(t, root, ""), func() {}, func() {}}
			for _, project := range []string{"a", "b"} {
				dir := filepath.Join(root, project+".git")
				sitetest.GitIn(t, root, "init", "--quiet", "--bare", dir)
				err := os.Mkdir(filepath.Join(dir, "refdb"), 0o755)
				if err == nil {
					err = os.Symlink(d.config.Socket, filepath.Join(dir, "refdb", "socket"))
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			db, err := refdb.New(memory.New().Open(), refdb.Options{Site: "b"})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { db.Close() })
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			ended := errors.New("the daemon ends")
			endIn(&d, func() { cancel(ended) })

			before := boot.Repair{ID: "before", Logger: slog.New(slog.DiscardHandler)}
			if booted, err := before.Booted(root); booted || err != nil {
				t.Fatal(booted, err)
			}
			r := boot.Repair{ID: "now", Patience: time.Minute, DB: db, Site: d, Logger: slog.New(slog.DiscardHandler), Digest: func(string, string) string { return "" }}
			r.CatchUp(ctx, d.config)
			want := context.Cause(ctx) != nil
			if booted, err := r.Booted(root); booted != want || err != nil {
				t.Errorf("the next daemon repairs: %t, %v; want %t", booted, err, want)
			}
		})
	}
}
