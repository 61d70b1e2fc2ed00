package rules

import "github.com/globalrefdb/globalrefdb/refdb/driver"

// RefuseFrozen returns a *driver.FrozenError if a project is frozen. Stored are the project's rules as
// its row has them, or those alone that begin with a freeze; "" if there is no row.
func RefuseFrozen(project, stored string) error {
	f, _, frozen := driver.CutFreeze(stored)
	if !frozen {
		return nil
	}
	return &driver.FrozenError{Project: project, Freeze: f}
}
