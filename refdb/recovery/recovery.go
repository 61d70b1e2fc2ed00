// Package recovery detects that a database went back in time, for example because a standby was
// promoted without the last commits, and makes the database writable again.
//
// Each server of a database has an identity, and the database records the admitted server: all
// other servers refuse writes. A server that was restarted, promoted or replaced is admitted once
// all witnesses, which are the sites, have compared the changes that they know with those of the
// server. Site daemons and refdbctl use this package.
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

// A Handle compares and recovers a database: see refdb.DB.Recovery. Its methods may be called
// concurrently.
type Handle struct{ engine *engine.Engine }

// New returns a Handle on e. Only package refdb calls it: programs get theirs from a refdb.DB.
func New(e *engine.Engine) *Handle { return &Handle{engine: e} }

// A Journal records the changes and intents that a process knows to be in the database, for
// [Handle.Compare].
type Journal = driver.Journal

// Admission returns whether the database may be written, and which witnesses have compared its
// server.
func (h *Handle) Admission(ctx context.Context) (driver.Admission, error) {
	return h.engine.Admission(ctx)
}

// Compare checks whether the database still has the changes and intents that this process knows,
// and reports the result. If any are missing, the database refuses all writes until it was
// recovered: [driver.Admission.Err]. Otherwise, if the server is not admitted and no other witness
// is awaited, Compare admits the server.
//
// Requests that write call Compare when they find that the server is not admitted. A witness also
// calls it at its start and once a minute, to detect losses without a change of the server, such as
// a restored dump.
func (h *Handle) Compare(ctx context.Context) (driver.Admission, error) { return h.engine.Compare(ctx) }

// Leave is the last [Handle.Compare] of a witness that ends: no server waits for the witness
// afterwards. The witness must have no pending intents, and send no requests after Leave.
func (h *Handle) Leave(ctx context.Context) error { return h.engine.Leave(ctx) }

// LeaveFor is [Handle.Leave] on behalf of a witness that will not come back: no server waits for
// the witness afterwards, and its intents are neither recorded nor finished. If the server is
// admitted, the witness has compared it; if the server is not admitted, LeaveFor does nothing and
// returns [driver.Admission.Err]. If the witness comes back, it compares again.
func (h *Handle) LeaveFor(ctx context.Context, witness string) error {
	a, err := h.engine.Admission(ctx)
	if err == nil {
		err = a.Err()
	}
	w := a.Witness(witness)
	left := w.Away && w.Server != "" // the witness reported that itself: other sites clear the server in its row
	if err != nil || w.Name == "" || w.Without || left {
		return err
	}
	r := driver.Report{Witness: witness, Owner: h.engine.Owner, Server: a.Server, Away: true}
	if _, err = h.engine.Report(ctx, r); err != nil {
		err = fmt.Errorf("recording that no process waits for %q: %w", witness, err)
	}
	return err
}

// Testify makes this witness record in its journal everything that a silent site may know: the
// site's intents, and the history. A new server then no longer waits for that site. Testify begins
// a testimony, or joins that of another witness. noted returns once the journal has all changes up
// to a position.
//
// Testify may be called about a site that is alive: the database refuses one of that site's
// requests, and the site comes back with its next comparison. After an error Testify may be called
// again. If the server is not admitted, Testify returns [driver.Admission.Err].
//
// It reports whether another site has testified about the site, and this witness holds that
// testimony.
func (h *Handle) Testify(ctx context.Context, site string, noted func(context.Context, driver.Position) error) (testified bool, err error) {
	if testified, err = h.engine.Testify(ctx, site, noted); err != nil {
		err = fmt.Errorf("testifying about %q: %w", site, err)
	}
	return testified, err
}

// Testimonies returns the testimonies that this witness holds.
func (h *Handle) Testimonies() ([]driver.Testimony, error) { return h.engine.Journal.Testimonies() }

// Excuse is [Handle.Compare] and, if the policy is [driver.Synchronous], also makes the awaited
// ones of the given sites away. Changes that these sites find missing when they come back halt the
// database.
func (h *Handle) Excuse(ctx context.Context, sites []string) (driver.Admission, error) {
	return h.engine.Excuse(ctx, sites)
}

// SetPolicy sets the policy that says for which sites a new server waits. On PostgreSQL it requires
// the owner of the tables.
func (h *Handle) SetPolicy(ctx context.Context, p driver.Policy) (driver.Admission, error) {
	if p != driver.Wait && p != driver.Synchronous {
		return driver.Admission{}, fmt.Errorf("setting the policy: %w: %q is none", driver.ErrInvalid, p)
	}
	return h.engine.SetPolicy(ctx, p)
}

// Options are the options of [Handle.Recover].
type Options struct {
	By, Reason string // the operator and the operator's reason; both are recorded
	// Without are the witnesses that the recovery leaves out. Lost changes that only they know stay
	// lost until they come back, and are listed then.
	Without []string
	// Each, unless nil, is called for each lost change that was decided, except for those whose
	// reply was lost: [Handle.LostChanges] returns all of them.
	Each func(driver.LostChange)
}

// Recover makes a database that went back in time, or whose server some witnesses can't compare,
// writable again. Once all witnesses have reported, it writes each lost change again whose ref
// holds the change's old value. Changes that contradict the database become [driver.Opposed], and
// are left for people to decide. Then a new [driver.Epoch] begins, all locks that don't belong to
// an intent end, and the server is admitted.
//
// Recover works in steps of one transaction each; the database stays read-only in between. After an
// error any process may call Recover again. If the result is not Done, its Waiting returns the
// awaited witnesses. If the server is already admitted, Recover does nothing.
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
			r.Epoch = rand.Text() // an epoch with the previous ID may have begun although the reply was lost
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
// project, ref and operation: the undecided changes or, if decided is true, all of them. An error
// ends the iteration.
func (h *Handle) LostChanges(ctx context.Context, decided bool) iter.Seq2[driver.LostChange, error] {
	return engine.Pages(ctx, h.engine, "lost changes", func(d driver.Driver, after driver.LostCursor) ([]driver.LostChange, driver.LostCursor, error) {
		page, err := d.LostChanges(ctx, driver.LostQuery{Decided: decided, After: after, Limit: engine.PageSize})
		return page.Lost, page.Next, err
	})
}
