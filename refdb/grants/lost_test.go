package grants_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/memory"
)

// A scripted driver carries out each request, and reports the next of the errors; nil is the reply.
type scripted struct {
	driver.Driver
	beats, releases []error
}

func next(errs *[]error) (err error) {
	if len(*errs) > 0 {
		err, *errs = (*errs)[0], (*errs)[1:]
	}
	return err
}

func (d *scripted) Beat(ctx context.Context, locks []driver.LockID) ([]driver.BeatResult, error) {
	results, err := d.Driver.Beat(ctx, locks)
	if lost := next(&d.beats); lost != nil {
		return nil, lost
	}
	return results, err
}

func (d *scripted) Release(ctx context.Context, r driver.ReleaseRequest) (driver.Released, error) {
	released, err := d.Driver.Release(ctx, r)
	if lost := next(&d.releases); lost != nil {
		return driver.Released{}, lost
	}
	return released, err
}

// After a failover the first reply is lost, and the server refuses the request that is sent again.
func TestAnOutcomeStaysUnknownAfterALostReply(t *testing.T) {
	for _, later := range []error{driver.ErrNotAdmitted, driver.ErrClosed, driver.ErrLostChanges, driver.ErrUnavailable} {
		d := &scripted{Driver: memory.New().Open()}
		db, err := refdb.New(d, refdb.Options{Site: "service"})
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		got, err := db.Grants().Acquire(t.Context(), "client", time.Hour, "p", mainRef)
		if err != nil {
			t.Fatal(err)
		}
		script := append([]error{driver.ErrOutcomeUnknown}, slices.Repeat([]error{later}, 20)...)
		d.beats, d.releases = slices.Clone(script), slices.Clone(script)
		if err := db.Grants().Extend(t.Context(), got.Grant); !errors.Is(err, driver.ErrOutcomeUnknown) || !errors.Is(err, later) {
			t.Errorf("extended, then %v: %v", later, err)
		}
		if err := db.Grants().Release(t.Context(), got.Grant); !errors.Is(err, driver.ErrOutcomeUnknown) || !errors.Is(err, later) {
			t.Errorf("released, then %v: %v", later, err)
		}
		d.beats, d.releases = script[1:], script[1:]
		if err := db.Grants().Extend(t.Context(), got.Grant); errors.Is(err, driver.ErrOutcomeUnknown) {
			t.Errorf("no reply was lost: %v", err)
		}
	}
}
