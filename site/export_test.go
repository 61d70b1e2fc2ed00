package site

import (
	"context"
	"os"
	"time"

	"github.com/globalrefdb/globalrefdb/site/moves"
)

// AgeSessions lets all guards have been without a session, or in it, for longer.
func (d *Daemon) AgeSessions(by time.Duration) { d.guards.Backdate(by) }

// WaitingForClaims counts the transactions that wait for others.
func (d *Daemon) WaitingForClaims() int { return d.claims.Waiting() }

// MaintainDue does what a daemon does every few minutes.
func (d *Daemon) MaintainDue() { d.maintainer.MaintainDue(d.upkeep) }

// Maintaining holds the turn of maintenance until the function is called that it returns.
func (d *Daemon) Maintaining() (end func()) {
	d.maintainer.Enter(context.Background(), func() {})
	return d.maintainer.Leave
}

// BreakMoves lets moves not be listed until mend is called.
func (d *Daemon) BreakMoves() (mend func(), err error) {
	dir := moves.Dir(d.config.Load().State)
	d.list.Close()
	if err := os.Rename(dir, dir+".away"); err != nil {
		return nil, err
	}
	return func() { os.Remove(dir) }, os.WriteFile(dir, nil, 0o600)
}

// FollowRemoval moves the repository of a project aside, if it is to be, and returns where to.
func (d *Daemon) FollowRemoval(ctx context.Context, project string) (to string, err error) {
	return d.lifecycle.FollowRemoval(ctx, d.config.Load(), project)
}

// LookAtGerrit looks at the site's Gerrit after it has been as it is for longer.
func (d *Daemon) LookAtGerrit(ctx context.Context, longer time.Duration) {
	d.gerrit.Look(ctx)
	d.gerrit.Backdate(longer)
	d.gerrit.Look(ctx)
}

// CloneNow clones a project as the daemon does by itself.
func (d *Daemon) CloneNow(ctx context.Context, project string) error {
	_, err := d.lifecycle.Clone(ctx, d.config.Load(), project)
	return err
}

// LookForVanished looks for repositories that are gone, as at a time.
func (d *Daemon) LookForVanished(now time.Time) { d.lifecycle.LookForVanished(d.work, now) }

// HoldDeletions keeps projects from being removed until the function is called that it returns.
func (d *Daemon) HoldDeletions() (release func()) { return d.lifecycle.HoldDeletions() }

// Share keeps a repository from being had alone until the function is called that it returns.
func (d *Daemon) Share(ctx context.Context, path string) (release func(), err error) {
	return d.share(ctx, path)
}

// AwaitedAlone reports whether somebody waits to have a repository alone.
func (d *Daemon) AwaitedAlone(path string) bool { return d.pruning.Awaited(path) }
