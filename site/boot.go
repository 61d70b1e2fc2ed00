package site

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/globalrefdb/globalrefdb/internal/gitrepo"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/site/catchup"
	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/internal/durable"
	"github.com/globalrefdb/globalrefdb/site/internal/lockfiles"
	"github.com/globalrefdb/globalrefdb/site/projects"
	"github.com/globalrefdb/globalrefdb/site/pusher"
)

// A crash of the machine leaves git's lock files behind, and may leave refs at older values than the
// database has. The first daemon after a boot repairs both: no git from before the boot runs.

func bootFile(state string) string { return filepath.Join(state, "boot") }

// booted reports whether the machine has booted since the last daemon ran. The first daemon with
// a state directory has nothing to repair.
func (d *Daemon) booted(state string) (bool, error) {
	b, err := os.ReadFile(bootFile(state))
	if errors.Is(err, fs.ErrNotExist) {
		return false, d.recordBoot(state)
	}
	if err != nil {
		return false, fmt.Errorf("reading the daemon's state: %w", err)
	}
	return strings.TrimSpace(string(b)) != d.boot, nil
}

func (d *Daemon) recordBoot(state string) error {
	return durable.WriteState(bootFile(state), []byte(d.boot+"\n"))
}

// guardedHere returns the repositories whose hooks ask this daemon.
func guardedHere(c *config.Config) (guarded []config.Repository, err error) {
	all, err := c.Repositories()
	for _, r := range all {
		if isGuardedHere(c, r) {
			guarded = append(guarded, r)
		}
	}
	return guarded, err
}

func isGuardedHere(c *config.Config, r config.Repository) bool {
	target, err := os.Readlink(filepath.Join(r.Path, "refdb", "socket"))
	return err == nil && target == c.Socket
}

// removeLockFiles removes the lock files that no running git can have made. It is called before the
// first hook is answered. `site check` finds those that it can't remove.
func (d *Daemon) removeLockFiles(ctx context.Context, c *config.Config) {
	repositories, err := guardedHere(c)
	until := time.Now().Add(gitrepo.LockPatience)
	for _, r := range repositories {
		err = errors.Join(err, d.removeLockFilesIn(ctx, r, until))
	}
	if err != nil {
		d.o.Logger.WarnContext(ctx, "after a boot git's lock files could not all be looked at: see `refdbctl site check`")
	}
}

func (d *Daemon) removeLockFilesIn(ctx context.Context, r config.Repository, until time.Time) error {
	alone, err := lockfiles.Alone(ctx, r.Path)
	if err != nil {
		return err
	}
	defer alone()
	files, err := gitrepo.LockFiles(r.Path)
	if err != nil || len(files) == 0 {
		return err
	}
	left, unsure, err := pusher.Abandoned(ctx, d.config.Load().GitPrograms, r.Path, files, until)
	if err != nil || unsure {
		return errors.Join(err, errors.New("git can't be told to have ended"))
	}
	var failures []error
	for _, f := range left {
		failures = append(failures, f.Remove())
	}
	d.o.Logger.InfoContext(ctx, "after a boot git's lock files were removed", "files", len(left), "repository", d.digest(r.Project, ""))
	return errors.Join(failures...)
}

// catchUp moves refs to their global values, if their objects are here, and then records the
// boot. It tries again until the database answers.
func (d *Daemon) catchUp(ctx context.Context, c *config.Config) {
	retry := backoff.NewExponentialBackOff()
	retry.InitialInterval, retry.MaxInterval = 100*time.Millisecond, reconcileEvery
	for {
		err := d.catchUpAll(ctx, c)
		if err == nil {
			err = d.recordBoot(c.State)
		}
		if err == nil || ctx.Err() != nil {
			return
		}
		d.o.Logger.WarnContext(ctx, "refs could not be brought to their global values yet, after a boot; trying again", "class", refdb.ClassOf(err).String())
		select {
		case <-time.After(retry.NextBackOff()):
		case <-ctx.Done():
			return
		}
	}
}

func (d *Daemon) catchUpAll(ctx context.Context, c *config.Config) error {
	if err := d.awaitInheritance(ctx); err != nil {
		return err
	}
	repositories, err := guardedHere(c)
	if err != nil {
		return err
	}
	for _, r := range repositories {
		repo, err := gitrepo.Open(ctx, r.Path)
		if err != nil {
			// The other repositories must not wait for this one.
			d.o.Logger.WarnContext(ctx, "a repository can't be read: see `refdbctl site check`", "repository", d.digest(r.Project, ""))
			continue
		}
		ruled, err := projects.WithRules(ctx, c, d.db, r.Project)
		if err != nil {
			return err
		}
		release, err := d.share(ctx, r.Path)
		if err != nil {
			return err
		}
		report, err := catchup.SyncLocal(ctx, ruled, d.db, repo, r.Project, nil, nil)
		release()
		if err != nil {
			return err
		}
		if n := report.Results; len(n) > 0 {
			d.o.Logger.InfoContext(ctx, "refs were brought to their global values, after a boot", "repository", d.digest(r.Project, ""),
				"updated", n[catchup.Updated], "created", n[catchup.Created], "deleted", n[catchup.Deleted],
				"missing", n[catchup.Missing], "failed", n[catchup.Failed], "ahead", n[catchup.Ahead])
		}
	}
	return nil
}
