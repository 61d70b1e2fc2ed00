package refs

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/globalrefdb/globalrefdb/internal/gitrepo"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
)

const (
	// importBatch is the number of refs in one transaction. For larger batches PostgreSQL's driver
	// would lock the project rather than its refs, and pushes and other batches would wait.
	importBatch = 250
	// batchesInProgress is the number of concurrent transactions. With a single transaction either
	// this program or the database would be idle.
	batchesInProgress = 4
	// batchTries is how often a batch is retried after its refs have changed meanwhile, or a reply
	// was lost.
	batchTries = 10
)

// Counts has the numbers of refs by result.
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

// A batchOutcome is the result of a batch.
type batchOutcome struct {
	Counts
	excluded int // refused, because their names conflict in git with other refs
	size     int
	problems []difference
	err      error
}

// Send imports refs in batches, several at a time. It starts no batch after ctx has ended or a
// batch has failed, and returns when the batches in progress have ended. Unlike config.InParallel
// it takes refs as they are read, and has only those batches in memory.
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
		if len(underWay) == batchesInProgress {
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

// take counts and prints the result of a batch. It is called in the order of the batches.
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

// bring imports a batch. It runs concurrently with other batches.
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
			// compare finds out which refs are imported, and which are left.
			pending = refsOf(updates)
		default:
			o.err = err
			return o
		}
	}
	return o
}

// compare reads the refs' values in the database. It counts equal refs, reports those that must be
// left alone, and returns updates for the others.
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

// wouldOverwrite reports the refs that would be overwritten.
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

// withoutLocked reports the refs that are locked, and returns the updates of the others in a new
// slice.
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
			detail = fmt.Sprintf("git can't store it beside %s, which is locked by %s", h.Ref, h.Owner)
		}
		if ok {
			o.Locked++
			o.problems = append(o.problems, difference{ref: u.Ref, result: "locked", local: u.New, global: u.Old, detail: detail})
		}
		return ok
	})
}

// intentBeside returns the lock of an intent on a ref whose name conflicts with another ref's, if
// any.
func intentBeside(holders map[string]refdb.LockInfo, ref string) (refdb.LockInfo, bool) {
	for _, h := range holders {
		if h.Intended() && driver.Excludes(h.Ref, ref) {
			return h, true
		}
	}
	return refdb.LockInfo{}, false
}

// withoutExcluded reports the refs whose names conflict in git with others, and returns the updates
// of the rest in a new slice.
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
				detail: fmt.Sprintf("git can't store it beside %s: if no site needs that one, run refdbctl refs delete %s %s --force, and import again", other, excluded.Project, other)})
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
