package site

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/site/compare"
	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/hookdir"
	"github.com/globalrefdb/globalrefdb/site/install"
	"github.com/globalrefdb/globalrefdb/site/internal/pause"
	"github.com/globalrefdb/globalrefdb/site/projects"
	"github.com/globalrefdb/globalrefdb/site/wire"
)

// finishEvery is the interval at which the daemon looks for repositories whose own hooks can be
// restored to their places.
const finishEvery = time.Minute

// newHooks returns the keeper of the site's hooks.
func (d *Daemon) newHooks(c *config.Config) *hookdir.Keeper {
	k := &hookdir.Keeper{
		Dir: hookdir.Dir(c.Hooks), Needed: d.needsHooks, Compare: d.compareAll, Alarm: func() { d.state.Counts.Alarms.Add(1) }, Logger: d.o.Logger,
	}
	if d.o.Hook != "" {
		program, err := install.ReadHook(d.o.Hook)
		if err != nil {
			d.o.Logger.Error("the site's hooks are not monitored", "error", err)
		}
		k.Program = program
	}
	return k
}

// needsHooks reports whether an existing repository leads git to the directory of the site's hooks.
func (d *Daemon) needsHooks() bool {
	c := d.state.Config()
	if inside, err := filepath.Rel(c.Root, c.Hooks); c.Root != "" && err == nil && filepath.IsLocal(inside) {
		if _, err := os.Stat(c.Root); err != nil {
			return false // the root's disk is unmounted: the hooks come back with it
		}
	}
	guarded, err := install.GuardedBy(c)
	return err != nil || slices.ContainsFunc(guarded, func(r config.Repository) bool {
		text, err := os.ReadFile(filepath.Join(r.Path, "config"))
		return err == nil && bytes.Contains(text, []byte(hookdir.Dir(c.Hooks).HooksPath()))
	})
}

// compareAll restores the configuration in the site's hooks for each guarded repository, and
// compares the repository with the database, after a time in which refs may have moved without a
// hook.
func (d *Daemon) compareAll(ctx context.Context) {
	c := d.state.Config()
	guarded, err := install.GuardedBy(c)
	if err != nil {
		d.o.Logger.ErrorContext(ctx, "not all repositories can be compared with the database: run `refdbctl site check`")
	}
	for _, r := range guarded {
		if err := install.RestoreShown(ctx, c, r); err != nil && ctx.Err() == nil {
			d.o.Logger.ErrorContext(ctx, "a repository may refuse pushes: run `refdbctl site check --repair`", "repository", d.state.Digest(r.Project, ""), "error", wire.OneLine(err.Error()))
		}
		ruled, err := projects.WithRules(ctx, c, d.db, r.Project)
		differ := 0
		if err == nil {
			differ, err = compare.Differing(ctx, ruled, d.db, r)
		}
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			d.o.Logger.ErrorContext(ctx, "a repository can't be compared with the database: run `refdbctl site check`", "repository", d.state.Digest(r.Project, ""), "class", refdb.ClassOf(err).String())
		case differ > 0:
			d.state.Counts.Alarms.Add(1)
			d.o.Logger.ErrorContext(ctx, "refs differ from the database after the site's hooks were damaged: run `refdbctl site check`", "repository", d.state.Digest(r.Project, ""), "refs", differ)
		}
	}
}

// finishHooks restores repositories' own hooks that an earlier version has displaced, once no git
// process needs ours in their places.
func (d *Daemon) finishHooks(ctx context.Context) {
	for pause.For(ctx, finishEvery) {
		c := d.state.Config()
		guarded, _ := install.GuardedBy(c) // repositories that can't be listed are finished later
		for _, r := range guarded {
			if _, err := os.Lstat(filepath.Join(r.Path, wire.ChainedHooks)); err != nil {
				continue
			}
			if err := install.Finish(ctx, c, r); err != nil && ctx.Err() == nil {
				d.o.Logger.WarnContext(ctx, "a repository's own hooks can't be restored: run `refdbctl site enable`", "repository", d.state.Digest(r.Project, ""), "error", wire.OneLine(err.Error()))
			}
		}
	}
}
