package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
)

const (
	// lookAtLeast is how many of the newest known changes are always looked up. A database goes
	// back to a state that it had, so that if these are there those before are, too. It is more
	// than the number of requests of a process that are under way at once. At another server than
	// before, all changes made within lateCommits before the newest are looked up: changes of other
	// processes are not in the order in which they were committed.
	lookAtLeast = 500
	// lookAtOnce is how many are looked up in a request.
	lookAtOnce = 1000
	// lateCommits is how long after its time a change may be committed.
	lateCommits = time.Minute
)

// Sequence changes when a comparison begins, and when it ends. A caller reads it before it sends a
// write, for [Engine.NoteWritten].
func (e *Engine) Sequence() uint64 { return e.comparisons.sequence.Load() }

// comparisons are those of an Engine.
type comparisons struct {
	turn     chan struct{} // has an item while there is one
	sequence atomic.Uint64 // as in a sequence lock: incremented when a comparison begins and when it ends, so odd during one
	began    time.Time     // of the last one; whoever has the turn changes this and what follows
	left     bool
	outcome  driver.Admission
	err      error
}

// enter waits for the turn, at most until ctx ends.
func (c *comparisons) enter(ctx context.Context) error {
	select {
	case c.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("comparing the database with the known changes: %w", ctx.Err())
	}
}

func (c *comparisons) leave() { <-c.turn }

// Compare looks whether the database still has what this process knows, and reports that. If
// something is missing, nobody can write until the database was recovered: [driver.Admission.Err].
// Else, if the server is not admitted and no other witness is awaited, it admits it.
//
// Requests that write call it when they find that the server is not admitted. A witness calls it at
// its start and once a minute, too: that finds what leaves the server as it is, such as a dump that
// is restored.
func (e *Engine) Compare(ctx context.Context) (driver.Admission, error) {
	asked := time.Now()
	if err := e.comparisons.enter(ctx); err != nil {
		return driver.Admission{}, err
	}
	defer e.comparisons.leave()
	if e.comparisons.left {
		return driver.Admission{}, driver.ErrClosed
	}
	if e.comparisons.err == nil && e.comparisons.began.After(asked) {
		return e.comparisons.outcome, nil
	}
	return e.compareNow(ctx, driver.Report{})
}

// Leave is the last [Engine.Compare] of a witness that ends: nobody waits for it any more. It must
// have no pending intents, and do nothing afterwards.
func (e *Engine) Leave(ctx context.Context) error {
	if err := e.comparisons.enter(ctx); err != nil {
		return err
	}
	defer e.comparisons.leave()
	e.comparisons.left = true // nothing else makes it a witness that is waited for
	_, err := e.compareNow(ctx, driver.Report{Away: true})
	return err
}

// compareAnd is [Engine.Compare] with a report that also has what r has.
func (e *Engine) compareAnd(ctx context.Context, r driver.Report) (driver.Admission, error) {
	if err := e.comparisons.enter(ctx); err != nil {
		return driver.Admission{}, err
	}
	defer e.comparisons.leave()
	if e.comparisons.left {
		return driver.Admission{}, driver.ErrClosed
	}
	return e.compareNow(ctx, r)
}

// compareNow compares, and adds its findings to the report r.
func (e *Engine) compareNow(ctx context.Context, r driver.Report) (a driver.Admission, err error) {
	e.comparisons.sequence.Add(1) // before the journal is read
	defer e.comparisons.sequence.Add(1)
	e.comparisons.began = time.Now()
	for try := 0; ; try++ {
		a, err = e.compareOnce(ctx, r)
		if try == RetryTries || !errors.Is(err, errOtherServer) || ctx.Err() != nil {
			break
		}
	}
	if err != nil {
		err = fmt.Errorf("comparing the database with the known changes: %w", err)
	}
	was := e.comparisons.outcome
	e.comparisons.outcome, e.comparisons.err = a, err
	switch {
	case err != nil:
	case a.Halted && !was.Halted:
		e.Logger.ErrorContext(ctx, "the database has lost acknowledged changes: nothing is written until `refdbctl recover`", "lost", a.Lost)
	case a.Admitted && was.Server != "" && was.Server != a.Server:
		e.Logger.InfoContext(ctx, "the database has another server, which has all known changes")
	}
	return a, err
}

