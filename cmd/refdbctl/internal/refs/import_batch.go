package refs

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/globalrefdb/globalrefdb/internal/gitrepo"
	"github.com/globalrefdb/globalrefdb/refdb"
)

const (
	// importBatch is how many refs go to the database in one transaction. It is less than what
	// PostgreSQL's driver locks ref by ref; for more it would lock the project, so that pushes and
	// the other batches would wait.
	importBatch = 250
	// batchesUnderWay is how many transactions are under way at the same time. With a single one
	// this program waits for the database, or the database for it.
	batchesUnderWay = 4
	// batchTries is how often a batch is retried because others changed its refs
	// meanwhile, or the reply was lost.
	batchTries = 10
)

// Counts is what became of refs.
type Counts struct {
	Imported, Equal, Different, Locked int
	overwritten                        int
}

func (c *Counts) add(more Counts) {
	c.Imported += more.Imported
	c.Equal += more.Equal
	c.Different += more.Different
	c.Locked += more.Locked
	c.overwritten += more.overwritten
}

// A batchOutcome is what became of a batch.
type batchOutcome struct {
	Counts
	excluded int // refused: git could not hold them beside others
	size     int
	problems []difference
	err      error
}

// Send brings refs into the database, in batches, several at a time. It begins none after ctx has
// ended or one has failed, and returns when those under way are done. Unlike config.InParallel it takes
// refs as they are read, and never holds more than those batches.
func (im *Importer) Send(ctx context.Context, refs iter.Seq2[gitrepo.Ref, error]) (err error) {
	var underWay []chan batchOutcome
	next := func() error {
		o := <-underWay[0]
		underWay = underWay[1:]
		return im.take(o)
	}
	defer func() {
		for len(underWay) > 0 {
			if failed := next(); err == nil {
				err = failed
			}
		}
	}()
	begin := func(batch []gitrepo.Ref) error {
		if len(underWay) == batchesUnderWay {
			if err := next(); err != nil {
				return err
			}
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		done := make(chan batchOutcome, 1)
		underWay = append(underWay, done)
		go func() { done <- im.bring(context.WithoutCancel(ctx), batch) }()
		return nil
	}
	var batch []gitrepo.Ref
	for ref, err := range refs {
		if err != nil {
			return err
		}
		if batch = append(batch, ref); len(batch) == im.batch {
			if err := begin(batch); err != nil {
				return err
			}
			batch = nil
		}
	}
	return begin(batch)
}

// take counts and prints what became of a batch. It is called in the order of the batches.
func (im *Importer) take(o batchOutcome) error {
	im.Counts.add(o.Counts)
	im.Refused += o.excluded
	for _, d := range o.problems {
		im.print(d)
	}
	if o.err != nil {
		return o.err
	}
	im.progress.Add(o.size)
	return im.printing
}

// bring brings a batch into the database. It runs beside others.
func (im *Importer) bring(ctx context.Context, batch []gitrepo.Ref) (o batchOutcome) {
	o.size = len(batch)
	pending := batch
	for try := 0; len(pending) > 0; try++ {
		updates, err := im.compare(ctx, &o, pending)
		if err != nil {
			o.err = err
			return o
		}
		if im.DryRun {
			updates = o.withoutLocked(updates, im.held)
			o.wouldOverwrite(updates)
		}
		if im.DryRun || len(updates) == 0 {
			o.count(updates)
			return o
		}
		err = im.update(ctx, updates)
		var locked *refdb.LockedError
		var excluded *refdb.NameConflictError
		switch {
		case err == nil:
			o.count(updates)
			return o
		case errors.As(err, &excluded):
			pending = refsOf(o.withoutExcluded(updates, excluded))
		case errors.As(err, &locked):
			free := o.withoutLocked(updates, locked)
			if len(free) == len(updates) {
				o.err = err
				return o
			}
			pending = refsOf(free)
		case try < batchTries && (errors.Is(err, refdb.ErrMismatch) || errors.Is(err, refdb.ErrOutcomeUnknown)):
			// compare finds out what is done, and what is left to do.
			pending = refsOf(updates)
		default:
			o.err = err
			return o
		}
	}
	return o
}

// compare reads the refs' values in the database. It counts the equal ones, notes those that
// must be left alone, and returns updates for the others.
func (im *Importer) compare(ctx context.Context, o *batchOutcome, refs []gitrepo.Ref) ([]refdb.Update, error) {
	names := make([]string, len(refs))
	for i, ref := range refs {
		names[i] = ref.Name
	}
	limited, cancel := im.Limited(ctx)
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
			o.Equal++
		case u.Old == refdb.Unknown || im.Overwrite:
			updates = append(updates, u)
		default:
			o.Different++
			d := difference{ref: u.Ref, result: "different", local: u.New, global: u.Old}
			if u.Old.IsDeleted() {
				d.detail = "was deleted in the database"
			}
			o.problems = append(o.problems, d)
		}
	}
	return updates, nil
}

