// Package afterboot repairs what a crash of the machine has left. It leaves git's lock files
// behind, and may leave refs at older values than the database has. The first daemon after a boot
// repairs both: no git from before the boot runs.
package afterboot

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/globalrefdb/globalrefdb/internal/gitrepo"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/site/catchup"
	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/follow"
	"github.com/globalrefdb/globalrefdb/site/install"
	"github.com/globalrefdb/globalrefdb/site/internal/durable"
	"github.com/globalrefdb/globalrefdb/site/internal/lockfiles"
	"github.com/globalrefdb/globalrefdb/site/maintenance"
	"github.com/globalrefdb/globalrefdb/site/projects"
	"github.com/globalrefdb/globalrefdb/site/serving"
)

// retryEvery is the longest pause between attempts to bring refs to their global values.
const retryEvery = 10 * time.Second

// A Repair repairs what a crash of the machine has left.
type Repair struct {
	Patience time.Duration // with running gits that have lock files
	DB       *refdb.DB
	State    *serving.State
	Pruning  *maintenance.Pruning
	Follower *follow.Follower
	Logger   *slog.Logger
}

func bootFile(state string) durable.State { return durable.In(state, "boot") }

// Booted reports whether the machine has booted since the last daemon ran. The first daemon with
// a state directory has nothing to repair.
func (b *Repair) Booted(state string) (bool, error) {
	text, found, err := bootFile(state).LoadText()
	if err == nil && !found {
		err = b.record(state)
	}
	return found && strings.TrimSpace(text) != b.State.Boot, err
}

func (b *Repair) record(state string) error {
	return bootFile(state).SaveText(b.State.Boot + "\n")
}

// RemoveLockFiles removes the lock files that no running git can have made. It is called before the
// first hook is answered. `site check` finds those that it can't remove.
func (b *Repair) RemoveLockFiles(ctx context.Context, c *config.Config) {
	repositories, err := install.GuardedBy(c)
	until := time.Now().Add(b.Patience)
	for _, r := range repositories {
		err = errors.Join(err, b.removeLockFilesIn(ctx, r, until))
	}
	if err != nil {
		b.Logger.WarnContext(ctx, "after a boot, some of git's lock files could not be checked: see `refdbctl site check`")
	}
}

func (b *Repair) removeLockFilesIn(ctx context.Context, r config.Repository, until time.Time) error {
	found := 0
	removed, err := lockfiles.RemoveLeft(ctx, b.State.Config().GitPrograms, r.Path, until, func() ([]gitrepo.LockFile, error) {
		files, err := gitrepo.LockFiles(r.Path)
		found = len(files)
		return files, err
	})
	if errors.Is(err, lockfiles.ErrBusy) {
		err = nil // a git that was started since
	}
	if found > 0 && (err == nil || errors.Is(err, lockfiles.ErrStays)) {
		b.Logger.InfoContext(ctx, "after a boot, git's lock files were removed", "files", removed, "repository", b.State.Digest(r.Project, ""))
	}
	return err
}

// CatchUp moves refs to their global values, if their objects are here, and then records the boot.
// It tries again until the database answers, and where it failed: no repository waits for another.
func (b *Repair) CatchUp(ctx context.Context, c *config.Config) {
	retry := backoff.NewExponentialBackOff()
	retry.InitialInterval, retry.MaxInterval = 100*time.Millisecond, retryEvery
	done := map[string]bool{}
	for {
		err := b.catchUpAll(ctx, c, done)
		if err == nil {
			err = b.record(c.State)
		}
		if err == nil || ctx.Err() != nil {
			return
		}
		b.Logger.WarnContext(ctx, "refs could not be brought to their global values yet, after a boot; trying again", "class", refdb.ClassOf(err).String())
		select {
		case <-time.After(retry.NextBackOff()):
		case <-ctx.Done():
			return
		}
	}
}

// catchUpAll catches up in all repositories but those that are done, by their paths. It adds to
// them.
func (b *Repair) catchUpAll(ctx context.Context, c *config.Config, done map[string]bool) error {
	if err := b.State.AwaitInheritance(ctx); err != nil {
		return err
	}
	repositories, err := install.GuardedBy(c)
	if err != nil {
		return err
	}
	var failures []error
	for _, r := range repositories {
		if done[r.Path] {
			continue
		}
		err := b.catchUpIn(ctx, c, r)
		if ctx.Err() != nil {
			return context.Cause(ctx) // the next daemon repairs the others
		}
		if refdb.ClassOf(err) == refdb.Retryable {
			return err // the database does not answer: the others would wait for it, too
		}
		if err != nil {
			b.Logger.WarnContext(ctx, "refs of a repository can't be brought to their global values: see `refdbctl site check`", "repository", b.State.Digest(r.Project, ""))
			failures = append(failures, err)
		}
		done[r.Path] = err == nil
	}
	return errors.Join(failures...)
}

func (b *Repair) catchUpIn(ctx context.Context, c *config.Config, r config.Repository) error {
	repo, err := gitrepo.Open(ctx, r.Path)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		// It is not tried again: while it can't be read, no ref moves there.
		b.Logger.WarnContext(ctx, "a repository can't be read: see `refdbctl site check`", "repository", b.State.Digest(r.Project, ""))
		return nil
	}
	ruled, err := projects.WithRules(ctx, c, b.DB, r.Project)
	if err != nil {
		return err
	}
	release, err := b.Pruning.Protect(ctx, r.Path)
	if err != nil {
		return err
	}
	defer release()
	report, err := catchup.Copy{Config: ruled, DB: b.DB, Repo: repo, Project: r.Project, Mover: b.Follower.Mover(r, repo), Patient: true}.All(ctx)
	if err != nil {
		return err
	}
	if n := report.Results; len(n) > 0 {
		b.Logger.InfoContext(ctx, "refs were brought to their global values, after a boot", "repository", b.State.Digest(r.Project, ""),
			"updated", n[catchup.Updated], "created", n[catchup.Created], "deleted", n[catchup.Deleted],
			"missing", n[catchup.Missing], "failed", n[catchup.Failed], "ahead", n[catchup.Ahead])
	}
	return nil
}
