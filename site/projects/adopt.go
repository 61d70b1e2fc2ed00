package projects

import (
	"context"
	"errors"
	"fmt"

	"github.com/globalrefdb/globalrefdb/internal/gitrepo"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/wire"
)

// ErrOtherHistory: a repository shares nothing with the project that its path stands for.
var ErrOtherHistory = errors.New(wire.OtherHistory)

// adoptable returns an error that wraps [ErrOtherHistory] if a repository that records no ID must not become a copy of a project whose
// objects the database keeps: it would be moved to the project's values, and its other refs would become the project's.
func adoptable(ctx context.Context, db *refdb.DB, r config.Repository) error {
	repo, err := gitrepo.Open(ctx, r.Path)
	if err != nil {
		return err
	}
	values := map[refdb.Value]bool{}
	for ref, err := range repo.Refs(ctx, func(string) {}) {
		if err != nil {
			return err
		}
		if config.Guardable(ref.Name) && refdb.Value(ref.Value).IsObjectID() {
			values[refdb.Value(ref.Value)] = true
		}
	}
	shared, err := shares(ctx, db, repo, r.Project, values)
	if err == nil && !shared {
		err = fmt.Errorf("%s: %w%s", r.Path, ErrOtherHistory, wire.OtherHistoryThan(r.Project))
	}
	return err
}

// shares reports whether the repository, whose refs hold values, and the project have anything in common, or one of them has nothing.
func shares(ctx context.Context, db *refdb.DB, repo *gitrepo.Repo, project string, values map[refdb.Value]bool) (bool, error) {
	if len(values) == 0 {
		return true, nil
	}
	var global []string
	for ref, err := range db.Refs(ctx, project, "refs/") {
		switch {
		case err != nil:
			return false, err
		case values[ref.Value]:
			return true, nil
		case ref.Value.IsObjectID() && !ref.Value.IsDeleted():
			global = append(global, string(ref.Value))
		}
	}
	if len(global) == 0 {
		return true, nil
	}
	here, err := repo.Present(ctx, global)
	if err != nil || len(here) > 0 {
		return len(here) > 0, err
	}
	// A copy that is behind has what refs held before.
	for c, err := range db.History(ctx, project, "") {
		if err != nil {
			return false, err
		}
		if values[c.Old] || values[c.New] {
			return true, nil
		}
	}
	return false, nil
}
