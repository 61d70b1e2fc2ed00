package site

import "context"

// MaintainDue does what a daemon does every few minutes.
func (d *Daemon) MaintainDue() { d.maintainDue(d.maintainer.ctx) }

// Maintaining holds the turn of maintenance until the function is called that it returns.
func (d *Daemon) Maintaining() (end func()) {
	d.maintainer.turn <- struct{}{}
	return d.maintainer.leave
}

// FollowRemoval moves the repository of a project aside, if it is to be, and returns where to.
func (d *Daemon) FollowRemoval(ctx context.Context, project string) (to string, err error) {
	return d.followRemoval(ctx, d.config.Load(), project)
}
