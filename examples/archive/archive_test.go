package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/lease"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/memory"
	"github.com/globalrefdb/globalrefdb/refdb/operator"
)

// A world is the machines of one archive.
type world struct {
	*testing.T
	database *memory.Database
	dir      string
}

func newWorld(t *testing.T) *world { return &world{t, memory.New(), t.TempDir()} }

// machine returns the archive as another machine has it.
func (w *world) machine() *Archive {
	w.Helper()
	db, err := refdb.New(w.database.Open(), refdb.Options{StaleAfter: time.Hour})
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { db.Close() })
	return &Archive{DB: db, Project: "archive", Dir: w.dir}
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// frozen acquires the lease for a machine, which then loses it and does not know: as one that was
// frozen for longer than stale-after.
func (w *world) frozen(a *Archive, mode lease.Mode) (l *lease.Lease, lose func()) {
	w.Helper()
	l, err := lease.Acquire(w.Context(), a.DB, a.Project, leaseName, mode)
	w.must(err)
	return l, func() {
		w.Helper()
		for row, err := range a.DB.Locks(w.Context(), refdb.LockFilter{Project: a.Project, Ref: l.Ref()}) {
			w.must(err)
			_, err := w.machine().DB.Operator().Purge(w.Context(), []refdb.LockInfo{row}, operator.PurgeFresh())
			w.must(err)
		}
	}
}

func (w *world) wantBlocks(what string, want int) {
	w.Helper()
	files, err := os.ReadDir(w.dir)
	w.must(err)
	if len(files) != want {
		w.Errorf("%s: %d blocks, want %d: %v", what, len(files), want, files)
	}
}

func TestBackupsShareBlocksAndCleaningKeepsWhatAnIndexNames(t *testing.T) {
	w := newWorld(t)
	a, b := w.machine(), w.machine()
	w.must(a.Backup(t.Context(), "monday", []byte("one"), []byte("two")))
	w.wantBlocks("two contents and a list", 3)
	w.must(b.Backup(t.Context(), "tuesday", []byte("two"), []byte("three")))
	w.wantBlocks("one content and a list more", 5)
	w.must(b.Clean(t.Context()))
	w.wantBlocks("all are named", 5)
	w.must(a.Forget(t.Context(), "monday"))
	w.wantBlocks("forgotten, and not cleaned yet", 5)
	w.must(b.Clean(t.Context()))
	w.wantBlocks("tuesday's are left", 3)
	w.must(a.Check(t.Context()))
}

func TestABackupOfANameThatIsThereIsRefused(t *testing.T) {
	w := newWorld(t)
	a := w.machine()
	w.must(a.Backup(t.Context(), "monday", []byte("one")))
	if err := a.Backup(t.Context(), "monday", []byte("two")); !errors.Is(err, refdb.ErrMismatch) {
		t.Errorf("got %v", err)
	}
}

func TestContentThatComesBackAfterACleaningHasAnotherName(t *testing.T) {
	w := newWorld(t)
	a := w.machine()
	seen := map[string]bool{}
	for i := range 3 {
		w.must(a.Backup(t.Context(), fmt.Sprint(i), []byte("one")))
		files, err := os.ReadDir(w.dir)
		w.must(err)
		for _, file := range files {
			if seen[file.Name()] {
				t.Errorf("%s was used again", file.Name())
			}
			seen[file.Name()] = true
		}
		w.must(a.Forget(t.Context(), fmt.Sprint(i)))
		w.must(a.Clean(t.Context()))
		w.wantBlocks("all are cleaned", 0)
	}
}

// The cleaner freezes before it deletes. Meanwhile a backup wants the content that it is about to delete.
// That the names were recorded is what saves the block: without it the same steps lose the block.
func TestACleanerFrozenBeforeItDeletesDestroysABlockOnlyWithoutTheRecord(t *testing.T) {
	for name, c := range map[string]struct {
		record func(*Archive, *lease.Lease, []string) error
		want   error
	}{
		"with the record":    {(*Archive).record, nil},
		"without the record": {func(*Archive, *lease.Lease, []string) error { return nil }, fs.ErrNotExist},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			cleaner, other := w.machine(), w.machine()
			w.must(other.Backup(t.Context(), "monday", []byte("one")))
			w.must(other.Forget(t.Context(), "monday"))

			l, lose := w.frozen(cleaner, lease.Exclusive)
			garbage, err := cleaner.garbage(l.Context())
			w.must(err)
			w.must(c.record(cleaner, l, garbage))
			lose()
			w.must(other.Backup(t.Context(), "tuesday", []byte("one")))
			w.must(other.Check(t.Context()))
			w.must(cleaner.remove(garbage)) // late

			if err := other.Check(t.Context()); !errors.Is(err, c.want) || (err == nil) != (c.want == nil) {
				t.Errorf("the check says %v, want %v", err, c.want)
			}
		})
	}
}

