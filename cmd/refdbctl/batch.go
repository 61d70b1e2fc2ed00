package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/globalrefdb/globalrefdb/internal/gitrepo"
	"github.com/globalrefdb/globalrefdb/refdb"
)

// batchTries is how often a batch is looked at again because others changed
// its refs meanwhile, or its reply was lost.
const batchTries = 10

// send brings a batch into the database. Once begun it is not interrupted:
// ctx's end is heeded before.
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
			updates = im.setAside(updates, im.held)
			im.sayOverwritten(updates)
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
			free := im.setAside(updates, locked)
			if len(free) == len(updates) {
				return err
			}
			pending = refsOf(free)
		case try < batchTries && (errors.Is(err, refdb.ErrMismatch) || errors.Is(err, refdb.ErrOutcomeUnknown)):
			// Looking again tells what is done, and what is left to do.
			pending = refsOf(updates)
		default:
			return err
		}
	}
	im.progress.add(len(batch))
	return nil
}

// compare looks up what the database has. It counts and reports the refs that
// need nothing, or must be left alone, and returns updates for the others.
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
	have := make(map[string]refdb.Value, len(rows))
	for _, row := range rows {
		have[row.Name] = row.Value
	}
	var updates []refdb.Update
	for _, ref := range refs {
		u := refdb.Update{Ref: ref.Name, Old: have[ref.Name], New: refdb.Value(ref.Value)}
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
			im.say(d)
		}
	}
	return updates, nil
}

func (im *importer) update(ctx context.Context, updates []refdb.Update) error {
	limited, cancel := im.limited(ctx)
	defer cancel()
	return im.db.Update(limited, im.project, updates)
}

// sayOverwritten reports what a dry run would overwrite.
func (im *importer) sayOverwritten(updates []refdb.Update) {
	for _, u := range updates {
		if u.Old != refdb.Unknown {
			im.say(difference{ref: u.Ref, result: "would_overwrite", local: u.New, global: u.Old})
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

// setAside reports the refs that are locked, and returns the updates of the others.
func (im *importer) setAside(updates []refdb.Update, locked *refdb.LockedError) []refdb.Update {
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
			im.say(difference{ref: u.Ref, result: "locked", local: u.New, global: u.Old, detail: fmt.Sprintf("locked by %s", h.Owner)})
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