// errOtherServer says that the server changed during a comparison.
var errOtherServer = fmt.Errorf("%w: its server has just changed", driver.ErrUnavailable)

// speakFor makes r a report of this process.
func (e *Engine) speakFor(r *driver.Report) {
	r.Owner = e.Owner
	if e.witness {
		r.Witness = e.Site
	}
}

func (e *Engine) compareOnce(ctx context.Context, r driver.Report) (driver.Admission, error) {
	e.speakFor(&r)
	err := e.look(ctx, &r)
	own := len(r.Missing)
	var held []driver.Testimony
	if err == nil {
		held, err = e.Journal.Testimonies()
	}
	if err == nil {
		err = e.lookForOthers(ctx, &r, held)
	}
	if err == nil {
		r.Marks, err = e.Journal.Marks()
	}
	if err == nil {
		r.Policy, err = e.Journal.Policy()
	}
	if err != nil {
		return driver.Admission{}, err
	}
	a, err := e.Report(ctx, r)
	if err != nil {
		return driver.Admission{}, err
	}
	if own > 0 && !a.Halted {
		// It comes after a recovery that went without it.
		e.Logger.ErrorContext(ctx, "the database was recovered without changes that this process knows: see `refdbctl recover --status`", "changes", own)
	}
	if a.Admitted {
		err = e.learn(a, r, held)
	}
	return a, err
}

// learn notes the marks, the policy and the testimonies of an admitted server where they differ from
// those that r sent or the journal holds.
func (e *Engine) learn(a driver.Admission, r driver.Report, held []driver.Testimony) error {
	if marks := a.Marks(); !slices.Equal(marks, r.Marks) {
		if err := e.Journal.SetMarks(marks); err != nil {
			return err
		}
	}
	if a.Policy != r.Policy {
		if err := e.Journal.SetPolicy(a.Policy); err != nil {
			return err
		}
	}
	return e.learnTestimonies(a, held)
}

// Report sends r. It may admit the server.
func (e *Engine) Report(ctx context.Context, r driver.Report) (driver.Admission, error) {
	if err := e.SchemaError(); err != nil {
		return driver.Admission{}, err
	}
	return RetryPlain(ctx, e, func(d driver.Driver) (driver.Admission, error) {
		a, err := d.Report(ctx, r)
		return a, Repeatable(err)
	})
}

// look fills in what a report says about the database.
func (e *Engine) look(ctx context.Context, r *driver.Report) error {
	pending, err := e.Journal.Pending()
	if err != nil {
		return err
	}
	lost, err := e.missing(ctx, r, pending)
	if err == nil && len(lost) > 0 {
		lost, err = e.stillPending(lost)
	}
	if err != nil {
		return err
	}
	if len(lost) > 0 {
		if lost, r.Open, err = e.Journal.Settle(ctx, lost); err != nil {
			return err
		}
		r.Missing = append(r.Missing, lost...)
	}
	limit := lookAtLeast
	var until time.Time
	for skip := 0; ; skip, limit = skip+limit, lookAtOnce {
		newest, err := e.Journal.Newest(skip, limit)
		if err != nil {
			return err
		}
		lost, err := e.missing(ctx, r, newest)
		if err != nil {
			return err
		}
		r.Missing = append(r.Missing, lost...)
		if skip == 0 && len(newest) > 0 && r.Server != e.comparisons.outcome.Server {
			until = newest[0].At.Add(-lateCommits)
		}
		enough := len(lost) == 0 && (skip > 0 || len(r.Missing) == 0)
		if len(newest) < limit || enough && (until.IsZero() || !newest[limit-1].At.After(until)) {
			return nil
		}
	}
}

// stillPending returns those intents that have not ended since they were read from the journal.
// Whoever ends one without a change notes that before the database does it.
func (e *Engine) stillPending(intents []driver.Known) (some []driver.Known, err error) {
	pending, err := e.Journal.Pending()
	if err != nil {
		return nil, err
	}
	still := make(map[intentName]bool, len(pending))
	for _, k := range pending {
		still[intentName{k.Project, k.Ref, k.Op}] = true
	}
	return slices.DeleteFunc(intents, func(k driver.Known) bool { return !still[intentName{k.Project, k.Ref, k.Op}] }), nil
}

