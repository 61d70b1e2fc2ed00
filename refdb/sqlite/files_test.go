package sqlite_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/sqlite"
)

func TestAProcessWhoseFilesWereReplacedReportsItAndLosesItsLocks(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(path string) error{
		"the log was removed":            func(path string) error { return os.Remove(path + "-wal") },
		"the log's index was removed":    func(path string) error { return os.Remove(path + "-shm") },
		"both were removed":              func(path string) error { return errors.Join(os.Remove(path+"-wal"), os.Remove(path+"-shm")) },
		"the log was replaced by a copy": func(path string) error { return replaceByCopy(path + "-wal") },
		"the file was replaced by a copy": func(path string) error {
			return replaceByCopy(path)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := migrated(t)
			d := openAgain(t, "sqlite:"+path)
			held := acquire(t, d, refA)
			if err := spoil(path); err != nil {
				t.Fatal(err)
			}
			other, err := sqlite.OpenWithin(t.Context(), "sqlite:"+path, time.Millisecond)
			if err == nil {
				defer other.Close()
			}

			beaten, err := d.Beat(t.Context(), []driver.LockID{{Project: project, Ref: refA, Owner: owner, Token: held.Token}})
			if err != nil || beaten[0] != driver.BeatLost {
				t.Errorf("the lock: %v, %v", beaten, err)
			}
			for what, err := range map[string]error{
				"an acquisition": func() error { _, err := d.Acquire(t.Context(), request(owner, refB)); return err }(),
				"a release":      release(t.Context(), d, owner, held.Token, refA),
				"an update":      put(t.Context(), d, refB, "", v1),
				"a reading":      func() error { _, err := d.Get(t.Context(), project, []string{refA}); return err }(),
			} {
				if driver.ClassOf(err) != driver.Permanent || !strings.Contains(err.Error(), "removed or replaced while in use") {
					t.Errorf("%s: %v", what, err)
				}
			}
		})
	}
}

func replaceByCopy(path string) error {
	content, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := os.WriteFile(path+".copy", content, 0o666); err != nil {
		return err
	}
	return os.Rename(path+".copy", path)
}

func TestRestoredFilesAreStillLost(t *testing.T) {
	t.Parallel()
	path := migrated(t)
	d := openAgain(t, "sqlite:"+path)
	update(t, d, refA, "", v1)
	if err := os.Rename(path+"-wal", path+"-wal.away"); err != nil {
		t.Fatal(err)
	}
	if err := put(t.Context(), d, refA, v1, v2); err == nil {
		t.Error("the process wrote without its log")
	}
	if err := os.Rename(path+"-wal.away", path+"-wal"); err != nil {
		t.Fatal(err)
	}
	if err := put(t.Context(), d, refA, v1, v2); driver.ClassOf(err) != driver.Permanent {
		t.Errorf("the process wrote to a log that others may have replaced meanwhile: %v", err)
	}
}

// Another process that uses new files may have held the lock before that COMMIT.
func TestACommitDuringWhichTheLogWasReplacedIsInDoubt(t *testing.T) {
	t.Parallel()
	path := migrated(t)
	d := openAgain(t, "sqlite:"+path)
	d.Hook(func(query string) error {
		if query == "COMMIT" {
			return os.Remove(path + "-wal")
		}
		return nil
	})
	if err := put(t.Context(), d, refA, "", v1); !errors.Is(err, driver.ErrOutcomeUnknown) {
		t.Errorf("got %v", err)
	}
}

func TestClosingAfterTheLogWasReplacedDoesNotChangeTheFile(t *testing.T) {
	t.Parallel()
	path := migrated(t)
	d := openAgain(t, "sqlite:"+path)
	update(t, d, refA, "", v1)
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(path + "-wal"); err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	after, err := os.ReadFile(path)
	if err != nil || string(after) != string(before) {
		t.Errorf("the file changed from %d bytes to %d; %v", len(before), len(after), err)
	}
}

// elsewhere returns other paths to a file.
var elsewhere = map[string]func(t *testing.T, path string) string{
	"a hard link in another directory": func(t *testing.T, path string) string {
		return linked(t, path, filepath.Join(t.TempDir(), "refdb.db"))
	},
	"a hard link with another name": func(t *testing.T, path string) string {
		return linked(t, path, path+"2")
	},
	"a mount of the file alone": mounted,
}

func linked(t *testing.T, from, to string) string {
	t.Helper()
	if err := os.Link(from, to); err != nil {
		t.Fatal(err)
	}
	return to
}

const usedElsewhere = "open: it is in use under another path, a hard link or a mount of the file alone: open it under that path, or mount its directory"

