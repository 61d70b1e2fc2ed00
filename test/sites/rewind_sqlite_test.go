//go:build linux

package sites

import (
	"database/sql"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	_ "modernc.org/sqlite" // the driver's name for sql.Open

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/drivers/schema"
	"github.com/globalrefdb/globalrefdb/refdb/sqlite"
)

// A sqliteFile is a database that may be replaced.
type sqliteFile struct{ path string }

func newSQLiteFile(t testing.TB) sqliteFile {
	t.Helper()
	f := sqliteFile{filepath.Join(shortDir(t), "refdb.db")}
	if err := schema.Up(t.Context(), f.URL()); err != nil {
		t.Fatal(err)
	}
	return f
}

func (f sqliteFile) URL() string { return "sqlite:" + f.path }

func (f sqliteFile) Open(t testing.TB) refdb.Driver {
	t.Helper()
	d, err := sqlite.Open(t.Context(), f.URL())
	return must[refdb.Driver](t, d, err)
}

// copyTo makes a copy of the file while it is in use.
func (f sqliteFile) copyTo(t testing.TB, path string) {
	t.Helper()
	db, err := sql.Open("sqlite", f.path)
	if err == nil {
		_, err = db.Exec("VACUUM INTO ?", path)
	}
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
}

// putBack puts a copy in the place of the file, which nobody uses.
func (f sqliteFile) putBack(t testing.TB, path string) {
	t.Helper()
	for _, log := range []string{f.path + "-wal", f.path + "-shm"} {
		if err := os.Remove(log); err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
	}
	if err := os.Rename(path, f.path); err != nil {
		t.Fatal(err)
	}
}

func TestAnEarlierCopyOfASQLiteFileTakesNoPushesBeforeItIsRecovered(t *testing.T) {
	for name, end := range map[string]func(*server){"after daemons that were stopped": (*server).stop, "after daemons that were killed": (*server).kill} {
		t.Run(name, func(t *testing.T) {
			often(t, func(t *testing.T, pause pausing) (took time.Duration, early int) {
				f := newSQLiteFile(t)
				b := newBed(t, func(testing.TB) database { return f })
				b.pushes()
				f.copyTo(t, f.path+".copy")
				b.pushes()
				for _, s := range b.sites {
					end(s)
				}
				b.rewind(withoutDaemon...)
				if err := b.db.Close(); err != nil {
					t.Fatal(err)
				}
				f.putBack(t, f.path+".copy")
				db, err := refdb.New(f.Open(t), refdb.Options{Site: "bystander"})
				b.db = must(t, db, err)
				t.Cleanup(func() { db.Close() })
				for _, s := range b.sites {
					s.start()
				}
				took = b.halts()
				b.reads()
				early = b.recovers()
				b.finish()
				return took, early
			})
		})
	}
}
