// Package retire removes a site that is gone for good from the database: what it had announced is resolved without losing
// an acknowledged push, and nobody waits for it any more.
package retire

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/site/clone"
	"github.com/globalrefdb/globalrefdb/site/packs"
	"github.com/globalrefdb/globalrefdb/site/presence"
	"github.com/globalrefdb/globalrefdb/site/projects"
)

var (
	// ErrUnknown says that the database has no site of that name.
	ErrUnknown = errors.New("no site of that name is registered: see `refdbctl sites list`")
	// ErrPending says that somebody must decide about what the site had announced.
	ErrPending = errors.New("pushes that the site had announced may have been acknowledged, and the database does not have their objects")
)

// releaseLimit bounds how long the release of the site's name may take.
const releaseLimit = 5 * time.Second

// A Request says which site to retire.
type Request struct {
	Site string
	By   string // who retires it, and why: recorded with each push that is resolved
	Why  string
	// Each, unless nil, is called with each ref that takes the value that the site had announced.
	Each func(project, ref string)
}

// Retire removes the site, under the lock on the site's name: no daemon of the site can start meanwhile. While the daemon runs it
// returns [presence.ErrTaken]. A push that was announced and not ended may have been acknowledged: its refs take the new
// values if the database keeps the objects. About others Retire decides nothing: they stay, as does the site, and the error
// is [ErrPending]. After an error, or an interruption, it may be called again.
func Retire(ctx context.Context, db *refdb.DB, r Request) (err error) {
	if err := requireRegistered(ctx, db, r.Site); err != nil {
		return err
	}
	lock, err := presence.Hold(ctx, db, r.Site)
	if err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseLimit)
		defer cancel()
		if released := lock.Release(ctx); released != nil && !errors.Is(released, refdb.ErrLockLost) {
			err = errors.Join(err, released)
		}
	}()
	if err := r.resolve(ctx, db); err != nil {
		return err
	}
	// Before the last look at the intents: a late request of the site's daemon adds none after it.
	if err := db.Recovery().LeaveFor(ctx, r.Site); err != nil {
		return err
	}
	if left, err := pending(ctx, db, r.Site); err != nil {
		return err
	} else if len(left) > 0 {
		return fmt.Errorf("%w: %s was announced meanwhile: run the command again", ErrPending, describe(left[0]))
	}
	if _, err := db.Followers().Remove(ctx, presence.FollowerName(r.Site)); err != nil {
		return err
	}
	if err := presence.RemoveRecords(ctx, db, r.Site); err != nil {
		return err
	}
	if err := projects.EndMirrorsAt(ctx, db, r.Site); err != nil {
		return err
	}
	// Last: until then the site is registered, and this can be repeated.
	return presence.Forget(ctx, lock, r.Site)
}

func requireRegistered(ctx context.Context, db *refdb.DB, name string) error {
	all, err := presence.Registered(ctx, db)
	if err == nil && !slices.ContainsFunc(all, func(s presence.Site) bool { return s.Name == name }) {
		err = fmt.Errorf("%w: %q", ErrUnknown, name)
	}
	return err
}

// resolve resolves what the site had announced, project by project.
func (r Request) resolve(ctx context.Context, db *refdb.DB) error {
	all, err := pending(ctx, db, r.Site)
	if err != nil {
		return err
	}
	var left []string
	for len(all) > 0 {
		project := all[0].Project
		n := slices.IndexFunc(all, func(i driver.Intent) bool { return i.Project != project })
		if n < 0 {
			n = len(all)
		}
		switch err := r.resolveIn(ctx, db, project); {
		case errors.Is(err, clone.ErrUndecidable), errors.Is(err, packs.ErrIncomplete), errors.Is(err, clone.ErrNotStored):
			for _, i := range all[:n] {
				left = append(left, describe(i))
			}
		case err != nil:
			return fmt.Errorf("resolving the pushes of site %q to %s: %w", r.Site, project, err)
		}
		all = all[n:]
	}
	if len(left) == 0 {
		return nil
	}
	const most = 10
	more := ""
	if n := len(left) - most; n > 0 {
		left, more = left[:most], fmt.Sprintf(" and %d more", n)
	}
	return fmt.Errorf("%w: %s%s; decide with `refdbctl locks resolve --site %s`, and run the command again", ErrPending, strings.Join(left, ", "), more, r.Site)
}

func (r Request) resolveIn(ctx context.Context, db *refdb.DB, project string) error {
	row, ok, err := db.Projects().Get(ctx, project)
	if err != nil {
		return err
	}
	if !ok || !packs.Stored(row) {
		return clone.ErrNotStored
	}
	resolved, err := clone.AbandonedIntents{Project: project, Site: r.Site, By: r.By, Why: r.Why}.Resolve(ctx, db)
	for _, ref := range resolved {
		if r.Each != nil {
			r.Each(project, ref)
		}
	}
	return err
}

// pending returns the intents of a site, in the order of their projects.
func pending(ctx context.Context, db *refdb.DB, site string) (all []driver.Intent, err error) {
	for i, err := range db.Intents().All(ctx, driver.IntentFilter{Owner: site}) {
		if err != nil {
			return nil, err
		}
		all = append(all, i)
	}
	slices.SortStableFunc(all, func(a, b driver.Intent) int { return strings.Compare(a.Project, b.Project) })
	return all, nil
}

func describe(i driver.Intent) string {
	return fmt.Sprintf("%s %s: %s to %s", i.Project, i.Ref, i.Old.Abbrev(), i.New.Abbrev())
}
