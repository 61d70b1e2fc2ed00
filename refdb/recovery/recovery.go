// Package recovery notices that a database went back in time, such as a standby that was promoted
// without the last commits, and makes it writable again.
//
// Each server of a database has an identity, and the database names the one that is admitted: at no
// other is anything written. A server that was restarted, promoted or replaced is admitted once all
// witnesses, which are the sites, have compared what they know with what it has. Site daemons and
// refdbctl use it.
package recovery

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/internal/engine"
)

// A Handle reaches the comparisons and the recovery of a database: see refdb.DB.Recovery. Its
// methods may be called concurrently.
type Handle struct{ engine *engine.Engine }

// New returns a Handle on e. Only package refdb calls it: programs get theirs from a refdb.DB.
func New(e *engine.Engine) *Handle { return &Handle{engine: e} }

// A Journal keeps what a process knows the database to hold, for [Handle.Compare].
type Journal = driver.Journal

// Admission returns whether the database may be written, and who has compared its server.
func (h *Handle) Admission(ctx context.Context) (driver.Admission, error) {
	return h.engine.Admission(ctx)
}

// Compare looks whether the database still has what this process knows, and reports that. If
// something is missing, nobody can write until the database was recovered: [driver.Admission.Err].
// Else, if the server is not admitted and no other witness is awaited, Compare admits it.
//
// Requests that write call it when they find that the server is not admitted. A witness calls it at
// its start and once a minute, too: that finds what leaves the server as it is, such as a dump that
// is restored.
func (h *Handle) Compare(ctx context.Context) (driver.Admission, error) { return h.engine.Compare(ctx) }

// Leave is the last [Handle.Compare] of a witness that ends: nobody waits for it any more. It must
// have no pending intents, and do nothing afterwards.
func (h *Handle) Leave(ctx context.Context) error { return h.engine.Leave(ctx) }

// LeaveFor is [Handle.Leave] in the place of a witness that is gone for good: nobody waits for it
// any more, and nothing is prepared or finished in its name. It has compared the server, if that is
// admitted; if it is not, LeaveFor does nothing and returns [driver.Admission.Err]. If the witness
// comes back, it compares again.
func (h *Handle) LeaveFor(ctx context.Context, witness string) error {
	a, err := h.engine.Admission(ctx)
	if err == nil {
		err = a.Err()
	}
	w := a.Witness(witness)
	left := w.Away && w.Server != "" // it reported that itself: other sites leave no server in its row
	if err != nil || w.Name == "" || w.Without || left {
		return err
	}
	r := driver.Report{Witness: witness, Owner: h.engine.Owner, Server: a.Server, Away: true}
	if _, err = h.engine.Report(ctx, r); err != nil {
		err = fmt.Errorf("recording that no process waits for %q: %w", witness, err)
	}
	return err
}

// Testify makes this witness hold, in its journal, everything that a silent site may know: the site's
// intents, and the history. Then a new server no longer waits for that site. Testify begins a
// testimony, or joins that of another witness. noted returns once the journal has all changes up to
// a position.
//
// Testify may be called about a site that is alive: the database refuses one of that site's requests,
// and the site comes back with its next comparison. After an error Testify may be called again. If
// the server is not admitted, Testify returns [driver.Admission.Err].
//
// It reports whether another site has testified about the site, and this witness holds that testimony.
func (h *Handle) Testify(ctx context.Context, site string, noted func(context.Context, driver.Position) error) (testified bool, err error) {
	if testified, err = h.engine.Testify(ctx, site, noted); err != nil {
		err = fmt.Errorf("testifying about %q: %w", site, err)
	}
	return testified, err
}

// Testimonies returns the testimonies that this witness holds.
func (h *Handle) Testimonies() ([]driver.Testimony, error) { return h.engine.Journal.Testimonies() }

// Excuse is [Handle.Compare] and, if the policy is [driver.Synchronous], makes those of the sites
// away that are awaited. Changes that they find missing when they come back halt the database.
func (h *Handle) Excuse(ctx context.Context, sites []string) (driver.Admission, error) {
	return h.engine.Excuse(ctx, sites)
}

// SetPolicy sets for which sites a new server waits from now on. On PostgreSQL it requires the owner
// of the tables.
func (h *Handle) SetPolicy(ctx context.Context, p driver.Policy) (driver.Admission, error) {
	if p != driver.Wait && p != driver.Synchronous {
		return driver.Admission{}, fmt.Errorf("setting the policy: %w: %q is none", driver.ErrInvalid, p)
	}
	return h.engine.SetPolicy(ctx, p)
}

// Options say how [Handle.Recover] works.
type Options struct {
	By, Reason string // who recovers the database, and why: both are recorded
	// Without are witnesses that it does not wait for. What they know and the database lost stays
	// lost until they come back: then it is listed.
	Without []string
	// Each, unless nil, is called for each lost change that was decided about, unless the reply
	// that told of it was lost: [Handle.LostChanges] has all.
	Each func(driver.LostChange)
}

// Recover makes a database that went back in time, or whose server some witnesses can't compare,
// writable again. Once all witnesses have reported, it writes each lost change again whose ref
// holds its old value. What contradicts that is left, for people to decide about: it is
// [driver.Opposed]. Then a new [driver.Epoch] begins, all locks end that don't stand for an intent,
// and the server is admitted.
//
// It works in steps, each one transaction; the database stays read-only in between. After an error
// it may be called again, by anybody. If the answer is not Done, Waiting names whom it waits for.
// If the server is admitted already it does nothing.
func (h *Handle) Recover(ctx context.Context, o Options) (driver.Recovered, error) {
	if o.By == "" || o.Reason == "" {
		return driver.Recovered{}, fmt.Errorf("recovering: %w: give the operator and the reason", driver.ErrInvalid)
	}
	if err := errors.Join(engine.CheckNote("name", o.By, engine.MaxReasonBytes), engine.CheckNote("reason", o.Reason, engine.MaxReasonBytes)); err != nil {
		return driver.Recovered{}, fmt.Errorf("recovering: %w", err)
	}
	r := driver.RecoverRequest{By: o.By, Reason: o.Reason, Without: slices.Sorted(slices.Values(o.Without)), Limit: engine.PageSize}
	if err := h.engine.SchemaError(); err != nil {
		return driver.Recovered{}, fmt.Errorf("recovering: %w", err)
	}
	defer h.engine.Changed()
	for {
		step, err := engine.RetryPlain(ctx, h.engine, func(d driver.Driver) (driver.Recovered, error) {
			r.Epoch = rand.Text() // one may have begun with the ID before, although the reply was lost
			step, err := d.Recover(ctx, r)
			return step, engine.Repeatable(err)
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

// LostChanges iterates over the changes that witnesses know and the database lost, in byte order of
// project, ref and operation: those that nobody has decided about or, if decided, all. An error
// ends it.
func (h *Handle) LostChanges(ctx context.Context, decided bool) iter.Seq2[driver.LostChange, error] {
	return engine.Pages(ctx, h.engine, "lost changes", func(d driver.Driver, after driver.LostCursor) ([]driver.LostChange, driver.LostCursor, error) {
		page, err := d.LostChanges(ctx, driver.LostQuery{Decided: decided, After: after, Limit: engine.PageSize})
		return page.Lost, page.Next, err
	})
}
