package grants

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/internal/engine"
)

// confirmFor limits how long the lock of [Handle.Confirm] remains if its process ends.
const confirmFor = 10 * time.Second

// Confirm returns nil if an update that the database has shown, made by any process at
// approximately the given time, is as durable as an acknowledged update. Reading is not sufficient:
// a commit that no standby has yet is visible ([driver.ErrUnconfirmed]). So Confirm makes a commit
// of its own, which comes after the update: it briefly locks a ref below lockPrefix that no other
// process uses. Then it looks up the update again, and notes it as acknowledged to this process.
// The server must be the same one before the commit and afterwards, and admitted. After every error
// the outcome of the update is unknown, and the error wraps [driver.ErrOutcomeUnknown].
//
// Confirm uses only the project, the origin and the updates of r.
func (h *Handle) Confirm(ctx context.Context, r driver.UpdateRequest, at time.Time, lockProject, lockPrefix string) error {
	if err := h.confirm(ctx, r, at, lockProject, lockPrefix); err != nil {
		return fmt.Errorf("confirming an update of refs of %s: %w", r.Project, asUnknown(err, true))
	}
	return nil
}

func (h *Handle) confirm(ctx context.Context, r driver.UpdateRequest, at time.Time, lockProject, lockPrefix string) error {
	sorted, err := engine.SortedUpdates(r.Project, r.Updates)
	if err != nil {
		return err
	}
	if err := driver.CheckKey(lockProject, lockPrefix+"x"); err != nil {
		return err
	}
	if err := h.engine.SchemaError(); err != nil {
		return err
	}
	var changes []driver.Update
	for _, u := range sorted {
		if !u.Old.Equivalent(u.New) {
			changes = append(changes, u)
		}
	}
	known := engine.KnownChanges(r.Project, r.Origin, changes, at)
	sequence := h.engine.Sequence()
	before, err := h.admission(ctx)
	if err != nil {
		return err
	}
	if err := h.commit(ctx, lockProject, lockPrefix); err != nil {
		return err
	}
	looked, err := engine.Retry(ctx, h.engine, func(d driver.Driver) (driver.Looked, error) { return d.Look(ctx, "", known) })
	switch {
	case err != nil:
		return err
	case looked.Server != before.Server:
		// The commit may have been made at the other server, which may lack the update.
		return fmt.Errorf("%w: the database has another server", driver.ErrOutcomeUnknown)
	case len(looked.Missing) > 0:
		return fmt.Errorf("%w: the database no longer has the update", driver.ErrOutcomeUnknown)
	}
	return h.engine.NoteWritten(ctx, sequence, known)
}

// admission returns the state of the admission, or an error if the server is not admitted.
func (h *Handle) admission(ctx context.Context) (driver.Admission, error) {
	a, err := h.engine.Admission(ctx)
	if err == nil && !a.Admitted {
		a, err = h.engine.Compare(ctx)
	}
	if err == nil {
		err = a.Err()
	}
	return a, err
}

// commit makes a commit, and returns nil if it is confirmed. A request whose reply is lost is not
// repeated: the database would find the rows of the first request, and commit nothing. For the same
// reason each request uses another ref.
func (h *Handle) commit(ctx context.Context, project, prefix string) error {
	if h.engine.Closing.Err() != nil {
		return driver.ErrClosed
	}
	_, err := engine.Retry(ctx, h.engine, func(d driver.Driver) (driver.Acquired, error) {
		lock := driver.AcquireRequest{
			Project: project, Refs: []string{prefix + strings.ToLower(rand.Text())},
			Owner: h.engine.Owner, Nonce: rand.Text(), StaleAfter: confirmFor,
		}
		a, err := d.Acquire(ctx, lock)
		if err == nil || errors.Is(err, driver.ErrOutcomeUnknown) {
			h.engine.Abandon(lock)
		}
		return a, err
	})
	return err
}
