package linearizability

import (
	"context"
	"testing"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
)

// A granting driver grants what it is asked for.
type granting struct{ refdb.Driver }

func (granting) Acquire(context.Context, driver.AcquireRequest) (driver.Acquired, error) {
	return driver.Acquired{Token: 1}, nil
}

// A DB that was granted a lock too late gives it back, and asks again.
func TestACallThatIsGrantedTwoLocksIsUnresolved(t *testing.T) {
	ctx, made := noteRequests(t.Context())
	d := recording(granting{}, nil)
	for _, unresolved := range []bool{false, true} {
		if _, err := d.Acquire(ctx, driver.AcquireRequest{}); err != nil || made.unresolved != unresolved {
			t.Errorf("%v, unresolved %t, want %t", err, made.unresolved, unresolved)
		}
	}
}
