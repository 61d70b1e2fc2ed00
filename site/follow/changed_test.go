package follow

import (
	"context"
	"testing"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/memory"
)

// Pushes that wait for a ref are woken by the changes of other sites.
func TestChangesOfOtherSitesAreAnnounced(t *testing.T) {
	t.Parallel()
	shared := memory.New()
	open := func(site string) *refdb.DB {
		db, err := refdb.New(shared.Open(), refdb.Options{Site: site})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { db.Close() })
		return db
	}
	here, other := open("here"), open("other")
	put := func(db *refdb.DB, ref string) {
		t.Helper()
		if _, err := db.Put(t.Context(), "p", ref, "1111111111111111111111111111111111111111"); err != nil {
			t.Fatal(err)
		}
	}
	changed := make(chan string, 10)
	f := New(here, Options{Changed: func(project string, refs ...string) { changed <- project + " " + refs[0] }})
	var err error
	if f.cursor, err = here.HistoryEnd(t.Context()); err != nil {
		t.Fatal(err)
	}
	put(here, "refs/heads/a")
	put(other, "refs/heads/b")
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); f.read(ctx) }()
	if got := <-changed; got != "p refs/heads/b" {
		t.Errorf("announced %s", got)
	}
	cancel()
	<-ended
}
