package refdb_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/memory"
)

// wrapper is a driver that says which one it wraps, and nothing else.
type wrapper struct{ refdb.Driver }

func (w wrapper) Unwrap() refdb.Driver { return w.Driver }

// A manyRoled driver has the roles that a driver need not have.
type manyRoled struct {
	refdb.Driver
	schema error
	listen chan struct{} // closed once it is asked
}

func (d *manyRoled) CheckSchema(context.Context) error { return d.schema }

func (d *manyRoled) Diagnose(context.Context) ([]driver.Diagnosis, error) {
	return []driver.Diagnosis{{}}, nil
}

func (d *manyRoled) Stats() driver.DriverStats {
	return driver.DriverStats{Pools: []driver.Pool{{Name: "requests"}}}
}

func (d *manyRoled) Listen(ctx context.Context, _ string, _ func(), _ func(driver.Wakeup)) error {
	close(d.listen)
	<-ctx.Done()
	return ctx.Err()
}

func TestTheRolesOfADriverAreFoundInsideOfAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		database := memory.New()
		inside := &manyRoled{Driver: database.Open(), schema: refdb.ErrSchema, listen: make(chan struct{})}
		db, err := refdb.New(wrapper{wrapper{inside}}, refdb.Options{Site: "a"})
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		if found, err := db.Operator().Diagnose(t.Context()); err != nil || len(found) != 1 {
			t.Errorf("Diagnose: %v, %v", found, err)
		}
		if s := db.Stats().Driver; len(s.Pools) != 1 {
			t.Errorf("Stats: %+v", s)
		}
		holder, err := refdb.New(database.Open(), refdb.Options{Site: "b"})
		if err != nil {
			t.Fatal(err)
		}
		defer holder.Close()
		if _, err := holder.TryLock(t.Context(), "p", "refs/heads/a"); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := db.Lock(ctx, "p", "refs/heads/a"); !errors.Is(err, refdb.ErrLocked) {
			t.Errorf("a lock that is held: %v", err)
		}
		select {
		case <-inside.listen:
		default:
			t.Error("a waiter does not listen")
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if _, err := db.TryLock(t.Context(), "p", "refs/heads/b"); !errors.Is(err, refdb.ErrSchema) {
			t.Errorf("a lock on a schema that does not fit any more: %v", err)
		}
	})
}
