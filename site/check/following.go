package check

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/site/client"
	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/maintenance"
	"github.com/globalrefdb/globalrefdb/site/packs"
)

const (
	// maintainPatience is the age of the last daily maintenance that is a finding.
	maintainPatience = 8 * 24 * time.Hour
	// maxUnusedBytes is the tolerated total size of packs in the database that no push has used:
	// daemons delete them after an hour.
	maxUnusedBytes = 1 << 30
)

// behind finds the repositories that can't catch up with the database, and projects that the daemon
// can't clone.
func (f *siteCheck) behind(status client.Status, repositories []config.Repository, found func(Finding)) {
	looked := make(map[string]bool, len(repositories))
	for _, r := range repositories {
		looked[r.Project] = true
	}
	for _, b := range status.Behind {
		if _, err := f.Repository(b.Project); err == nil && !looked[b.Project] || f.obstructed[b.Project] || b.Age < client.BehindPatience.Seconds() {
			continue
		}
		age := time.Duration(b.Age * float64(time.Second)).Round(time.Second)
		found(Finding{Project: b.Project, Code: Behind, Detail: fmt.Sprintf("it has been behind the database for %s: %s", age, b.Reason)})
	}
}

// malformed finds the projects for which another site has, within the last day, accepted objects
// that git's fsck rejects.
func malformed(status client.Status, repositories []config.Repository, found func(Finding)) {
	for _, m := range status.Malformed {
		if slices.ContainsFunc(repositories, func(r config.Repository) bool { return r.Project == m.Project }) {
			found(Finding{Project: m.Project, Code: ObjectMalformed, Subject: "pack " + m.Pack, Detail: fmt.Sprintf("%s stored an object that git's fsck rejects: %s: the object is here, too; "+
				"to refuse such objects from now on, run `git config transfer.fsckObjects true` in the project's repositories at the sites that accept pushes to it; this is reported for a day", m.Owner, m.Objection)})
		}
	}
}

// uncloned finds projects that the daemon should clone, but can't because their paths are taken:
// nothing else detects a directory without a repository, for example one created by a forge.
func (f *siteCheck) uncloned(ctx context.Context, found func(Finding)) error {
	if !f.AutoClone {
		return nil
	}
	rows, err := f.db.Projects().After(ctx, 0)
	for _, row := range rows {
		if row.Mode == config.Removed || !packs.Stored(row) || !f.GuardsProject(row.Project) || f.Names(row.Project) {
			continue
		}
		path, err := f.NewPath(row.Project)
		if errors.Is(err, config.ErrExists) {
			continue
		}
		detail := ""
		if err != nil {
			detail = err.Error()
		} else if _, err := os.Lstat(path); err == nil {
			detail = path + " exists, and is not a repository: move it away"
		}
		if detail != "" {
			f.obstructed[row.Project] = true
			found(Finding{Project: row.Project, Code: Behind, Subject: path, Detail: "the project has no repository here, and can't be cloned: " + detail})
		}
	}
	return err
}

// unused finds that the database has many packs that no push has used.
func (f *siteCheck) unused(ctx context.Context, found func(Finding)) error {
	usage, err := f.db.Packs().Usage(ctx, "")
	if errors.Is(err, errors.ErrUnsupported) {
		return nil
	}
	if err == nil && usage.UnusedSize > maxUnusedBytes {
		found(Finding{Code: PacksUnused, Detail: fmt.Sprintf("the database has %d packs (%d MiB) that no push has used: daemons delete them after an hour; if this finding stays, see their logs",
			usage.Unused, usage.UnusedSize>>20)})
	}
	return err
}

// packs finds that the database lacks objects of a project although it should keep them.
func (k *repositoryCheck) packs(ctx context.Context) error {
	if row, ok := k.rules[k.Project]; !ok || !packs.Stored(row) {
		return nil
	}
	compact := fmt.Sprintf("run `refdbctl site store compact %s` at a site that has all objects", k.Project)
	page, err := k.db.Packs().Page(ctx, driver.PackQuery{Project: k.Project, Limit: 1})
	switch {
	case err != nil:
		return err
	case len(page.Packs) > 0:
		// All kept packs build on the first one, which builds on nothing.
		if first := page.Packs[0]; !first.Full && len(first.Prerequisites) > 0 {
			k.find(NoBase, k.Project, "the project's first pack in the database builds on objects that the database does not have: "+compact, nil)
		}
		return nil
	}
	for ref, err := range k.db.Refs(ctx, k.Project, "refs/") {
		if err != nil {
			return err
		}
		if k.Guards(k.Project, ref.Name) && ref.Value.IsObjectID() && !ref.Value.IsDeleted() {
			k.find(NoBase, k.Project, "the database should keep the project's objects, but has none: "+compact, nil)
			break
		}
	}
	return nil
}

// maintained finds that the daily maintenance does not happen.
func (k *repositoryCheck) maintained() error {
	if !k.Config.Maintain {
		return nil
	}
	info, err := os.Stat(maintenance.File(k.repo.Dir()))
	if errors.Is(err, fs.ErrNotExist) {
		return nil // the repository is new here
	}
	if err != nil {
		return err
	}
	if age := time.Since(info.ModTime()); age > maintainPatience {
		k.find(NotMaintained, k.Project, fmt.Sprintf("its last maintenance was %d days ago, and should be daily: see the daemon's log, and run `refdbctl site maintain %s`", int(age.Hours()/24), k.Project), nil)
	}
	return nil
}
