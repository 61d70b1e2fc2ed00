package projects

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/globalrefdb/globalrefdb/internal/gitrepo"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/install"
	"github.com/globalrefdb/globalrefdb/site/packs"
	"github.com/globalrefdb/globalrefdb/site/refusal"
	"github.com/globalrefdb/globalrefdb/site/wire"
)

// IDKey is git's setting that records which project a repository is a copy of.
const IDKey = "refdb.projectid"

// OtherID is the refusal of a repository that was moved or copied. It records the ID of the project actual; "" if that is not known.
func OtherID(r config.Repository, actual string) error {
	return refusal.Lines{wire.AnotherProject(r.Project, actual, r.Path)}
}

// lostProject is the refusal of a repository whose project the database does not have.
func lostProject(r config.Repository) error {
	return refusal.Lines{wire.LostProject(r.Project)}
}

// sameTime is the largest time between two changes of a file that get the same modification time.
const sameTime = 2 * time.Second

// RepositoryIDs caches the IDs that repositories record, as long as their configuration files stay the same.
type RepositoryIDs struct {
	mu        sync.Mutex
	known     map[string]recordedID
	recording sync.Mutex // git fails if two change a configuration at once
}

type recordedID struct {
	file fs.FileInfo
	id   string
}

// Of returns what the repository records; "" if it records nothing.
func (ids *RepositoryIDs) Of(ctx context.Context, r config.Repository) (string, error) {
	path := filepath.Join(r.Path, "config")
	file, err := os.Stat(path)
	if err != nil {
		return "", err
	}
	ids.mu.Lock()
	have, ok := ids.known[r.Path]
	ids.mu.Unlock()
	if ok && os.SameFile(have.file, file) && have.file.ModTime().Equal(file.ModTime()) && have.file.Size() == file.Size() {
		return have.id, nil
	}
	entries, err := config.ReadFile(ctx, path)
	if err != nil {
		return "", err
	}
	id := ""
	for _, e := range entries {
		if e.Name() == IDKey {
			id = e.Value
		}
	}
	if time.Since(file.ModTime()).Abs() < sameTime {
		return id, nil // it may change again, and look the same
	}
	ids.mu.Lock()
	defer ids.mu.Unlock()
	if ids.known == nil {
		ids.known = map[string]recordedID{}
	}
	ids.known[r.Path] = recordedID{file, id}
	return id, nil
}

// Record makes the repository record an ID, unless it has one.
func (ids *RepositoryIDs) Record(ctx context.Context, r config.Repository, id string) error {
	ids.recording.Lock()
	defer ids.recording.Unlock()
	switch have, err := ids.Of(ctx, r); {
	case err != nil || have == id:
		return err
	case have != "":
		return OtherID(r, "")
	}
	repo, err := gitrepo.Open(ctx, r.Path)
	if err != nil {
		return err
	}
	return install.GitConfig{Repo: repo}.Set(ctx, IDKey, id)
}

// RecordID makes the repository record an ID, unless it has one.
func RecordID(ctx context.Context, r config.Repository, id string) error {
	var ids RepositoryIDs
	return ids.Record(ctx, r, id)
}

// A Claim is what is said about the project of a repository that is put under guard.
type Claim int

const (
	NoClaim Claim = iota
	New           // the repository is of a project that the database does not know: the name is right
	Copy          // the repository is a copy of the project that the database knows
	Named         // the name is right: New if the database does not know the project, else NoClaim
)

// creates reports whether a project that the database does not know is to be created.
func (c Claim) creates() bool { return c == New || c == Named }

// Register makes sure that the database has the project of a repository, and that the repository
// records its ID. A new project gets the configuration's rules. If the database knows nothing of the
// project, but the repository has refs, the name may be wrong: [New] says that it is right. A repository without refs gets those of the project that
// the database knows only as a [Copy]: the name may be another project's by now. If the database keeps the project's objects,
// the error wraps [packs.ErrShallow], [packs.ErrPartial] or [ErrOtherHistory] if the repository can't be a copy of it; nothing is recorded then.
func Register(ctx context.Context, c *config.Config, db *refdb.DB, r config.Repository, claim Claim) (did string, err error) {
	row, ok, err := db.Projects().Get(ctx, r.Project)
	switch {
	case err != nil:
		return "", err
	case !ok && !c.GuardsProject(r.Project):
		return "not guarded", nil
	}
	var ids RepositoryIDs
	id, err := ids.Of(ctx, r)
	if err != nil {
		return "", err
	}
	stores, isThere := row.Store, ok && row.Mode != config.Removed
	if !isThere {
		if stores, err = newStore(ctx, c, db, r); err != nil {
			return "", err
		}
	}
	if stores != "" {
		if err := packs.CheckSource(ctx, r.Path); err != nil {
			return "", err
		}
	}
	switch {
	case isThere && id == row.ID:
		return "is " + row.ID, nil
	case !isThere && claim == Copy:
		return "", errors.New(unknown(r.Project, row) + ", so this repository can't be its copy: if the name is right at all sites, run the command with --new")
	}
	row, created, err := FindOrCreate(ctx, c, db, r, id, claim, func() (bool, error) {
		if claim.creates() {
			return true, nil
		}
		empty, err := HasNoRefs(ctx, r)
		if err == nil && !empty {
			err = fmt.Errorf("%s, but this repository has refs: if the name is right at all sites, run the command with --new", unknown(r.Project, row))
		}
		return empty, err
	})
	if err == nil {
		err = ids.Record(ctx, r, row.ID)
	}
	switch {
	case err != nil:
		return "", err
	case created:
		return row.ID + " is new", nil
	}
	return row.ID + " recorded", nil
}

