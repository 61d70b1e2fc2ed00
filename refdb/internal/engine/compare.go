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
	// lookAtLeast is the number of newest known changes that are always looked up. A database goes
	// back to an earlier state, so if these changes are still there, all earlier ones are, too. It
	// is larger than the number of concurrent requests of a process. At a new server, all changes
	// made within lateCommits before the newest change are looked up, because changes of other
	// processes are not in the order of their commits.
	lookAtLeast = 500
	// lookAtOnce is the number of changes that one request looks up.
	lookAtOnce = 1000
	// lateCommits is the maximum time between a change's timestamp and its commit.
	lateCommits = time.Minute
)

// Sequence changes when a comparison begins, and when it ends. A caller reads it before it sends a
// write, for [Engine.NoteWritten].
func (e *Engine) Sequence() uint64 { return e.comparisons.sequence.Load() }

// comparisons is the state of an Engine's comparisons.
type comparisons struct {
	turn     chan struct{} // has an item during a comparison
	sequence atomic.Uint64 // as in a sequence lock: incremented when a comparison begins and when it ends, so odd during one
	began    time.Time     // when the last comparison began; the holder of the turn changes this and the fields below
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

// Compare checks whether the database still has the changes and intents that this process knows,
// and reports the result. If any are missing, the database refuses all writes until it was
// recovered: [driver.Admission.Err]. Otherwise, if the server is not admitted and no other witness
// is awaited, Compare admits the server.
//
// Requests that write call Compare when they find that the server is not admitted. A witness also
// calls it at its start and once a minute, to detect losses without a change of the server, such as
// a restored dump.
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

// Leave is the last [Engine.Compare] of a witness that ends: no server waits for the witness
// afterwards. The witness must have no pending intents, and send no requests after Leave.
func (e *Engine) Leave(ctx context.Context) error {
	if err := e.comparisons.enter(ctx); err != nil {
		return err
	}
	defer e.comparisons.leave()
	e.comparisons.left = true // only this keeps later reports from making it an awaited witness again
	_, err := e.compareNow(ctx, driver.Report{Away: true})
	return err
}

// compareAnd is [Engine.Compare] with a report that also contains the fields of r.
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

// speakFor fills in the fields of r that identify this process.
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
		// The report comes after a recovery that left this witness out.
		e.Logger.ErrorContext(ctx, "the database was recovered without changes that this process knows: see `refdbctl recover --status`", "changes", own)
	}
	if a.Admitted {
		err = e.learn(a, r, held)
	}
	return a, err
}

// learn notes the marks, the policy and the testimonies of an admitted server in the journal if
// they differ from those in r or in the journal.
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

// look fills in the fields of a report that result from the comparison with the database.
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

// stillPending returns the intents that have not ended since they were read from the journal. A
// process that ends an intent without a change notes that before the database ends the intent.
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

// missing returns the known changes that the database does not have. All lookups of a report are
// made at the same server.
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

// Admission returns whether the database may be written, and which witnesses have compared its
// server.
func (e *Engine) Admission(ctx context.Context) (driver.Admission, error) {
	a, err := Retry(ctx, e, func(d driver.Driver) (driver.Admission, error) { return d.Admission(ctx) })
	if err != nil {
		return driver.Admission{}, fmt.Errorf("reading which server is admitted: %w", err)
	}
	return a, nil
}

// noteAcknowledged notes the changes that were acknowledged to a request. sequence was read before
// the request was sent. A comparison that was running then, or has begun since, read the journal
// without these changes, and may have admitted a server that lacks them. So noteAcknowledged looks
// the changes up at that server, and compares again only if they are missing: each comparison would
// make concurrent writers compare, too.
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

// has reports whether the server that the last comparison admitted has the known changes. It waits
// for a running comparison.
func (e *Engine) has(ctx context.Context, known []driver.Known) bool {
	if e.comparisons.enter(ctx) != nil {
		return false
	}
	left, last, failed := e.comparisons.left, e.comparisons.outcome, e.comparisons.err
	e.comparisons.leave()
	if left || failed != nil || !last.Admitted {
		return false
	}
	r := driver.Report{Server: last.Server} // another server that answers may have changes that this one lacks
	e.speakFor(&r)
	lost, err := e.missing(ctx, &r, known)
	return err == nil && len(lost) == 0
}

// UncomparedAge returns the age up to which some witness may not have compared a change: the
// longest time since a witness has reported, plus lateCommits. A witness that has left has compared
// all changes that it knows.
func (e *Engine) UncomparedAge(ctx context.Context, now time.Time) (age time.Duration, err error) {
	a, err := e.Admission(ctx)
	for _, w := range a.Witnesses {
		// A witness that became away by a testimony or a policy has not compared its latest changes
		// either.
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

// KnownChanges returns the changes of an operation.
func KnownChanges(project string, o driver.Origin, updates []driver.Update, at time.Time) []driver.Known {
	known := make([]driver.Known, len(updates))
	for i, u := range updates {
		known[i] = driver.Known{Project: project, Ref: u.Ref, Old: u.Old, New: u.New, Op: o.ID, Owner: o.Owner, By: o.By, At: at}
	}
	return known
}
