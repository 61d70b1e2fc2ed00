package engine

import (
	"context"
	"errors"
	"slices"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
)

// A Write changes refs, all or none, and leaves its ID in their rows.
type Write struct {
	Project, ID string
	Updates     []driver.Update
	Send        func() error
	// Repeatable reports whether sending the request twice is safe: compare-and-put then accepts
	// only one of the two.
	Repeatable func() bool
}

// Write sends w and, if the reply is lost, determines its outcome.
//
// A row that carries w's ID proves that w was carried out: only w writes that ID, and it writes all
// its rows or none. The absence of such a row proves nothing: the rows of w may have been
// overwritten, or w may still be carried out. If w is repeatable, it is sent again.
func (e *Engine) Write(ctx context.Context, w Write) error {
	if err := e.SchemaError(); err != nil {
		return err
	}
	defer e.Changed()
	unknown := w.Send()
	if !errors.Is(unknown, driver.ErrOutcomeUnknown) || errors.Is(unknown, driver.ErrUnconfirmed) || len(w.Updates) == 0 {
		return unknown
	}
	if done, err := e.carriedOut(ctx, w); done || err != nil {
		return joinUnknown(unknown, err)
	}
	if !w.Repeatable() || ctx.Err() != nil {
		return unknown
	}
	err := w.Send()
	if err == nil || errors.Is(err, driver.ErrOutcomeUnknown) {
		return err
	}
	// The first request may have been carried out meanwhile, and be the reason why the second one
	// was refused. This is possible even if no row carries its ID: the lease may have ended since,
	// and a writer that ignores locks may have overwritten the rows.
	if done, lookErr := e.carriedOut(ctx, w); done || lookErr != nil {
		return joinUnknown(unknown, lookErr)
	}
	return errors.Join(unknown, err)
}

// carriedOut reports whether any row still carries w's ID.
func (e *Engine) carriedOut(ctx context.Context, w Write) (bool, error) {
	ctx, cancel := withGrace(ctx)
	defer cancel()
	names := make([]string, len(w.Updates))
	for i, u := range w.Updates {
		names[i] = u.Ref
	}
	rows, err := Retry(ctx, e, func(d driver.Driver) ([]driver.Ref, error) { return d.Get(ctx, w.Project, names) })
	return slices.ContainsFunc(rows, func(r driver.Ref) bool { return r.Op == w.ID }), err
}

// joinUnknown returns nil if look is nil, and otherwise both errors.
func joinUnknown(unknown, look error) error {
	if look == nil {
		return nil
	}
	return errors.Join(unknown, look)
}
