package site

import (
	"context"
	"fmt"
	"strings"

	"github.com/globalrefdb/globalrefdb/refdb"
)

// Repair does once what the daemon does at its start and all the time: it ends
// the intents that crashed pushes of this site have left, by what the
// repositories say, and carries out what an operator decided meanwhile. It
// refuses while a daemon runs, here or elsewhere, which does that by itself. The
// Status says what was done, and what could not be. db's site must be c.Site.
func Repair(ctx context.Context, c *Config, db *refdb.DB, o Options) (s Status, err error) {
	d := New(c, db, o)
	if site, _, _ := strings.Cut(db.Owner(), "/"); site != c.Site {
		return s, fmt.Errorf("the database was opened for site %q, not %q", site, c.Site)
	}
	if d.boot, err = bootID(); err != nil {
		return s, err
	}
	lock, err := lockState(c.State)
	if err != nil {
		return s, err
	}
	defer lock.Close()
	work, cancel := context.WithCancel(ctx)
	defer d.tasks.Wait()
	defer cancel()
	d.work = work
	if err := d.presence.acquire(ctx, c); err != nil {
		return s, err
	}
	defer d.presence.end()
	err = d.reconcile(ctx)
	return d.status(), err
}