func TestACleanerFrozenBeforeItRecordsDeletesNothing(t *testing.T) {
	w := newWorld(t)
	cleaner, other := w.machine(), w.machine()
	w.must(other.Backup(t.Context(), "monday", []byte("one")))
	w.must(other.Forget(t.Context(), "monday"))

	l, lose := w.frozen(cleaner, lease.Exclusive)
	garbage, err := cleaner.garbage(l.Context())
	w.must(err)
	lose()
	w.must(other.Backup(t.Context(), "tuesday", []byte("one")))
	if err := cleaner.record(l, garbage); refdb.ClassOf(err) != refdb.StaleOwner {
		t.Errorf("recording says %v", err)
	}
	w.must(other.Check(t.Context()))
	recorded, err := other.refs(t.Context(), deadPrefix)
	if err != nil || len(recorded) != 0 {
		t.Errorf("%v is recorded, %v", recorded, err)
	}
}

func TestABackupFrozenBeforeItsIndexWritesNone(t *testing.T) {
	w := newWorld(t)
	frozen, other := w.machine(), w.machine()
	l, lose := w.frozen(frozen, lease.Shared)
	list, err := frozen.store(l.Context(), [][]byte{[]byte("one")})
	w.must(err)
	lose()
	w.must(other.Clean(t.Context()))
	w.wantBlocks("the cleaner took them", 0)
	if err := frozen.publish(l, "monday", list); refdb.ClassOf(err) != refdb.StaleOwner {
		t.Errorf("writing the index says %v", err)
	}
	w.must(other.Check(t.Context()))
}

// A backup freezes before a block has its name. A cleaner deletes that name, and the block appears after
// that. It is used by nobody, and goes with the next cleaning.
func TestABlockThatAFrozenBackupWritesLateIsNotUsed(t *testing.T) {
	w := newWorld(t)
	frozen, other := w.machine(), w.machine()
	w.must(other.Backup(t.Context(), "monday", []byte("one")))
	w.must(other.Forget(t.Context(), "monday"))
	none := map[string]refdb.Value{} // what the backup read before it froze
	w.must(other.Clean(t.Context()))
	late, err := frozen.put([]byte("one"), none)
	w.must(err)
	w.wantBlocks("it is back", 1)

	w.must(other.Backup(t.Context(), "tuesday", []byte("one")))
	w.must(other.Clean(t.Context()))
	if _, err := frozen.get(late); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the late block: %v", err)
	}
	w.must(other.Check(t.Context()))
}

// A backup freezes before a block has its name, and cleaners take the lease and the files. What it says
// then is of the class of a lost lease, so that its caller tries again, and not that a file is missing.
func TestWhoMissesAFileAfterTheLossOfItsLeaseSaysThatItLostIt(t *testing.T) {
	w := newWorld(t)
	db, err := refdb.New(w.database.Open(), refdb.Options{StaleAfter: time.Hour, Heartbeat: 20 * time.Millisecond})
	w.must(err)
	defer db.Close()
	frozen := &Archive{DB: db, Project: "archive", Dir: w.dir}
	l, lose := w.frozen(frozen, lease.Shared)
	w.must(os.RemoveAll(w.dir))
	_, missing := frozen.store(t.Context(), [][]byte{[]byte("one")})
	if err := whileHeld(l, missing); refdb.ClassOf(err) != refdb.Permanent || !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("with the lease: %v", err)
	}
	lose()
	<-l.Done()
	if err := whileHeld(l, missing); refdb.ClassOf(err) != refdb.StaleOwner || !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without the lease: %v", err)
	}
}

func TestWhatACrashedBackupLeftIsCleaned(t *testing.T) {
	w := newWorld(t)
	a := w.machine()
	f, err := os.CreateTemp(w.dir, temporary)
	w.must(errors.Join(err, f.Close()))
	w.must(a.Clean(t.Context()))
	w.wantBlocks("cleaned", 0)
	recorded, err := a.refs(t.Context(), deadPrefix)
	if err != nil || len(recorded) != 0 {
		t.Errorf("%v is recorded, %v", recorded, err)
	}
}

func TestACheckFindsWhatIsDamaged(t *testing.T) {
	for name, damage := range map[string]func(path string) error{
		"missing":         os.Remove,
		"another content": func(path string) error { return os.WriteFile(path, []byte("two"), 0o600) },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			a := w.machine()
			w.must(a.Backup(t.Context(), "monday", []byte("one")))
			used, err := a.used(t.Context())
			w.must(err)
			for block, list := range used {
				if block != string(list) {
					w.must(damage(w.dir + "/" + block))
				}
			}
			if err := a.Check(t.Context()); err == nil || strings.Contains(err.Error(), "lease") {
				t.Errorf("the check says %v", err)
			}
		})
	}
}

func TestNothingGoesOnWithoutTheLease(t *testing.T) {
	w := newWorld(t)
	a := w.machine()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for name, act := range map[string]func() error{
		"backup": func() error { return a.Backup(ctx, "monday", []byte("one")) },
		"clean":  func() error { return a.Clean(ctx) },
		"check":  func() error { return a.Check(ctx) },
	} {
		if err := act(); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", name, err)
		}
	}
	w.wantBlocks("none was written", 0)
}
