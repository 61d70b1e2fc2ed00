package linearizability

import (
	"context"
	"testing"

	"github.com/globalrefdb/globalrefdb/refdb"
)

// A granting driver grants what it is asked for.
type granting struct{ refdb.Driver }

func (granting) Acquire(context.Context, refdb.AcquireRequest) (refdb.Acquired, error) {
	return refdb.Acquired{Token: 1}, nil
}

// A DB that was granted a lock too late gives it back, and asks again.
func TestACallThatIsGrantedTwoLocksIsInDoubt(t *testing.T) {
	ctx, heard := listen(t.Context())
	d := tapped(granting{}, nil)
	for _, doubt := range []bool{false, true} {
		if _, err := d.Acquire(ctx, refdb.AcquireRequest{}); err != nil || heard.doubt != doubt {
			t.Errorf("%v, in doubt %t, want %t", err, heard.doubt, doubt)
		}
	}
}
