package witness_test

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/drivers"
	"github.com/globalrefdb/globalrefdb/site/internal/sitetest"
	"github.com/globalrefdb/globalrefdb/site/journal"
	"github.com/globalrefdb/globalrefdb/site/witness"
	"github.com/globalrefdb/globalrefdb/test/dbtest"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

// A gated driver lets requests for changes through one by one.
type gated struct {
	refdb.Driver
	pass chan struct{} // a request takes an element
}

func (g *gated) Changes(ctx context.Context, r driver.ChangesRequest) (page driver.ChangesPage, err error) {
	select {
	case <-g.pass:
		return g.Driver.Changes(ctx, r)
	case <-ctx.Done():
		return page, ctx.Err()
	}
}

// A crash of PostgreSQL hands IDs out again that nobody waited for. Changes that have them are in the journal nevertheless.
func TestTheJournalHasWhatCameAfterACrashThatLostNothing(t *testing.T) {
	t.Parallel()
	s := dbtest.StartPostgres(t)
	open := func(site string, wrap func(refdb.Driver) refdb.Driver) *refdb.DB {
		t.Helper()
		d, err := drivers.Open(t.Context(), s.URL())
		if err != nil {
			t.Fatal(err)
		}
		db, err := refdb.New(wrap(d), refdb.Options{Site: site})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { db.Close() })
		return db
	}
	gate := &gated{pass: make(chan struct{})}
	here := open("eu", func(d refdb.Driver) refdb.Driver { gate.Driver = d; return gate })
	there := open("us", func(d refdb.Driver) refdb.Driver { return d })
	create := func(ref string) {
		t.Helper()
		if err := there.Update(t.Context(), "p", []refdb.Update{{Ref: "refs/heads/" + ref, New: "1111111111111111111111111111111111111111"}}); err != nil {
			t.Fatal(err)
		}
	}
	create("zero")
	w := &witness.Witness{DB: here, Journal: journal.New(t.TempDir()), Logger: slog.New(slog.DiscardHandler)}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	s.ReuseIDs(40, func() {
		go func() {
			w.KeepJournal(ctx)
			close(ended)
		}()
		gate.pass <- struct{}{} // it has its place in the changes
		gate.pass <- struct{}{} // and has read up to the end
	})
	t.Cleanup(func() {
		cancel()
		<-ended
		w.Journal.Close()
	})
	for _, ref := range []string{"a", "b", "c"} {
		create(ref)
	}
	close(gate.pass)
	for _, ref := range []string{"d", "e", "f"} {
		create(ref)
	}
	var noted []string
	sitetest.Eventually(t, "the journal has the last change", func() bool {
		newest, err := w.Journal.Newest(0, 10)
		if err != nil {
			t.Fatal(err)
		}
		noted = nil
		for _, k := range newest {
			noted = append(noted, strings.TrimPrefix(k.Ref, "refs/heads/"))
		}
		return slices.Contains(noted, "f")
	})
	if want := []string{"f", "e", "d", "c", "b", "a", "zero"}; !slices.Equal(noted, want) {
		t.Errorf("the journal has %q, want %q", noted, want)
	}
}
