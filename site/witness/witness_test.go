package witness

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/memory"
	"github.com/globalrefdb/globalrefdb/site/journal"
)

// Whatever the database loses of it would be noticed by nobody else.
func TestAChangeThatComesWhileTheJournalCanNotBeWrittenIsNotedLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		database := memory.New()
		open := func(site string) *refdb.DB {
			db, err := refdb.New(database.Open(), refdb.Options{Site: site})
			if err != nil {
				t.Fatal(err)
			}
			return db
		}
		here, there := open("eu"), open("us")
		defer here.Close()
		defer there.Close()
		dir := t.TempDir()
		inTheWay := filepath.Join(dir, "journal", "changes")
		if err := os.MkdirAll(inTheWay, 0o700); err != nil {
			t.Fatal(err)
		}
		w := &Witness{DB: here, Journal: journal.New(dir), Logger: slog.New(slog.DiscardHandler)}
		defer w.Journal.Close()
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			w.KeepJournal(ctx)
			close(ended)
		}()
		synctest.Wait()
		if err := there.Update(ctx, "p", []refdb.Update{{Ref: "refs/heads/a", New: "1111111111111111111111111111111111111111"}}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		if _, err := w.Journal.Newest(0, 9); err == nil {
			t.Fatal("the journal could be written")
		}
		if err := os.Remove(inTheWay); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		newest, err := w.Journal.Newest(0, 9)
		if err != nil || len(newest) != 1 || newest[0].Ref != "refs/heads/a" {
			t.Errorf("%+v, %v", newest, err)
		}
		cancel()
		<-ended
	})
}
