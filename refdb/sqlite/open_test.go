package sqlite_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/globalrefdb/globalrefdb/migrations"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/sqlite"
)

// migrated returns the path of a file with the schema, in a directory of its own.
func migrated(t testing.TB) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "refdb.db")
	migrate(t, path, func(m migrator) error { return m.Up(t.Context()) })
	return path
}

func TestOpenFailsWithOneLineThatNamesARemedy(t *testing.T) {
	ctx := t.Context()
	for _, e := range []struct {
		name   string
		path   func(t *testing.T) string
		schema bool
		want   string
	}{
		{"no such file", func(t *testing.T) string {
			return filepath.Join(t.TempDir(), "x.db")
		}, true, "open: database schema does not fit: there is no such file: run `refdbctl migrate up`"},
		{"no such directory", func(t *testing.T) string {
			return filepath.Join(t.TempDir(), "none", "x.db")
		}, false, "open: there is no directory DIR: create it"},
		{"a directory", func(t *testing.T) string {
			return t.TempDir()
		}, false, "open: it is a directory: name a file"},
		{"a device", func(*testing.T) string {
			return "/dev/null"
		}, false, "open: it is not a regular file: name another"},
		{"an empty file", func(t *testing.T) string {
			return written(t, nil)
		}, true, "open: database schema does not fit: there is none: run `refdbctl migrate up`"},
		{"another kind of file", func(t *testing.T) string {
			return written(t, bytes.Repeat([]byte("no database\n"), 1000))
		}, false, "open: file is not a database (26): name another file"},
		{"a database without the schema", func(t *testing.T) string {
			path := migrated(t)
			migrate(t, path, func(m migrator) error { return m.To(ctx, 0) })
			return path
		}, true, "open: database schema does not fit: there is none: run `refdbctl migrate up`"},
		{"an older schema", func(t *testing.T) string {
			path := migrated(t)
			migrate(t, path, func(m migrator) error { return m.To(ctx, 5) })
			return path
		}, true, "open: database schema does not fit: version 5 is older than 11, the oldest that this program works with: run `refdbctl migrate up`"},
		{"a newer schema", func(t *testing.T) string {
			path := migrated(t)
			query(t, path, `UPDATE refdb_schema SET version = 99, oldest = 98`)
			return path
		}, true, fmt.Sprintf("open: database schema does not fit: version 99 is newer than this program's %d: upgrade the program", migrations.Latest(migrations.SQLite))},
		{"a migration in progress", func(t *testing.T) string {
			path := migrated(t)
			query(t, path, `UPDATE refdb_schema SET dirty = true`)
			return path
		}, true, "then run `refdbctl migrate up`"},
		{"strings in UTF-16", func(t *testing.T) string {
			path := filepath.Join(t.TempDir(), "x.db")
			query(t, path, `PRAGMA encoding = 'UTF-16le'`, `CREATE TABLE unrelated (x)`)
			migrate(t, path, func(m migrator) error { return m.Up(ctx) })
			return path
		}, false, "open: its encoding is UTF-16le: only UTF-8 sorts names by their bytes; create another file"},
	} {
		t.Run(e.name, func(t *testing.T) {
			path := e.path(t)
			before, _ := os.ReadDir(filepath.Dir(path))
			d, err := sqlite.Open(ctx, "sqlite:"+path)
			if err == nil {
				d.Close()
				t.Fatal("it opened")
			}
			want := strings.ReplaceAll(e.want, "DIR", filepath.Dir(path))
			if !strings.HasPrefix(err.Error(), fmt.Sprintf("sqlite file %q: open: ", path)) ||
				!strings.HasSuffix(err.Error(), want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("got  %v\nwant … %s", err, want)
			}
			if errors.Is(err, driver.ErrSchema) != e.schema {
				t.Errorf("ErrSchema: want %v: %v", e.schema, err)
			}
			if after, _ := os.ReadDir(filepath.Dir(path)); len(after) != len(before) && filepath.Dir(path) != "/dev" {
				t.Errorf("the files were %v, and are now %v", before, after)
			}
		})
	}
}

func written(t *testing.T, content []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "x.db")
	if err := os.WriteFile(path, content, 0o666); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestMigratorRefusesWhatCantBeADatabaseFile(t *testing.T) {
	dir := t.TempDir()
	for url, want := range map[string]string{
		"sqlite:":                      "no file is named: write sqlite:FILE",
		"sqlite:" + dir:                "it is a directory: name a file",
		"sqlite:" + dir + "/none/x.db": "there is no directory " + dir + "/none: create it",
		"sqlite:" + written(t, []byte(strings.Repeat("no database", 1000))): "file is not a database (26): name another file",
	} {
		m, err := sqlite.Migrator(t.Context(), url)
		if err == nil {
			m.Close()
		}
		if err == nil || !strings.HasSuffix(err.Error(), ": "+want) {
			t.Errorf("%s: %v, want … %s", url, err, want)
		}
	}
}

func TestConcurrentMigrationsOfANewFileSucceed(t *testing.T) {
	for range 25 {
		path := filepath.Join(t.TempDir(), "refdb.db")
		var all sync.WaitGroup
		for range 6 {
			all.Go(func() {
				m, err := sqlite.Migrator(t.Context(), "sqlite:"+path)
				if err != nil {
					t.Error(err)
					return
				}
				defer m.Close()
				if err := m.Up(t.Context()); err != nil {
					t.Error(err)
				}
				d, err := sqlite.Open(t.Context(), "sqlite:"+path)
				if err != nil {
					t.Error(err)
					return
				}
				if err := d.Close(); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
	}
}

func TestOpenTurnsTheWriteAheadLogOn(t *testing.T) {
	path := migrated(t)
	query(t, path, `PRAGMA journal_mode = delete`)
	d := openAgain(t, "sqlite:"+path)
	update(t, d, refA, "", v1)
	if _, err := os.Stat(path + "-wal"); err != nil {
		t.Error(err)
	}
}

func TestAFileThatWasReplacedOrRemovedIsRefused(t *testing.T) {
	for name, spoil := range map[string]func(path string) error{
		"replaced": func(path string) error { return os.Rename(migrated(t), path) },
		"removed":  os.Remove,
		"renamed":  func(path string) error { return os.Rename(path, path+".old") },
	} {
		t.Run(name, func(t *testing.T) {
			path := migrated(t)
			d := openAgain(t, "sqlite:"+path)
			update(t, d, refA, "", v1)
			if err := spoil(path); err != nil {
				t.Fatal(err)
			}
			const want = "the file was removed or replaced while in use: restart this process"
			if _, err := d.Acquire(t.Context(), request(owner, refA)); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("acquired: %v", err)
			}
			if _, err := d.Get(t.Context(), project, []string{refA}); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("got: %v", err)
			}
		})
	}
}
