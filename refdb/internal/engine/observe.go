package engine

import (
	"errors"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
)

// Observed completes v, which began at start and ended with err, and passes it to Config.Observe.
func (e *Engine) Observed(v driver.Event, start time.Time, err error) {
	if e.Observe == nil {
		return
	}
	v.Duration = time.Since(start)
	v.Outcome, v.Class = outcome(err), driver.ClassOf(err)
	e.Observe(v)
}

// outcome is the label for err.
func outcome(err error) string {
	switch {
	case err == nil:
		return "ok"
	case errors.Is(err, driver.ErrOutcomeUnknown):
		return "unknown"
	case errors.Is(err, driver.ErrLockLost), errors.Is(err, driver.ErrReleased):
		return "lost"
	case errors.Is(err, driver.ErrLocked):
		return "locked"
	case errors.Is(err, driver.ErrMismatch), errors.Is(err, driver.ErrNameConflict):
		return "mismatch"
	case errors.Is(err, driver.ErrFrozen):
		return "frozen"
	case errors.Is(err, driver.ErrInvalid), errors.Is(err, driver.ErrTooMany):
		return "invalid"
	case driver.ClassOf(err) == driver.Retryable:
		return "unavailable"
	default:
		return "error"
	}
}
