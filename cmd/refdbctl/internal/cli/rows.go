package cli

import (
	"context"
	"errors"
	"iter"

	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/exit"
	"github.com/globalrefdb/globalrefdb/refdb"
)

// Locks iterates over the locks that a filter selects.
func (a *Run) Locks(ctx context.Context, db *refdb.DB, f refdb.LockFilter) iter.Seq2[refdb.LockInfo, error] {
	return WithRowTimeout(ctx, a, func(ctx context.Context) iter.Seq2[refdb.LockInfo, error] { return db.Locks(ctx, f) })
}

// RequireProject fails if the database has neither refs of a project, including deleted ones, nor
// locks: the project's name may be misspelt.
func (a *Run) RequireProject(ctx context.Context, db *refdb.DB, project string) error {
	for _, err := range a.Refs(ctx, db, project, "", true) {
		return err
	}
	for _, err := range a.Locks(ctx, db, refdb.LockFilter{Project: project}) {
		return err
	}
	return exit.With(exit.Failed, "no such project: "+project+" (the database has no ref or lock of it)")
}

// NoteIfNoProject prints a note if a project whose locks are listed does not exist. This is no
// error: a project that only ever has locks does not exist while it has none.
func (a *Run) NoteIfNoProject(ctx context.Context, db *refdb.DB, project string) error {
	if project == "" {
		return nil
	}
	err := a.RequireProject(ctx, db, project)
	var missing *exit.Error
	if errors.As(err, &missing) {
		a.Note("%s", missing)
		return nil
	}
	return err
}

// Refs iterates over the refs of a project below a prefix.
func (a *Run) Refs(ctx context.Context, db *refdb.DB, project, prefix string, deleted bool) iter.Seq2[refdb.Ref, error] {
	return WithRowTimeout(ctx, a, func(ctx context.Context) iter.Seq2[refdb.Ref, error] {
		return db.Refs(ctx, project, prefix, listOptions(deleted)...)
	})
}

// RefsAt is Refs right after a position.
func (a *Run) RefsAt(ctx context.Context, db *refdb.DB, project, prefix string, deleted bool, at refdb.Position) iter.Seq2[refdb.Ref, error] {
	return WithRowTimeout(ctx, a, func(ctx context.Context) iter.Seq2[refdb.Ref, error] {
		return db.RefsAt(ctx, project, prefix, at, listOptions(deleted)...)
	})
}

func listOptions(deleted bool) (options []refdb.ListOption) {
	if deleted {
		options = append(options, refdb.IncludeDeleted())
	}
	return options
}

// History iterates over the changes of a ref, or of a project's refs, newest first.
func (a *Run) History(ctx context.Context, db *refdb.DB, project, ref string) iter.Seq2[refdb.Change, error] {
	return WithRowTimeout(ctx, a, func(ctx context.Context) iter.Seq2[refdb.Change, error] { return db.History(ctx, project, ref) })
}
