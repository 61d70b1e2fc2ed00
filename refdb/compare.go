package refdb

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync/atomic"
	"time"
)

const (
	// lookAtLeast is how many of the newest known changes are always looked up. A database goes back to a
	// state that it had, so that if these are there those before are, too. It is more than the number
	// of requests of a process that are under way at once.
	lookAtLeast = 500
	// lookAtOnce is how many are looked up in a request.
	lookAtOnce = 1000
	// lateCommits is how long after its time a change may be committed.
	lateCommits = time.Minute
)

// comparisons are those of a DB.
type comparisons struct {
	turn     chan struct{} // has an item while there is one
	sequence atomic.Uint64 // as in a sequence lock: incremented when a comparison begins and when it ends, so odd during one
	began    time.Time     // of the last one; whoever has the turn changes this and what follows
	left     bool
	outcome  Admission
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
// something is missing, nobody can write until the database was recovered: [Admission.Err]. Else, if the
// server is not admitted and no other witness is awaited, it admits it.
//
// Requests that write call it when they find that the server is not admitted. A witness calls it at its start
// and once a minute, too: that finds what leaves the server as it is, such as a dump that is restored.
func (db *DB) Compare(ctx context.Context) (Admission, error) {
	asked := time.Now()
	if err := db.comparisons.enter(ctx); err != nil {
		return Admission{}, err
	}
	defer db.comparisons.leave()
	if db.comparisons.left {
		return Admission{}, ErrClosed
	}
	if db.comparisons.err == nil && db.comparisons.began.After(asked) {
		return db.comparisons.outcome, nil
	}
	return db.compareNow(ctx, false)
}

// Leave is the last [DB.Compare] of a witness that ends: nobody waits for it any more. It must have no
// pending intents, and do nothing afterwards.
func (db *DB) Leave(ctx context.Context) error {
	if err := db.comparisons.enter(ctx); err != nil {
		return err
	}
	defer db.comparisons.leave()
	db.comparisons.left = true // nothing else makes it a witness that is waited for
	_, err := db.compareNow(ctx, true)
	return err
}

func (db *DB) compareNow(ctx context.Context, away bool) (a Admission, err error) {
	db.comparisons.sequence.Add(1) // before the journal is read
	defer db.comparisons.sequence.Add(1)
	db.comparisons.began = time.Now()
	for try := 0; ; try++ {
		a, err = db.compareOnce(ctx, away)
		if try == retryTries || !errors.Is(err, errOtherServer) || ctx.Err() != nil {
			break
		}
	}
	if err != nil {
		err = fmt.Errorf("comparing the database with the known changes: %w", err)
	}
	was := db.comparisons.outcome
	db.comparisons.outcome, db.comparisons.err = a, err
	switch {
	case err != nil:
	case a.Halted && !was.Halted:
		db.opts.Logger.ErrorContext(ctx, "the database has lost acknowledged changes: nothing is written until `refdbctl recover`", "lost", a.Lost)
	case a.Admitted && was.Server != "" && was.Server != a.Server:
		db.opts.Logger.InfoContext(ctx, "the database has another server, which has all known changes")
	}
	return a, err
}

// errOtherServer says that the server changed during a comparison.
var errOtherServer = fmt.Errorf("%w: its server has just changed", ErrUnavailable)

// newReport returns a report of this process that says nothing yet.
func (db *DB) newReport(away bool) Report {
	r := Report{Owner: db.owner, Away: away}
	if db.opts.Journal != nil {
		r.Witness = db.opts.Site
	}
	return r
}

func (db *DB) compareOnce(ctx context.Context, away bool) (Admission, error) {
	r := db.newReport(away)
	err := db.look(ctx, &r)
	if err != nil {
		return Admission{}, err
	}
	if r.Marks, err = db.journal.Marks(); err != nil {
		return Admission{}, err
	}
	a, err := db.report(ctx, r)
	if err != nil {
		return Admission{}, err
	}
	if len(r.Missing) > 0 && !a.Halted {
		// It comes after a recovery that went without it.
		db.opts.Logger.ErrorContext(ctx, "the database was recovered without changes that this process knows: see `refdbctl recover --status`", "changes", len(r.Missing))
	}
	if marks := a.Marks(); a.Admitted && !slices.Equal(marks, r.Marks) {
		err = db.journal.SetMarks(marks)
	}
	return a, err
}

func (db *DB) report(ctx context.Context, r Report) (Admission, error) {
	// It may admit the server.
	if err := db.schemaError(); err != nil {
		return Admission{}, err
	}
	return retryPlain(ctx, db, func(d Driver) (Admission, error) {
		a, err := d.Report(ctx, r)
		return a, repeatable(err)
	})
}

// look fills in what a report says about the database.
func (db *DB) look(ctx context.Context, r *Report) error {
	pending, err := db.journal.Pending()
	if err != nil {
		return err
	}
	lost, err := db.missing(ctx, r, pending)
	if err == nil && len(lost) > 0 {
		lost, err = db.stillPending(lost)
	}
	if err != nil {
		return err
	}
	if len(lost) > 0 {
		if lost, r.Open, err = db.journal.Settle(ctx, lost); err != nil {
			return err
		}
		r.Missing = append(r.Missing, lost...)
	}
	limit := lookAtLeast
	for skip := 0; ; skip, limit = skip+limit, lookAtOnce {
		newest, err := db.journal.Newest(skip, limit)
		if err != nil {
			return err
		}
		lost, err := db.missing(ctx, r, newest)
		if err != nil {
			return err
		}
		r.Missing = append(r.Missing, lost...)
		if len(lost) == 0 && (skip > 0 || len(r.Missing) == 0) || len(newest) < limit {
			return nil
		}
	}
}

// stillPending returns those intents that have not ended since they were read from the journal. Whoever ends one without a change notes that
// before the database does it.
func (db *DB) stillPending(intents []Known) (some []Known, err error) {
	pending, err := db.journal.Pending()
	if err != nil {
		return nil, err
	}
	still := make(map[intentName]bool, len(pending))
	for _, k := range pending {
		still[intentName{k.Project, k.Ref, k.Op}] = true
	}
	return slices.DeleteFunc(intents, func(k Known) bool { return !still[intentName{k.Project, k.Ref, k.Op}] }), nil
}

// missing returns those of known that the database does not have. All looks of a report are at
// one server.
func (db *DB) missing(ctx context.Context, r *Report, known []Known) (lost []Known, err error) {
	for first := true; first && r.Server == "" || len(known) > 0; first = false {
		chunk := known[:min(len(known), lookAtOnce)]
		known = known[len(chunk):]
		looked, err := retryPlain(ctx, db, func(d Driver) (Looked, error) { return d.Look(ctx, r.Witness, chunk) })
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
func (db *DB) Admission(ctx context.Context) (Admission, error) {
	a, err := retry(ctx, db, func(d Driver) (Admission, error) { return d.Admission(ctx) })
	if err != nil {
		return Admission{}, fmt.Errorf("reading which server is admitted: %w", err)
	}
	return a, nil
}

// noteAcknowledged notes what was acknowledged to a request. sequence was read before the request was sent. A comparison that was
// running then, or began since, read the journal without this entry: it may have admitted a server that lacks it. So
// it looks it up at that server, and compares again only if it is not there: each comparison would make those who
// write meanwhile compare, too.
func (db *DB) noteAcknowledged(ctx context.Context, sequence uint64, known []Known) error {
	if err := db.journal.Note(known); err != nil {
		return fmt.Errorf("recording acknowledged changes: %w", err)
	}
	if sequence%2 == 0 && db.comparisons.sequence.Load() == sequence {
		return nil
	}
	ctx, cancel := withGrace(ctx)
	defer cancel()
	if db.has(ctx, known) {
		return nil
	}
	a, err := db.Compare(ctx)
	if err == nil && a.Halted {
		err = ErrLostChanges
	}
	return err
}

// has reports whether the server that the last comparison admitted has what is known. It waits for a comparison that
// is running.
func (db *DB) has(ctx context.Context, known []Known) bool {
	if db.comparisons.enter(ctx) != nil {
		return false
	}
	left, last, failed := db.comparisons.left, db.comparisons.outcome, db.comparisons.err
	db.comparisons.leave()
	if left || failed != nil || !last.Admitted {
		return false
	}
	r := db.newReport(false)
	r.Server = last.Server // another one that answers may have what this one lacks
	lost, err := db.missing(ctx, &r, known)
	return err == nil && len(lost) == 0
}

// LeaveFor is [DB.Leave] in the place of a witness that is gone for good: nobody waits for it any more, and nothing is
// prepared or finished in its name. It has compared the server, if that is admitted; if it is not,
// LeaveFor does nothing and returns [Admission.Err]. If the witness comes back, it compares again.
func (db *DB) LeaveFor(ctx context.Context, witness string) error {
	a, err := db.Admission(ctx)
	if err == nil {
		err = a.Err()
	}
	i := slices.IndexFunc(a.Witnesses, func(w Witness) bool { return w.Name == witness && !w.Away && !w.Without })
	if err != nil || i < 0 {
		return err
	}
	r := Report{Witness: witness, Owner: db.owner, Server: a.Server, Away: true}
	if _, err = db.report(ctx, r); err != nil {
		err = fmt.Errorf("recording that no process waits for %q: %w", witness, err)
	}
	return err
}

// uncomparedAge returns the age up to which some live witness may not have compared a change: the longest time since a
// witness reported, plus lateCommits.
func (db *DB) uncomparedAge(ctx context.Context, now time.Time) (age time.Duration, err error) {
	a, err := db.Admission(ctx)
	for _, w := range a.Witnesses {
		if !w.Without && !w.Away {
			age = max(age, now.Sub(w.Seen)+lateCommits)
		}
	}
	return age, err
}

// A RecoverOptions says how [DB.Recover] goes about it.
type RecoverOptions struct {
	By, Reason string // who recovers the database, and why: both are recorded
	// Without are witnesses that it does not wait for. What they know and the database lost stays lost until
	// they come back: then it is listed.
	Without []string
	// Each, unless nil, is called for each lost change that was decided about, unless the reply that told of it was lost:
	// [DB.LostChanges] has all.
	Each func(LostChange)
}

// Recover makes a database that went back in time, or whose server some witnesses can't compare, writable again. Once
// all witnesses have reported, it writes each lost change again whose ref holds its old value. What
// contradicts that is left, for people to decide about: it is [Opposed]. Then a new [Epoch] begins, all locks
// end that don't stand for an intent, and the server is admitted.
//
// It works in steps, each one transaction; the database stays read-only in between. After an error it
// may be called again, by anybody. If the answer is not Done, Waiting names whom it waits for. If the server is
// admitted already it does nothing.
func (db *DB) Recover(ctx context.Context, o RecoverOptions) (Recovered, error) {
	if o.By == "" || o.Reason == "" {
		return Recovered{}, fmt.Errorf("recovering: %w: give the operator and the reason", ErrInvalid)
	}
	if err := errors.Join(checkNote("name", o.By, maxReasonBytes), checkNote("reason", o.Reason, maxReasonBytes)); err != nil {
		return Recovered{}, fmt.Errorf("recovering: %w", err)
	}
	r := RecoverRequest{By: o.By, Reason: o.Reason, Without: slices.Sorted(slices.Values(o.Without)), Limit: pageSize}
	if err := db.schemaError(); err != nil {
		return Recovered{}, fmt.Errorf("recovering: %w", err)
	}
	defer db.feeds.hint()
	for {
		step, err := retryPlain(ctx, db, func(d Driver) (Recovered, error) {
			r.Epoch = rand.Text() // one may have begun with the ID before, although the reply was lost
			step, err := d.Recover(ctx, r)
			return step, repeatable(err)
		})
		if err != nil {
			return step, fmt.Errorf("recovering: %w", err)
		}
		for _, l := range step.Decided {
			if o.Each != nil {
				o.Each(l)
			}
		}
		if step.Done || !r.MayBegin(step.Admission) {
			return step, nil
		}
	}
}

// LostChanges iterates over the changes that witnesses know and the database lost, in byte order of project, ref and operation:
// those that nobody has decided about or, if decided, all. An error ends it.
func (db *DB) LostChanges(ctx context.Context, decided bool) iter.Seq2[LostChange, error] {
	return pages(ctx, db, "lost changes", func(d Driver, after LostCursor) ([]LostChange, LostCursor, error) {
		page, err := d.LostChanges(ctx, LostQuery{Decided: decided, After: after, Limit: pageSize})
		return page.Lost, page.Next, err
	})
}

// noteWritten is noteAcknowledged for a write. If the comparison fails, the outcome of the write is unknown.
func (db *DB) noteWritten(ctx context.Context, sequence uint64, known []Known) error {
	if err := db.noteAcknowledged(ctx, sequence, known); err != nil {
		return fmt.Errorf("%w: it was written, but %w", ErrOutcomeUnknown, err)
	}
	return nil
}

// knownChanges are the changes of an operation.
func knownChanges(project string, o Origin, updates []Update, at time.Time) []Known {
	known := make([]Known, len(updates))
	for i, u := range updates {
		known[i] = Known{Project: project, Ref: u.Ref, Old: u.Old, New: u.New, Op: o.ID, Owner: o.Owner, By: o.By, At: at}
	}
	return known
}