// missing returns those of known that the database does not have. All looks of a report are at
// one server.
func (e *Engine) missing(ctx context.Context, r *driver.Report, known []driver.Known) (lost []driver.Known, err error) {
	for first := true; first && r.Server == "" || len(known) > 0; first = false {
		chunk := known[:min(len(known), lookAtOnce)]
		known = known[len(chunk):]
		looked, err := RetryPlain(ctx, e, func(d driver.Driver) (driver.Looked, error) { return d.Look(ctx, r.Witness, chunk) })
		if err != nil {
			return nil, err
		}
		if r.Server != "" && r.Server != looked.Server {
			return nil, errOtherServer
		}
		r.Server = looked.Server
		for _, i := range looked.Missing {
			lost = append(lost, chunk[i])
		}
	}
	return lost, nil
}

// Admission returns whether the database may be written, and who has compared its server.
func (e *Engine) Admission(ctx context.Context) (driver.Admission, error) {
	a, err := Retry(ctx, e, func(d driver.Driver) (driver.Admission, error) { return d.Admission(ctx) })
	if err != nil {
		return driver.Admission{}, fmt.Errorf("reading which server is admitted: %w", err)
	}
	return a, nil
}

// noteAcknowledged notes what was acknowledged to a request. sequence was read before the request
// was sent. A comparison that was running then, or began since, read the journal without this
// entry: it may have admitted a server that lacks it. So it looks it up at that server, and
// compares again only if it is not there: each comparison would make those who write meanwhile
// compare, too.
func (e *Engine) noteAcknowledged(ctx context.Context, sequence uint64, known []driver.Known) error {
	if err := e.Journal.Note(known); err != nil {
		return fmt.Errorf("recording acknowledged changes: %w", err)
	}
	if sequence%2 == 0 && e.comparisons.sequence.Load() == sequence {
		return nil
	}
	ctx, cancel := withGrace(ctx)
	defer cancel()
	if e.has(ctx, known) {
		return nil
	}
	a, err := e.Compare(ctx)
	if err == nil && a.Halted {
		err = driver.ErrLostChanges
	}
	return err
}

// has reports whether the server that the last comparison admitted has what is known. It waits for
// a comparison that is running.
func (e *Engine) has(ctx context.Context, known []driver.Known) bool {
	if e.comparisons.enter(ctx) != nil {
		return false
	}
	left, last, failed := e.comparisons.left, e.comparisons.outcome, e.comparisons.err
	e.comparisons.leave()
	if left || failed != nil || !last.Admitted {
		return false
	}
	r := driver.Report{Server: last.Server} // another one that answers may have what this one lacks
	e.speakFor(&r)
	lost, err := e.missing(ctx, &r, known)
	return err == nil && len(lost) == 0
}

// UncomparedAge returns the age up to which some witness may not have compared a change: the longest
// time since one reported, plus lateCommits. One that has left has compared all that it knows.
func (e *Engine) UncomparedAge(ctx context.Context, now time.Time) (age time.Duration, err error) {
	a, err := e.Admission(ctx)
	for _, w := range a.Witnesses {
		// A witness that others have made away has not compared its latest changes either.
		if !w.Without && (!w.Away || w.Server == "") {
			age = max(age, now.Sub(w.Seen)+lateCommits)
		}
	}
	return age, err
}

// NoteWritten is noteAcknowledged for a write. If the comparison fails, the outcome of the write is
// unknown.
func (e *Engine) NoteWritten(ctx context.Context, sequence uint64, known []driver.Known) error {
	if err := e.noteAcknowledged(ctx, sequence, known); err != nil {
		return fmt.Errorf("%w: it was written, but %w", driver.ErrOutcomeUnknown, err)
	}
	return nil
}

// KnownChanges are the changes of an operation.
func KnownChanges(project string, o driver.Origin, updates []driver.Update, at time.Time) []driver.Known {
	known := make([]driver.Known, len(updates))
	for i, u := range updates {
		known[i] = driver.Known{Project: project, Ref: u.Ref, Old: u.Old, New: u.New, Op: o.ID, Owner: o.Owner, By: o.By, At: at}
	}
	return known
}
