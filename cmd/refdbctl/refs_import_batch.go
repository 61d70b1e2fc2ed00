package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/globalrefdb/globalrefdb/internal/gitrepo"
	"github.com/globalrefdb/globalrefdb/refdb"
)

// batchTries is how often a batch is retried because others changed its refs
// meanwhile, or the reply was lost.
const batchTries = 10

// send brings a batch into the database. It fails if ctx has ended, and is not interrupted
// after that.
func (im *importer) send(ctx context.Context, batch []gitrepo.Ref) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if im.err != nil {
		return im.err
	}
	ctx = context.WithoutCancel(ctx)
	pending := batch
	for try := 0; len(pending) > 0; try++ {
		updates, err := im.compare(ctx, pending)
		if err != nil {
			return err
		}
		if im.dryRun {
			updates = im.withoutLocked(updates, im.held)
			im.printOverwritten(updates)
		}
		if im.dryRun || len(updates) == 0 {
			im.count(updates)
			break
		}
		err = im.update(ctx, updates)
		var locked *refdb.LockedError
		switch {
		case err == nil:
			im.count(updates)
			pending = nil
		case errors.As(err, &locked):
			free := im.withoutLocked(updates, locked)
			if len(free) == len(updates) {
				return err
			}
			pending = refsOf(free)
		case try < batchTries && (errors.Is(err, refdb.ErrMismatch) || errors.Is(err, refdb.ErrOutcomeUnknown)):
			// compare finds out what is done, and what is left to do.
			pending = refsOf(updates)
		default:
			return err
		}
	}
	im.progress.add(len(batch))
	return nil
}

// compare reads the refs' values in the database. It counts the equal ones, reports those that
// must be left alone, and returns updates for the others.
func (im *importer) compare(ctx context.Context, refs []gitrepo.Ref) ([]refdb.Update, error) {
	names := make([]string, len(refs))
	for i, ref := range refs {
		names[i] = ref.Name
	}
	limited, cancel := im.limited(ctx)
	defer cancel()
	rows, err := im.db.GetAll(limited, im.project, names...)
	if err != nil {
		return nil, err
	}
	global := make(map[string]refdb.Value, len(rows))
	for _, row := range rows {
		global[row.Name] = row.Value
	}
	var updates []refdb.Update
	for _, ref := range refs {
		u := refdb.Update{Ref: ref.Name, Old: global[ref.Name], New: refdb.Value(ref.Value)}
		switch {
		case u.Old == u.New:
			im.equal++
		case u.Old == refdb.Unknown || im.overwrite:
			updates = append(updates, u)
		default:
			im.different++
			d := difference{ref: u.Ref, result: "different", local: u.New, global: u.Old}
			if u.Old.IsDeleted() {
				d.detail = "was deleted in the database"
			}
			im.print(d)
		}
	}
	return updates, nil
}

func (im *importer) update(ctx context.Context, updates []refdb.Update) error {
	limited, cancel := im.limited(ctx)
	defer cancel()
	return im.db.Update(limited, im.project, updates)
}

// printOverwritten reports what a dry run would overwrite.
func (im *importer) printOverwritten(updates []refdb.Update) {
	for _, u := range updates {
		if u.Old != refdb.Unknown {
			im.print(difference{ref: u.Ref, result: "would_overwrite", local: u.New, global: u.Old})
		}
	}
}

func (im *importer) count(updates []refdb.Update) {
	for _, u := range updates {
		if u.Old == refdb.Unknown {
			im.imported++
		} else {
			im.overwritten++
		}
	}
}

// withoutLocked reports the refs that are locked, and returns the updates of the others in
// a new slice.
func (im *importer) withoutLocked(updates []refdb.Update, locked *refdb.LockedError) []refdb.Update {
	holders := make(map[string]refdb.LockInfo)
	for _, h := range locked.Holders {
		if !h.Stale() {
			holders[h.Ref] = h
		}
	}
	return slices.DeleteFunc(slices.Clone(updates), func(u refdb.Update) bool {
		h, ok := holders[u.Ref]
		if ok {
			im.locked++
			im.print(difference{ref: u.Ref, result: "locked", local: u.New, global: u.Old, detail: fmt.Sprintf("locked by %s", h.Owner)})
		}
		return ok
	})
}

func refsOf(updates []refdb.Update) []gitrepo.Ref {
	refs := make([]gitrepo.Ref, len(updates))
	for i, u := range updates {
		refs[i] = gitrepo.Ref{Name: u.Ref, Value: string(u.New)}
	}
	return refs
}
