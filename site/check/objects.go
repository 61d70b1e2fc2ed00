package check

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/globalrefdb/globalrefdb/internal/gitrepo"
	"github.com/globalrefdb/globalrefdb/site/packs"
	"github.com/globalrefdb/globalrefdb/site/restore"
)

// maxFaults is how many faults of a repository are reported individually.
const maxFaults = 20

// objects reads all objects, and finds damaged or missing ones. The repair restores those that the
// database keeps.
func (k *repositoryCheck) objects(ctx context.Context) error {
	if !k.Objects {
		return nil
	}
	if err := k.alternates(); err != nil {
		return err
	}
	before, err := k.repo.Faults(ctx)
	if err != nil || len(before) == 0 {
		return err
	}
	advice := k.objectsAdvice()
	left := before
	if k.Repair && k.stored() {
		failure := errors.New("the database does not answer")
		if k.db != nil {
			failure = restore.Objects(ctx, k.Config, k.db, k.Project, k.repo, k.Hook, before)
		}
		if left, err = k.repo.Faults(ctx); err != nil {
			return err
		}
		advice = "could not be repaired: the database does not have it"
		if failure != nil {
			advice = "could not be repaired: " + failure.Error()
		}
	}
	var told int
	tell := func(f gitrepo.Fault, mended bool, detail string) {
		if told++; told <= maxFaults {
			k.found(Finding{Project: k.Project, Code: faultCode(f), Subject: f.Subject(), Detail: detail, Mended: mended})
		}
	}
	for _, f := range left {
		tell(f, false, f.Reason+": "+advice)
	}
	if told > maxFaults {
		k.found(Finding{Project: k.Project, Code: ObjectMissing, Detail: fmt.Sprintf("%d more objects are missing or damaged: %s", told-maxFaults, advice)})
	}
	told = 0
	for _, f := range before {
		if !slices.ContainsFunc(left, func(l gitrepo.Fault) bool { return l.Subject() == f.Subject() }) {
			tell(f, true, "restored from the database; damaged files stay in the repository's refdb/damaged until an operator removes them")
		}
	}
	return nil
}

// alternates finds directories of objects outside of the repository that are not checked as part of
// another repository.
func (k *repositoryCheck) alternates() error {
	all, err := k.repo.Alternates()
	for _, dir := range all {
		if !k.looked[dir] {
			k.find(ObjectsUnread, dir, fmt.Sprintf("the repository takes objects from this directory (objects/info/alternates), which was not read: check it with `git --git-dir=%s fsck`", filepath.Dir(dir)), nil)
		}
	}
	return err
}

// stored reports whether the database should keep the project's objects.
func (k *repositoryCheck) stored() bool {
	row, ok := k.rules[k.Project]
	return ok && packs.Stored(row)
}

func (k *repositoryCheck) objectsAdvice() string {
	if k.stored() {
		return fmt.Sprintf("`refdbctl site check %s --objects --repair` restores what the database has", k.Project)
	}
	return "the database does not keep the objects of the project: move this repository away, put a clone of another site's copy in its place (git clone --bare), and run refdbctl site enable " + k.Project
}

func faultCode(f gitrepo.Fault) string {
	if f.File == "" {
		return ObjectMissing
	}
	return ObjectDamaged
}
