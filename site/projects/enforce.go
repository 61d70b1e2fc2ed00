package projects

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/presence"
)

const (
	comparePoll = 300 * time.Millisecond
	// backLimit is how long the return to mode log may take after a failed comparison.
	backLimit = 10 * time.Second
)

// SetEnforce changes the mode of a project from log to enforce, at all sites, and returns its new row. All sites
// refuse pushes and report the digest of their refs. If a site has other refs than the database, or does not
// report before ctx ends, the project returns to mode log, and the error names the site. The sites in without are
// gone for good, and not waited for. Waits is called with the sites that have not reported, whenever they change.
func SetEnforce(ctx context.Context, db *refdb.DB, row driver.Project, without []string, waits func(sites []string)) (driver.Project, error) {
	if row.Mode != config.Comparing {
		row.Mode = config.Comparing
		var err error
		if row, err = db.Projects().Put(ctx, row); err != nil {
			return row, err
		}
	}
	failed := compareSites(ctx, db, row, without, waits)
	next := row
	next.Mode = config.Enforce
	if failed != nil {
		next.Mode = config.Log
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), backLimit)
		defer cancel()
	}
	next, err := db.Projects().Put(ctx, next)
	switch {
	case err != nil && failed != nil:
		return row, fmt.Errorf("%w; and the mode could not be set back to %s: all sites refuse pushes to %s until it is: %w", failed, config.Log, row.Project, err)
	case err != nil:
		return row, fmt.Errorf("all sites refuse pushes to %s until its mode is set, again: %w", row.Project, err)
	}
	return next, failed
}

// compareSites waits until all sites have reported, and compares their refs with the database.
func compareSites(ctx context.Context, db *refdb.DB, row driver.Project, without []string, waits func([]string)) error {
	rules, err := config.ParseRules(row.Rules)
	if err != nil {
		return fmt.Errorf("project %s: %w", row.Project, err)
	}
	if err := removeRecords(ctx, db, row, without); err != nil {
		return err
	}
	reports, err := awaitReports(ctx, db, row, without, waits)
	if err != nil {
		return err
	}
	if err := awaitLocks(ctx, db, row.Project); err != nil {
		return err
	}
	want, err := globalDigest(ctx, new(config.Config).Under(rules), db, row.Project)
	if err != nil {
		return err
	}
	var differ []string
	for _, r := range reports {
		if r.Digest != want && r.Digest != NoRepository {
			differ = append(differ, r.site)
		}
	}
	if len(differ) > 0 {
		return fmt.Errorf("the refs of %s are not those of the database at %s: run refdbctl site check %s there, then site sync (or refs import --overwrite, "+
			"where that site's values are right)", row.Project, strings.Join(differ, ", "), row.Project)
	}
	return nil
}

type siteRecord struct {
	site string
	Record
}

// awaitReports waits until each site reports that it lets no push through.
func awaitReports(ctx context.Context, db *refdb.DB, row driver.Project, without []string, waits func([]string)) (reports []siteRecord, err error) {
	told := ""
	for {
		missing, err := presence.Sites(ctx, db)
		if err != nil {
			return nil, err
		}
		records, err := modeRecords(ctx, db, row.ID)
		if err != nil {
			return nil, err
		}
		reports = reports[:0]
		for _, r := range records {
			if r.Revision == row.Revision && r.Digest != "" {
				missing = slices.DeleteFunc(missing, func(name string) bool { return name == r.site })
				reports = append(reports, r)
			} else {
				missing = append(missing, r.site) // once more, if it was not known
			}
		}
		slices.Sort(missing)
		missing = slices.Compact(missing)
		missing = slices.DeleteFunc(missing, func(name string) bool { return slices.Contains(without, name) })
		if len(missing) == 0 {
			return reports, nil
		}
		if now := strings.Join(missing, ", "); now != told {
			told = now
			waits(missing)
		}
		select {
		case <-time.After(comparePoll):
		case <-ctx.Done():
			return nil, fmt.Errorf("site %s has not answered: its daemon must run, and reach the database; git processes that move refs of %s there must end; "+
				"if the site is gone for good: --without", told, row.Project)
		}
	}
}

// awaitLocks waits until there is no lock and no intent on any ref of a project. It is called after all
// sites have reported: then no push of theirs is under way. It removes stale locks.
func awaitLocks(ctx context.Context, db *refdb.DB, project string) error {
	for {
		var left *refdb.LockInfo
		for l, err := range db.Locks(ctx, refdb.LockFilter{Project: project}) {
			if err == nil && l.Stale() && !l.Intended() {
				_, err = db.Operator().Purge(ctx, []refdb.LockInfo{l})
				l.Owner = ""
			}
			if err != nil {
				return err
			}
			if l.Owner != "" {
				left = &l
			}
		}
		if left == nil {
			return nil
		}
		select {
		case <-time.After(comparePoll):
		case <-ctx.Done():
			return fmt.Errorf("%s of %s is locked by %s: see refdbctl locks list, and locks list --intents", left.Ref, project, left.Owner)
		}
	}
}

// modeRecords returns the records of all sites about one project.
func modeRecords(ctx context.Context, db *refdb.DB, id string) (records []siteRecord, err error) {
	for ref, err := range db.Refs(ctx, presence.Project, modePrefix(id)) {
		if err != nil {
			return nil, err
		}
		records = append(records, siteRecord{strings.TrimPrefix(ref.Name, modePrefix(id)), parseModeRecord(ref.Value)})
	}
	return records, nil
}

// removeRecords removes the records of sites that are gone for good.
func removeRecords(ctx context.Context, db *refdb.DB, row driver.Project, sites []string) error {
	for _, name := range sites {
		if lock, err := presence.LockOf(ctx, db, name); err != nil {
			return err
		} else if lock != nil {
			return fmt.Errorf("site %s is not gone: its daemon runs", name)
		}
		_, err := db.Put(ctx, presence.Project, RecordRef(row.ID, name), refdb.Deleted)
		if err != nil && !errors.Is(err, refdb.ErrMismatch) {
			return err
		}
	}
	return nil
}
