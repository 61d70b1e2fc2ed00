package rules

import "github.com/globalrefdb/globalrefdb/refdb/driver"

// RefuseFrozen returns a *driver.FrozenError if a project is frozen. The argument stored is the
// rules column of the project's row; it may be "" if there is no row, or if the rules don't begin
// with a freeze.
func RefuseFrozen(project, stored string) error {
	f, _, frozen := driver.CutFreeze(stored)
	if !frozen {
		return nil
	}
	return &driver.FrozenError{Project: project, Freeze: f}
}