func (im *Importer) update(ctx context.Context, updates []refdb.Update) error {
	limited, cancel := im.Limited(ctx)
	defer cancel()
	return im.db.Update(limited, im.project, updates, refdb.GitNames())
}

// wouldOverwrite notes what a dry run would overwrite.
func (o *batchOutcome) wouldOverwrite(updates []refdb.Update) {
	for _, u := range updates {
		if u.Old != refdb.Unknown {
			o.problems = append(o.problems, difference{ref: u.Ref, result: "would_overwrite", local: u.New, global: u.Old})
		}
	}
}

func (o *batchOutcome) count(updates []refdb.Update) {
	for _, u := range updates {
		if u.Old == refdb.Unknown {
			o.Imported++
		} else {
			o.overwritten++
		}
	}
}

// withoutLocked notes the refs that are locked, and returns the updates of the others in
// a new slice.
func (o *batchOutcome) withoutLocked(updates []refdb.Update, locked *refdb.LockedError) []refdb.Update {
	holders := make(map[string]refdb.LockInfo)
	for _, h := range locked.Holders {
		if !h.Stale() {
			holders[h.Ref] = h
		}
	}
	return slices.DeleteFunc(slices.Clone(updates), func(u refdb.Update) bool {
		h, ok := holders[u.Ref]
		detail := fmt.Sprintf("locked by %s", h.Owner)
		if !ok {
			h, ok = intentBeside(holders, u.Ref)
			detail = fmt.Sprintf("git can't hold it beside %s, which is locked by %s", h.Ref, h.Owner)
		}
		if ok {
			o.Locked++
			o.problems = append(o.problems, difference{ref: u.Ref, result: "locked", local: u.New, global: u.Old, detail: detail})
		}
		return ok
	})
}

// intentBeside returns the lock that stands for an intent on a ref that excludes another one, if there is one.
func intentBeside(holders map[string]refdb.LockInfo, ref string) (refdb.LockInfo, bool) {
	for _, h := range holders {
		if h.Intended() && refdb.Excludes(h.Ref, ref) {
			return h, true
		}
	}
	return refdb.LockInfo{}, false
}

// withoutExcluded notes the refs that git could not hold beside others, and returns the updates of the rest in a new slice.
func (o *batchOutcome) withoutExcluded(updates []refdb.Update, excluded *refdb.NameConflictError) []refdb.Update {
	with := make(map[string]string)
	for _, c := range excluded.Conflicts {
		with[c.Ref] = c.With
	}
	return slices.DeleteFunc(slices.Clone(updates), func(u refdb.Update) bool {
		other, ok := with[u.Ref]
		if ok {
			o.excluded++
			o.problems = append(o.problems, difference{ref: u.Ref, result: "refused", local: u.New, global: u.Old,
				detail: fmt.Sprintf("git can't hold it beside %s: if no site needs that one, run refdbctl refs delete %s %s --force, and import again", other, excluded.Project, other)})
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
