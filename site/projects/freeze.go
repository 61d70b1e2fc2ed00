package projects

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/presence"
)

// Freezing holds the options of [Freeze].
type Freezing struct {
	Reason string
	By     string // who freezes the project
	// EarlierSites freezes it although daemons of an earlier version run, which do not know freezes.
	EarlierSites bool
	// Waits is called before Freeze waits until no site uses rules from before the freeze.
	Waits func(left time.Duration, earlier []string)
	// Settle is how long a site may use earlier rules; 0: [RulesSettle].
	Settle time.Duration
}

// ErrEarlierSites means that daemons run that do not know freezes. They would accept pushes for a while,
// and then stop following the project.
var ErrEarlierSites = errors.New("sites run an earlier version")

// Freeze freezes a project, whose row is given as it was read, and returns its new row. A freeze of a
// frozen project replaces that one. After Freeze has returned no site accepts a push to a guarded ref:
//   - the database refuses it, in the transaction that would record it;
//   - no site leaves it out, by rules that guard fewer refs: if the row has changed within rulesOld,
//     Freeze waits for as long as a site may use the earlier rules;
//   - a daemon of an earlier version does not know the line of the freeze in the rules. Once it has
//     read that line, it refuses all pushes to the project and no longer follows it. So Freeze is
//     refused with ErrEarlierSites while such a daemon runs, unless o.EarlierSites says otherwise: then
//     Freeze waits for as long as the daemon may use the earlier rules.
//
// Intents that were prepared before may still finish. If the error comes after the row was written,
// frozen is true.
func Freeze(ctx context.Context, db *refdb.DB, row driver.Project, o Freezing) (next driver.Project, frozen bool, err error) {
	if err := driver.CheckFreezeReason(o.Reason); err != nil {
		return row, false, err
	}
	switch row.Mode {
	case config.Enforce:
	case config.Removed:
		return row, false, fmt.Errorf("the project %s was removed", row.Project)
	default:
		return row, false, fmt.Errorf("the project %s is in mode %s, in which sites let pushes through that the database refuses: run refdbctl project set %[1]s --mode enforce first",
			row.Project, row.Mode)
	}
	before, unsure, err := earlierSites(ctx, db)
	if err == nil && len(before) > 0 && !o.EarlierSites {
		err = fmt.Errorf("%w: %s: upgrade them first, or stop their daemons", ErrEarlierSites, strings.Join(before, ", "))
	}
	if err != nil {
		return row, false, err
	}
	now, err := db.Now(ctx)
	if err != nil {
		return row, false, err
	}
	next = row
	next.Freeze = driver.Freeze{Reason: o.Reason, By: o.By, Since: now.UTC().Truncate(time.Second)}
	if next, err = db.Projects().Put(ctx, next); err != nil {
		return row, false, err
	}
	written := time.Now()
	// One that has started since may have read the rules before.
	after, unsureAfter, err := earlierSites(ctx, db)
	if err != nil {
		return next, true, err
	}
	changed := !row.IsNew() && row.Age < rulesOld
	if !changed && !unsure && !unsureAfter && len(before)+len(after) == 0 {
		return next, true, nil
	}
	left := cmp.Or(o.Settle, RulesSettle) - time.Since(written)
	if left <= 0 {
		return next, true, nil
	}
	if o.Waits != nil {
		o.Waits(left, after)
	}
	select {
	case <-time.After(left):
		return next, true, nil
	case <-ctx.Done():
		return next, true, ctx.Err()
	}
}

// Unfreeze lifts a project's freeze, whose row is given as it was read, and returns its new row. Sites
// accept pushes after [RulesSettle], as after any change of the row.
func Unfreeze(ctx context.Context, db *refdb.DB, row driver.Project) (driver.Project, error) {
	row.Freeze = driver.Freeze{}
	return db.Projects().Put(ctx, row)
}

// earlierSites returns the names of the sites whose daemons run and have not said that they know
// freezes. It is unsure about a daemon that has said nothing since it took the lock on its site's name:
// a daemon before it may have said what is recorded.
func earlierSites(ctx context.Context, db *refdb.DB) (names []string, unsure bool, err error) {
	var r presence.Records
	if r.Served, err = presence.Sites(ctx, db); err != nil {
		return nil, false, err
	}
	if r.Abouts, err = presence.Abouts(ctx, db); err != nil {
		return nil, false, err
	}
	if r.Locks, err = presence.NameLocks(ctx, db); err != nil {
		return nil, false, err
	}
	for _, s := range r.Sites() {
		switch {
		case !s.Alive():
		case s.About == nil || !s.About.Freezes:
			names = append(names, s.Name)
		case s.About.Told.Before(s.Lock.Token.Time()):
			unsure = true
		}
	}
	return names, unsure, nil
}
