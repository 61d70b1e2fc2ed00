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
)

// A crash of the machine leaves git's lock files, and may leave refs at older values
// than the database has. The first daemon after a boot puts both right: no git
// from before runs any more.

func bootFile(state string) string { return filepath.Join(state, "boot") }

// booted reports whether this is another boot than that of the daemon before. The
// first daemon with a state directory has nothing to put right.
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
	return replaceFile(bootFile(state), []byte(d.boot+"\n"))
}

// guardedHere are the repositories whose hooks ask this daemon.
func guardedHere(c *Config) (guarded []Repository, err error) {
	all, err := c.Repositories()
	for _, r := range all {
		if target, err := os.Readlink(filepath.Join(r.Path, "refdb", "socket")); err == nil && target == c.Socket {
			guarded = append(guarded, r)
		}
	}
	return guarded, err
}

// unlock removes the lock files that no running git can have made, before the first
// hook is answered. What it can't remove, `site check` finds.
func (d *Daemon) unlock(ctx context.Context, c *Config) {
	repositories, err := guardedHere(c)
	until := time.Now().Add(leftoverPatience)
	for _, r := range repositories {
		err = errors.Join(err, d.unlockOne(ctx, r, until))
	}
	if err != nil {
		d.o.Logger.WarnContext(ctx, "after a boot git's lock files could not all be looked at: see `refdbctl site check`")
	}
}

func (d *Daemon) unlockOne(ctx context.Context, r Repository, until time.Time) error {
	files, err := lockFiles(r.Path)
	if err != nil || len(files) == 0 {
		return err
	}
	left, unsure, err := unowned(ctx, r.Path, files, until)
	if err != nil || unsure {
		return errors.Join(err, errors.New("git can't be told to have ended"))
	}
	var failures []error
	for _, f := range left {
		_, err := f.remove()
		failures = append(failures, err)
	}
	d.o.Logger.InfoContext(ctx, "after a boot git's lock files were removed", "files", len(left), "repository", d.digest(r.Project, ""))
	return errors.Join(failures...)
}

// catchUp brings refs to their global values where the objects are here, once the
// database answers, and then records the boot.
func (d *Daemon) catchUp(ctx context.Context, c *Config) {
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

func (d *Daemon) catchUpAll(ctx context.Context, c *Config) error {
	if err := d.informed(ctx); err != nil {
		return err
	}
	repositories, err := guardedHere(c)
	if err != nil {
		return err
	}
	for _, r := range repositories {
		repo, err := gitrepo.Open(ctx, r.Path)
		if err != nil {
			// It is not to keep the others waiting.
			d.o.Logger.WarnContext(ctx, "a repository can't be read: see `refdbctl site check`", "repository", d.digest(r.Project, ""))
			continue
		}
		s := newSyncer(c, d.db, repo, r.Project, nil, SyncOptions{})
		if err := s.run(ctx); err != nil {
			return err
		}
		if n := len(s.report.Results); n > 0 {
			d.o.Logger.InfoContext(ctx, "refs were brought to their global values, after a boot", "repository", d.digest(r.Project, ""),
				"updated", s.report.Results[SyncUpdated], "created", s.report.Results[SyncCreated], "deleted", s.report.Results[SyncDeleted],
				"missing", s.report.Results[SyncMissing], "failed", s.report.Results[SyncFailed])
		}
	}
	return nil
}
