// Package witness compares the database with what this site knows it to hold, which the site keeps in a journal. When the database's server
// was replaced, nobody writes before all sites have done so.
package witness

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/globalrefdb/globalrefdb/internal/gitrepo"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/journal"
	"github.com/globalrefdb/globalrefdb/site/moves"
	"github.com/globalrefdb/globalrefdb/site/presence"
	"github.com/globalrefdb/globalrefdb/site/serving"
)

const (
	// compareEvery is how often the daemon compares although the server is the same: that finds a
	// dump that was restored into it.
	compareEvery = presence.ReportsEvery
	// compareAgain takes the place of compareEvery while the database may not be written, and until an
	// outage is over.
	compareAgain = time.Second
	// admissionLimit is how long the database may take to say which server is admitted.
	admissionLimit = 10 * time.Second
)

// A Witness compares the database with the journal of what this site knows it to hold.
type Witness struct {
	DB      *refdb.DB
	Journal *journal.Journal // nil if there is none: then this site is no witness
	Moves   *moves.List
	State   *serving.State
	Logger  *slog.Logger

	read        progress                        // how far KeepJournal has read
	unreachable atomic.Pointer[[]presence.Site] // nil while it is not known
}

// Unreachable returns the other sites that were awaited and unreachable when this one last looked.
// It returns false if this failed, or before the first look.
func (w *Witness) Unreachable() (sites []presence.Site, known bool) {
	if found := w.unreachable.Load(); found != nil {
		return *found, true
	}
	return nil, false
}

// compare compares the journal with the database, once.
func (w *Witness) compare(ctx context.Context) (driver.Admission, error) {
	ctx, cancel := context.WithTimeout(ctx, compareEvery)
	defer cancel()
	a, err := w.DB.Recovery().Compare(ctx)
	if err == nil {
		err = a.Err()
	}
	switch {
	case errors.Is(err, refdb.ErrNotAdmitted), errors.Is(err, refdb.ErrLostChanges):
		w.State.RecordHealth(err)
	case err == nil && w.State.Presence.Lost() == nil:
		w.State.EndOutage() // no push may come for long
	}
	return a, err
}

// CompareAtStart compares before any other request. While the server is not admitted the daemon gets no presence.
func (w *Witness) CompareAtStart(ctx context.Context, c *config.Config) error {
	if w.Journal == nil {
		return nil
	}
	if _, err := w.Journal.Pending(); err != nil {
		return err // it can't be read
	}
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	if _, err := w.compare(ctx); err != nil {
		w.Logger.WarnContext(ctx, "the database could not be compared with this site's journal; trying again: see `refdbctl site status`", "class", refdb.ClassOf(err).String())
	}
	return nil
}

// Leave says that nobody needs to wait for this site: it has ended all that it began.
func (w *Witness) Leave() {
	if w.Journal == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), compareAgain)
	defer cancel()
	if err := w.DB.Recovery().Leave(ctx); err != nil {
		w.Logger.Warn("the other sites could not be notified that this one stops: while it is down, they wait for it if the database's server is replaced",
			"class", refdb.ClassOf(err).String())
	}
}

// MayAct returns nil if this site has compared the admitted server. Otherwise it compares now, and returns an
// error if that does not help: then the site must neither move refs nor end intents by what the server has.
// MayAct also records a failure of the database, which an idle daemon would not notice otherwise.
func (w *Witness) MayAct(ctx context.Context) error {
	if w.Journal == nil {
		return nil
	}
	a, err := w.admission(ctx)
	if err != nil && ctx.Err() == nil {
		w.State.RecordHealth(err)
	}
	if err != nil || a.May(w.State.Config().Site) {
		return err
	}
	if a, err = w.DB.Recovery().Compare(ctx); err == nil && !a.May(w.State.Config().Site) {
		err = errors.Join(refdb.ErrNotAdmitted, a.Err())
	}
	return err
}

// admission returns which server is admitted.
func (w *Witness) admission(ctx context.Context) (driver.Admission, error) {
	ctx, cancel := context.WithTimeout(ctx, admissionLimit)
	defer cancel()
	return w.DB.Recovery().Admission(ctx)
}

// KeepComparing compares until ctx ends. If there is an outage, it compares until that is over: no push
// may come that would end it.
func (w *Witness) KeepComparing(ctx context.Context) {
	halted := false
	compared := time.Now()
	for wait := compareAgain; ; {
		select {
		case <-time.After(compareAgain):
		case <-ctx.Done():
			return
		}
		ends := w.State.InOutage() && w.State.Presence.Lost() == nil
		if time.Since(compared) < wait && !ends {
			continue
		}
		_, err := w.compare(ctx)
		was := halted
		halted = errors.Is(err, refdb.ErrLostChanges)
		compared, wait = time.Now(), compareEvery
		if err != nil {
			wait = compareAgain
		} else if was || w.State.Presence.Lost() != nil {
			w.State.Reconcile.Request()
		}
	}
}

// SettleLost finds out whether the moves were made whose intents the database lost. It reports open
// while a process may still make some of them, which mayMove says.
func (w *Witness) SettleLost(ctx context.Context, lost []driver.Known, mayMove func(driver.Known) bool) (settled []driver.Known, open bool, err error) {
	for _, k := range lost {
		if k.Move == driver.MoveMade {
			settled = append(settled, k) // as it was found before
			continue
		}
		if mayMove(k) {
			open = true
		} else if k.Move, err = w.moveMade(ctx, k); err != nil {
			return nil, false, err
		}
		settled = append(settled, k)
	}
	return settled, open, nil
}

// moveMade returns what became of a move that nobody makes any more.
func (w *Witness) moveMade(ctx context.Context, k driver.Known) (driver.Move, error) {
	r, err := w.State.Config().Repository(k.Project)
	if err != nil {
		return driver.MoveUnknown, nil // an operator has to tell
	}
	repo, err := gitrepo.OpenDir(r.Path)
	if err != nil {
		return driver.MoveUnknown, nil
	}
	values, err := repo.Values(ctx, []string{k.Ref})
	broken := (*gitrepo.BrokenError)(nil)
	switch local := refdb.Value(values[k.Ref]); {
	case errors.As(err, &broken):
		return driver.MoveUnknown, nil
	case err != nil:
		return driver.MoveUnknown, err
	case local.Equivalent(k.New):
		w.Moves.Moved("", r.Path, k.Ref)
		// A crash of the machine must not bring back the old value of what is written again.
		return driver.MoveMade, repo.Sync([]string{k.Ref})
	case local.Equivalent(k.Old):
		return driver.MoveUnmade, nil
	}
	return driver.MoveUnknown, nil
}
