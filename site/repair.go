package site

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/site/client"
	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/presence"
	"github.com/globalrefdb/globalrefdb/site/projects"
	"github.com/globalrefdb/globalrefdb/site/pusher"
)

// Repair reconciles once, as the daemon does at its start and again and again: it ends the intents that
// crashed pushes of this site have left, by what the repositories have, and carries out what an
// operator has decided meanwhile. It refuses while a daemon of the site runs, here or elsewhere. The
// Status says what was done, and what could not be done. db's site must be c.Site.
func Repair(ctx context.Context, c *config.Config, db *refdb.DB, o Options) (s client.Status, err error) {
	return New(c, db, o).repair(ctx, c)
}

// repair is [Repair] by a daemon that does not run.
func (d *Daemon) repair(ctx context.Context, c *config.Config) (s client.Status, err error) {
	db := d.db
	if site, _, _ := strings.Cut(db.Owner(), "/"); site != c.Site {
		return s, fmt.Errorf("the database was opened for site %q, not %q", site, c.Site)
	}
	if d.state.Boot, err = pusher.BootID(); err != nil {
		return s, err
	}
	lock, err := presence.LockState(c.State)
	if err != nil {
		return s, err
	}
	defer lock.Close()
	if d.state.Locked, err = projects.Uptime(); err != nil {
		return s, err
	}
	if err := presence.CheckLocation(c); err != nil {
		return s, err
	}
	d.openMoves(ctx, c)
	defer d.list.Close() // after all that may list something
	work, cancel := context.WithCancel(ctx)
	defer d.state.Tasks.Wait()
	defer cancel()
	d.state.Work = work
	if err := d.guards.LoadGuards(c.State); err != nil {
		return s, err
	}
	if err := d.state.Presence.Acquire(ctx, c); err != nil {
		return s, err
	}
	defer d.state.Presence.End()
	err = d.reconcile(ctx)
	until := time.Now().Add(d.limits.lockFiles)
	d.guards.AwaitDead(ctx, until)
	d.awaitRemovals(ctx, until)
	if err == nil && d.state.Reconcile.Outstanding() {
		err = d.reconcile(ctx) // decisions that had to wait for lock files
	}
	return d.status(), err
}
