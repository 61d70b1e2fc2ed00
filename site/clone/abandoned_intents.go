package clone

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/globalrefdb/globalrefdb/internal/gitrepo"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
)

// ErrUndecidable: the database lacks the objects that an intent's new value needs, so that somebody must decide about it.
var ErrUndecidable = errors.New("the database does not have the objects of a push that was under way: run `refdbctl locks resolve` first")

// AbandonedIntents are a site's intents on a project whose repository at that site is gone.
type AbandonedIntents struct {
	Project string
	Site    string
	By      string // who resolves them, and why: both are recorded
	Why     string
}

// Resolve gives each ref its new value, if the database keeps the objects of them all, and returns the refs. For that it
// unpacks the project's packs into a temporary directory. Otherwise it resolves none, and returns [ErrUndecidable].
func (a AbandonedIntents) Resolve(ctx context.Context, db *refdb.DB) (resolved []string, err error) {
	dir, err := os.MkdirTemp("", "refdb-left-*")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	receiver, err := newReceiver(ctx, db, dir, a.Project)
	if err != nil {
		return nil, err
	}
	if err := receiver.Receive(ctx); err != nil {
		return nil, err
	}
	return a.resolve(ctx, db, receiver.Repo)
}

// resolve ends the intents. A push is acknowledged while its intent may still stand, so the new value counts; repo, which
// has what the database has, can't tell.
func (a AbandonedIntents) resolve(ctx context.Context, db *refdb.DB, repo *gitrepo.Repo) (resolved []string, err error) {
	var pending []driver.Intent
	var ids []string
	for i, err := range db.Intents().All(ctx, driver.IntentFilter{Project: a.Project, Owner: a.Site}) {
		if err != nil {
			return nil, err
		}
		pending = append(pending, i)
		if !i.New.IsDeleted() {
			ids = append(ids, string(i.New))
		}
	}
	if len(pending) == 0 {
		return nil, nil
	}
	whole, err := repo.Connected(ctx, ids)
	if err != nil {
		return nil, err
	}
	for _, i := range pending {
		if !i.New.IsDeleted() && !whole[string(i.New)] {
			return nil, fmt.Errorf("%w: %s to %s", ErrUndecidable, i.Ref, i.New.Abbrev())
		}
	}
	done, err := db.Intents().Resolve(ctx, pending, driver.TakeNew, a.By, a.Why)
	for _, i := range done {
		resolved = append(resolved, i.Ref)
	}
	return resolved, err
}