// HasNoRefs reports whether the repository has no refs.
func HasNoRefs(ctx context.Context, r config.Repository) (bool, error) {
	repo, err := gitrepo.Open(ctx, r.Path)
	if err != nil {
		return false, err
	}
	for _, err := range repo.Refs(ctx, func(string) {}) {
		return false, err
	}
	return true, nil
}

// unknown says why a project, whose row was read, is to be created.
func unknown(project string, row driver.Project) string {
	if row.Mode == config.Removed {
		return "the project " + project + " was removed"
	}
	return "the database knows no project " + project
}

// mayJoin returns an error if a repository that records no ID must not become a copy of the project that the database has by its name.
func mayJoin(ctx context.Context, db *refdb.DB, r config.Repository, row driver.Project, claim Claim) error {
	if claim == New {
		return refusal.Lines{wire.KnownProject(r.Project)}
	}
	if claim != Copy {
		empty, err := HasNoRefs(ctx, r)
		if err == nil && empty {
			err = refusal.Lines{wire.EmptyUnderKnownName(r.Project)}
		}
		if err != nil {
			return err
		}
	}
	if packs.Stored(row) {
		return adoptable(ctx, db, r)
	}
	return nil
}

// FindOrCreate finds the project of a repository that records id, or creates it. If the database has
// no refs of the project, or it was removed, unknown decides whether to create it. A project that the database has lost, or
// that was removed, is created again, with its ID, only if claim is [New] or [Named]: its rules are lost, too. A repository that records no ID becomes a copy of a
// project that there is only if it has refs, or claim is [Copy]; if it can't be one because that has another history, the error wraps [ErrOtherHistory].
func FindOrCreate(ctx context.Context, c *config.Config, db *refdb.DB, r config.Repository, id string, claim Claim, unknown func() (bool, error)) (row driver.Project, created bool, err error) {
	row, ok, err := db.Projects().Get(ctx, r.Project)
	if err != nil {
		return row, false, err
	}
	if id != "" && (!ok || id != row.ID) {
		actual, err := NameOf(ctx, db, id)
		switch {
		case err != nil:
			return row, false, err
		case ok || actual != "":
			return row, false, OtherID(r, actual)
		case !claim.creates():
			if _, err := admittedServer(ctx, db); err != nil {
				return row, false, err // what it lacks may still come
			}
			return row, false, lostProject(r)
		}
	}
	removed := ok && row.Mode == config.Removed
	if removed && id == row.ID && !claim.creates() {
		return row, false, refusal.Lines{wire.RemovedProject(r.Project)}
	}
	if ok && !removed {
		if id == "" {
			err = mayJoin(ctx, db, r, row, claim)
		}
		return row, false, err
	}
	hasRefs, err := hasRefs(ctx, db, r.Project)
	switch {
	case err != nil:
		return row, false, err
	case removed && hasRefs && id != row.ID:
		return row, false, isGone(ctx, db, r.Project)
	case !hasRefs:
		create, err := unknown()
		if err == nil && !create {
			err = refusal.Lines{wire.UnknownProject(r.Project)}
		}
		if err != nil {
			return row, false, err
		}
	}
	if id == "" {
		id = rand.Text()
	}
	store, err := newStore(ctx, c, db, r)
	if err != nil {
		return row, false, err
	}
	next := driver.Project{Project: r.Project, ID: id, Rules: c.Rules().String(), Mode: c.NewProjectMode, Store: store}
	if removed {
		row, err = replaceRemoved(ctx, db, row, next)
	} else {
		row, err = db.Projects().Put(ctx, next)
	}
	created = err == nil
	if errors.Is(err, refdb.ErrMismatch) { // another site was faster
		if row, _, err = db.Projects().Get(ctx, r.Project); err == nil && row.ID != id {
			err = mayJoin(ctx, db, r, row, claim)
		}
	}
	return row, created, err
}

// hasRefs reports whether the database has a ref of a project, were it a deleted one.
func hasRefs(ctx context.Context, db *refdb.DB, project string) (bool, error) {
	for _, err := range db.Refs(ctx, project, "refs/", refdb.IncludeDeleted()) {
		return err == nil, err
	}
	return false, nil
}

// newStore returns what the database is to keep of a new project's objects: none if it can't.
func newStore(ctx context.Context, c *config.Config, db *refdb.DB, r config.Repository) (string, error) {
	// In another mode refs move although the database does not have their objects.
	if c.NewProjectStore == "" || c.NewProjectMode != config.Enforce {
		return "", nil
	}
	_, err := db.Packs().Usage(ctx, r.Project)
	if errors.Is(err, errors.ErrUnsupported) {
		return "", nil
	}
	return c.NewProjectStore, err
}

// NameOf returns the name of the project with an ID; "" if the database has none.
func NameOf(ctx context.Context, db *refdb.DB, id string) (string, error) {
	all, err := db.Projects().After(ctx, 0)
	for _, p := range all {
		if p.ID == id {
			return p.Project, err
		}
	}
	return "", err
}
