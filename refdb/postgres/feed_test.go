package postgres_test

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/test/dbtest"
)

// A gate, once it is closed, admits requests for changes one by one.
type gate struct {
	driver.Driver
	closed         chan struct{}
	asked, through chan struct{}
	changed        atomic.Int32 // pages with changes
}

func (g *gate) Changes(ctx context.Context, r driver.ChangesRequest) (driver.ChangesPage, error) {
	select {
	case <-g.closed:
		g.asked <- struct{}{}
		<-g.through
	default:
	}
	page, err := g.Driver.Changes(ctx, r)
	if len(page.Changes) > 0 {
		g.changed.Add(1)
	}
	return page, err
}

func TestAHundredReadersCostOneRoundTripForEachPage(t *testing.T) {
	t.Parallel()
	const readers = 100
	server := dbtest.Postgres(t)
	w := newWire(t, server.URL())
	g := &gate{Driver: open(t, w.url), closed: make(chan struct{}), asked: make(chan struct{}, readers), through: make(chan struct{})}
	db, err := refdb.New(g, refdb.Options{Site: "a"})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	defer close(g.through) // before the drivers are closed
	end, err := db.HistoryEnd(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	caughtUp, received := make(chan error, readers), make(chan string, readers)
	for range readers {
		go func() {
			first := true
			for page, err := range db.Changes(t.Context(), refdb.ChangeQuery{After: end}) {
				if first {
					first = false
					caughtUp <- err
				}
				if err != nil || len(page.Changes) > 0 {
					var got string
					for _, c := range page.Changes {
						got += c.Ref
					}
					received <- got
					return
				}
			}
		}()
	}
	for range readers {
		if err := <-caughtUp; err != nil {
			t.Fatal(err)
		}
	}
	close(g.closed)
	<-g.asked
	other := open(t, server.URL())
	if err := try(t.Context(), other, update(mainRef)); err != nil {
		t.Fatal(err)
	}
	asked := 1
	trips := w.count(func() {
		g.through <- struct{}{}
		for n := 0; n < readers; {
			select {
			case got := <-received:
				if n++; got != mainRef {
					t.Errorf("a reader got %q", got)
				}
			case <-g.asked:
				asked++
				g.through <- struct{}{}
			}
		}
	})
	// Another test's transaction may hold back the change for any number of empty pages.
	if changed := g.changed.Load(); trips > asked || changed > readers/2 {
		t.Errorf("%d readers took %d round trips for %d pages, %d of which had changes", readers, trips, asked, changed)
	}
}
