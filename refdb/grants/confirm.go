package grants

import (
	"context"
	"crypto/rand"
	"fmt"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/internal/engine"
)

// confirmFor bounds how long the lock of [Handle.Confirm] stands if its process ends.
const confirmFor = 10 * time.Second

// Confirm returns nil if an update that the database has shown is as durable as an acknowledged one.
// Any process may have made the update, at about the time at. Reading the update proves nothing: a
// commit that no standby has yet is visible ([driver.ErrUnconfirmed]). So Confirm makes a commit of its
// own, which comes after the update: it locks lockRef, which nobody else may use, for a moment. Then
// it looks for the update again, and notes it as acknowledged to this process. After every error the
// outcome of the update is unknown, and the error wraps [driver.ErrOutcomeUnknown].
//
// Of r only the project, the origin and the updates count.
func (h *Handle) Confirm(ctx context.Context, r driver.UpdateRequest, at time.Time, lockProject, lockRef string) error {
	if err := h.confirm(ctx, r, at, lockProject, lockRef); err != nil {
		return fmt.Errorf("confirming an update of refs of %s: %w", r.Project, asUnknown(err, true))
	}
	return nil
}

func (h *Handle) confirm(ctx context.Context, r driver.UpdateRequest, at time.Time, lockProject, lockRef string) error {
	sorted, err := engine.SortedUpdates(r.Project, r.Updates)
	if err != nil {
		return err
	}
	if err := driver.CheckKey(lockProject, lockRef); err != nil {
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
	lock := driver.AcquireRequest{Project: lockProject, Refs: []string{lockRef}, Owner: h.engine.Owner, Nonce: rand.Text(), StaleAfter: confirmFor}
	if _, err := h.engine.Acquire(ctx, lock); err != nil {
		return err
	}
	h.engine.Abandon(lock)
	// The commit may have been made at a server that lacks the update.
	looked, err := engine.Retry(ctx, h.engine, func(d driver.Driver) (driver.Looked, error) { return d.Look(ctx, "", known) })
	switch {
	case err != nil:
		return err
	case len(looked.Missing) > 0:
		return fmt.Errorf("%w: the database no longer has the update", driver.ErrOutcomeUnknown)
	}
	return h.engine.NoteWritten(ctx, sequence, known)
}
