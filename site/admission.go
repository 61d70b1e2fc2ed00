package site

import (
	"context"
	"errors"
	"time"

	"github.com/globalrefdb/globalrefdb/internal/gitrepo"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/pusher"
)

// The daemon is a witness: it keeps a journal of what it knows the database to hold. When the
// database's server was replaced, it compares the two, and nobody writes before all sites have done so.

const (
	// compareEvery is how often the daemon compares although the server is the same: that finds a
	// dump that was restored into it.
	compareEvery = time.Minute
	// compareAgain is how often while the database may not be written.
	compareAgain = time.Second
)

// compare compares the journal with the database, once.
func (d *Daemon) compare(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, compareEvery)
	defer cancel()
	a, err := d.db.Compare(ctx)
	if err == nil {
		err = a.Err()
	}
	if errors.Is(err, refdb.ErrNotAdmitted) || errors.Is(err, refdb.ErrLostChanges) {
		d.recordHealth(err)
	}
	return err
}

// compareAtStart compares before any other request. While the server is not admitted the daemon gets no presence.
func (d *Daemon) compareAtStart(ctx context.Context, c *config.Config) error {
	if d.o.Journal == nil {
		return nil
	}
	if _, err := d.o.Journal.Pending(); err != nil {
		return err // it can't be read
	}
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	if err := d.compare(ctx); err != nil {
		d.o.Logger.WarnContext(ctx, "the database could not be compared with what is known here; trying again: see `refdbctl site status`", "class", refdb.ClassOf(err).String())
	}
	return nil
}

// leave says that nobody needs to wait for this site: it has ended all that it began.
func (d *Daemon) leave() {
	if d.o.Journal == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), compareAgain)
	defer cancel()
	if err := d.db.Leave(ctx); err != nil {
		d.o.Logger.Warn("the other sites could not be told that this one ends: while it is away, they wait for it if the database's server is replaced",
			"class", refdb.ClassOf(err).String())
	}
}

// mayAct returns nil if this site has compared the admitted server. Otherwise it compares now, and returns an
// error if that does not help: then the site must neither move refs nor end intents by what the server has.
func (d *Daemon) mayAct(ctx context.Context) error {
	if d.o.Journal == nil {
		return nil
	}
	a, err := d.db.Admission(ctx)
	if err != nil || a.May(d.config.Load().Site) {
		return err
	}
	if a, err = d.db.Compare(ctx); err == nil && !a.May(d.config.Load().Site) {
		err = errors.Join(refdb.ErrNotAdmitted, a.Err())
	}
	return err
}

// keepComparing compares until ctx ends.
func (d *Daemon) keepComparing(ctx context.Context) {
	halted := false
	for wait := compareAgain; ; {
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return
		}
		err := d.compare(ctx)
		was := halted
		halted = errors.Is(err, refdb.ErrLostChanges)
		wait = compareEvery
		if err != nil {
			wait = compareAgain
		} else if was || d.presence.Lost() != nil {
			d.requestReconcile()
		}
	}
}

// keepJournal notes all changes of the database.
func (d *Daemon) keepJournal(ctx context.Context) {
	for ctx.Err() == nil {
		end, err := d.db.HistoryEnd(ctx)
		if err == nil {
			err = d.noteChanges(ctx, end)
		}
		if ctx.Err() == nil && !errors.Is(err, refdb.ErrUnavailable) {
			d.o.Logger.WarnContext(ctx, "the database's changes could not be read on", "class", refdb.ClassOf(err).String())
		}
		select {
		case <-time.After(compareAgain):
		case <-ctx.Done():
		}
	}
}

func (d *Daemon) noteChanges(ctx context.Context, after refdb.Cursor) error {
	for page, err := range d.db.Changes(ctx, refdb.ChangeQuery{After: after}) {
		if err != nil {
			return err
		}
		var known []refdb.Known
		for _, c := range page.Changes {
			if c.Op != "" {
				known = append(known, refdb.Known{Project: c.Project, Ref: c.Ref, Old: c.Old, New: c.New, Op: c.Op, Owner: c.Owner, By: c.By, At: c.Time})
			}
		}
		if err := d.o.Journal.Note(known); err != nil {
			return err
		}
	}
	return nil
}

// settleLost finds out whether the moves of intents were made that the database lost. It reports
// open while a process may still make some.
func (d *Daemon) settleLost(ctx context.Context, lost []refdb.Known) (settled []refdb.Known, open bool, err error) {
	for _, k := range lost {
		if k.Move == refdb.MoveMade {
			settled = append(settled, k) // as it was found before
			continue
		}
		if d.mayMove(k) {
			open = true
		} else if k.Move, err = d.moveMade(ctx, k); err != nil {
			return nil, false, err
		}
		settled = append(settled, k)
	}
	return settled, open, nil
}

// mayMove reports whether the process that announced a move may still make it.
func (d *Daemon) mayMove(k refdb.Known) bool {
	if !d.lives(k.Agent) {
		return false
	}
	a, _ := pusher.ParseAgent(k.Agent)
	if p := d.pushes.get(a); p != nil {
		if m := p.find(k.Project, k.Ref); m != nil && m.token == k.Token {
			return !m.over.Load()
		}
	}
	return true
}

// moveMade returns what became of a move that nobody makes any more.
func (d *Daemon) moveMade(ctx context.Context, k refdb.Known) (refdb.Move, error) {
	r, err := d.config.Load().Repository(k.Project)
	if err != nil {
		return refdb.MoveUnknown, nil // an operator has to tell
	}
	repo, err := gitrepo.OpenDir(r.Path)
	if err != nil {
		return refdb.MoveUnknown, nil
	}
	values, err := repo.Values(ctx, []string{k.Ref})
	broken := (*gitrepo.BrokenError)(nil)
	switch local := refdb.Value(values[k.Ref]); {
	case errors.As(err, &broken):
		return refdb.MoveUnknown, nil
	case err != nil:
		return refdb.MoveUnknown, err
	case local.Equivalent(k.New):
		d.listMoved("", r.Path, k.Ref)
		// A crash of the machine must not bring back the old value of what is written again.
		return refdb.MoveMade, repo.Sync([]string{k.Ref})
	case local.Equivalent(k.Old):
		return refdb.MoveUnmade, nil
	}
	return refdb.MoveUnknown, nil
}