func TestAFileInUseDoesNotOpenUnderAnotherPath(t *testing.T) {
	t.Parallel()
	for name, other := range elsewhere {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := migrated(t)
			d, err := sqlite.Open(t.Context(), "sqlite:"+path)
			if err != nil {
				t.Fatal(err)
			}
			update(t, d, refA, "", v1)
			again := other(t, path)
			refused := func() {
				t.Helper()
				d, err := sqlite.OpenWithin(t.Context(), "sqlite:"+again, time.Millisecond)
				if err == nil {
					d.Close()
				}
				if err == nil || !strings.HasSuffix(err.Error(), usedElsewhere) || driver.ClassOf(err) != driver.Permanent {
					t.Errorf("got %v", err)
				}
			}
			refused()
			// It does not open for another process either, and the earlier users are unaffected.
			if got := play(t, false, "open", "sqlite:"+again).end(t); !strings.HasSuffix(got, usedElsewhere) {
				t.Errorf("another process got %s", got)
			}
			update(t, d, refA, v1, v2)
			openAgain(t, "sqlite:"+path)
			if err := d.Close(); err != nil {
				t.Fatal(err)
			}
			refused() // one user is left
		})
	}
}

func TestAnUnusedFileOpensUnderAnyPath(t *testing.T) {
	t.Parallel()
	for name, other := range elsewhere {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := migrated(t)
			again := other(t, path)
			want := driver.Unknown
			for _, at := range []string{path, again, path} {
				d, err := sqlite.Open(t.Context(), "sqlite:"+at)
				if err != nil {
					t.Fatal(err)
				}
				if got := value(t, d, refA); got != want {
					t.Errorf("%s holds %q, want %q", at, got, want)
				}
				next := driver.Value(at)
				update(t, d, refA, want, next)
				want = next
				if err := d.Close(); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

func TestASymbolicLinkIsTheSamePath(t *testing.T) {
	t.Parallel()
	path := migrated(t)
	d := openAgain(t, "sqlite:"+path)
	update(t, d, refA, "", v1)
	link := filepath.Join(t.TempDir(), "link.db")
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	other := openAgain(t, "sqlite:"+link)
	update(t, other, refA, v1, v2)
	if got := value(t, d, refA); got != v2 {
		t.Errorf("the ref holds %q", got)
	}
}

// A process that is killed leaves a log, and its location in the file.
func TestADirectoryMovedAfterACrashOpensWithAllCommits(t *testing.T) {
	t.Parallel()
	path := migrated(t)
	p := play(t, false, "pairs", "sqlite:"+path)
	p.line(t)
	p.kill()
	if log, err := os.Stat(path + "-wal"); err != nil || log.Size() == 0 {
		t.Fatalf("the process left no log: %v", err)
	}
	to := t.TempDir()
	for _, suffix := range []string{"", "-wal", "-shm"} {
		content, err := os.ReadFile(path + suffix) // as if copied to another machine
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(to, "moved.db"+suffix), content, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	// Several processes open the file at once. The first one records the new location.
	var all []*process
	for range 4 {
		all = append(all, play(t, false, "open", "sqlite:"+filepath.Join(to, "moved.db")))
	}
	for _, p := range all {
		if got := p.end(t); got != "it opened" {
			t.Error(got)
		}
	}
	d := openAgain(t, "sqlite:"+filepath.Join(to, "moved.db"))
	if got := value(t, d, refA); got == driver.Unknown {
		t.Error("committed transactions are lost")
	}
	if got := faults(t, d); len(got) != 0 {
		t.Errorf("found %v", got)
	}
}

func TestAFileWithoutARecordedLocationOpensAndDiagnoseNamesARemedy(t *testing.T) {
	t.Parallel()
	path := migrated(t)
	query(t, path, `PRAGMA user_version = 0`)
	d, err := sqlite.Open(t.Context(), "sqlite:"+path)
	if err != nil {
		t.Fatal(err)
	}
	// While the file is in use, a migration does not record its location.
	migrate(t, path, func(m migrator) error { return m.Up(t.Context()) })
	if got := faults(t, d); len(got) != 1 || got["place"] != "not recorded, so that the file may be opened under two paths: run `refdbctl migrate up` while nothing uses the file" {
		t.Errorf("found %v", got)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	migrate(t, path, func(m migrator) error { return m.Up(t.Context()) })
	if got := faults(t, openAgain(t, "sqlite:"+path)); len(got) != 0 {
		t.Errorf("after migrating: %v", got)
	}
}

func TestAFileInUseIsNotMigratedUnderAnotherPath(t *testing.T) {
	t.Parallel()
	path := migrated(t)
	openAgain(t, "sqlite:"+path)
	m, err := sqlite.Migrator(t.Context(), "sqlite:"+linked(t, path, path+"2"))
	if err == nil {
		m.Close()
	}
	if err == nil || !strings.Contains(err.Error(), "migrate: it is in use under another path") {
		t.Errorf("got %v", err)
	}
}
