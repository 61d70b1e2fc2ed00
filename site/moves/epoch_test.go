package moves_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/globalrefdb/globalrefdb/site/moves"
)

func TestAProcessThatWasKilledAtAnyByte(t *testing.T) {
	t.Parallel()
	r := newRig(t, large)
	start := r.end()
	r.append("one")
	r.begin("begun", "too")
	r.append("two", "three")
	if err := r.begin("four").End(); err != nil {
		t.Fatal(err)
	}
	all := r.after(start)
	text := r.files()[0]
	whole, err := os.ReadFile(text)
	if err != nil {
		t.Fatal(err)
	}
	head := strings.IndexByte(string(whole), '\n') + 1
	for n := head; n <= len(whole); n++ {
		if err := os.WriteFile(text, whole[:n], 0o600); err != nil {
			t.Fatal(err)
		}
		r.open()
		var want []string
		for line := range strings.Lines(string(whole[:n])) {
			if f := strings.Fields(line); f[0] == "moved" && strings.HasSuffix(line, "\n") {
				want = append(want, f[3])
			}
		}
		if !slices.Equal(want, all[:len(want)]) {
			t.Fatalf("the test is wrong: %q of %q", want, all)
		}
		r.has(start, want...)
		at := r.end()
		r.append("later")
		r.has(start, append(want, "later")...)
		r.has(at, "later")
		left := 0
		if strings.Contains(string(whole[:n]), "begun /a\n") {
			left++ // these moves never ended
		}
		if last := string(whole[:n]); strings.Contains(last, "four /a\n") && !strings.HasSuffix(last, "ended 2\n") {
			left++
		}
		if len(r.left) != left {
			t.Fatalf("after %d bytes %d are left of what was begun, want %d", n, len(r.left), left)
		}
		r.log.Close()
	}
}

func TestANewEpoch(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		happens func(r *rig)
		left    int // of what was begun
	}{
		"after a crash of the machine": {func(r *rig) { r.boot = "another" }, 0},
		"if the list has gone": {func(r *rig) {
			if err := os.RemoveAll(r.dir); err != nil {
				r.t.Fatal(err)
			}
		}, 0},
		"if it is empty":        {func(r *rig) { r.replace(func(string) string { return "" }) }, 0},
		"if it has half a head": {func(r *rig) { r.replace(func(s string) string { return s[:20] }) }, 0},
		"if it is of a version": {func(r *rig) { r.replace(func(s string) string { return strings.Replace(s, "moves 1", "moves 2", 1) }) }, 0},
		"if it can't be read": {func(r *rig) {
			r.replace(func(s string) string { return strings.Replace(s, "moved", "m\x00\x00ed", 1) })
		}, 1},
		"if a number can't be":    {func(r *rig) { r.replace(func(s string) string { return strings.Replace(s, "moved ", "moved x", 1) }) }, 1},
		"if it is another's list": {func(r *rig) { r.replace(func(s string) string { return "rubbish\n" + s }) }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, large)
			if !r.log.IsNew() {
				t.Error("the first list is not new")
			}
			at := r.end()
			r.begin("begun")
			r.append("1")
			r.log.Close()
			c.happens(r)
			r.open()
			if !r.log.IsNew() {
				t.Error("no new epoch has begun")
			}
			r.resets("the old place", at)
			if len(r.left) != c.left {
				t.Errorf("%d are left, want %d", len(r.left), c.left)
			}
			at = r.end()
			r.append("2")
			r.has(at, "2")
			if r.open(); r.log.IsNew() {
				t.Error("another one has begun")
			}
			r.has(at, "2")
		})
	}
}

// While the list can't be written, no reader gets a page. Neither this process nor the next one
// tells readers that nothing has moved meanwhile.
func TestAListThatCanNotBeWritten(t *testing.T) {
	t.Parallel()
	for name, next := range map[string]bool{"and then by the same process": false, "and then by the next one": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, large)
			r.append("1")
			at := r.end()
			b := r.begin("begun")
			if err := r.log.FillDisk(); err != nil {
				t.Fatal(err)
			}
			for range 2 {
				if err := r.log.Append(entry("2")); !errors.Is(err, moves.ErrUnwritable) || !strings.Contains(err.Error(), "no space") {
					t.Errorf("an append: %v", err)
				}
			}
			if p, err := r.log.Read(at); !errors.Is(err, moves.ErrUnwritable) {
				t.Errorf("a reader reads %+v, %v", p, err)
			}
			if p, err := r.log.End(); !errors.Is(err, moves.ErrUnwritable) {
				t.Errorf("the present place is %s, %v", p, err)
			}
			if _, err := r.log.Begin(entry("3")); !errors.Is(err, moves.ErrUnwritable) {
				t.Errorf("what is about to move: %v", err)
			}
			// Now a file is in the way of the directory.
			if err := os.WriteFile(r.dir, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			if err := r.log.Restore(); !errors.Is(err, moves.ErrUnwritable) || !errors.Is(r.log.Writable(), moves.ErrUnwritable) {
				t.Errorf("it was restored: %v", err)
			}
			if err := os.Remove(r.dir); err != nil {
				t.Fatal(err)
			}
			if next {
				r.open()
				r.resets("the place before", at)
				return
			}
			if err := errors.Join(r.log.Restore(), r.log.Restore(), r.log.Writable()); err != nil {
				t.Fatal(err)
			}
			r.resets("the place before", at)
			at = r.end()
			if err := b.End(); err != nil {
				t.Fatal(err)
			}
			r.has(at, "begun")
			if r.open(); len(r.left) != 1 { // the other moves that were begun
				t.Errorf("%d are left", len(r.left))
			}
			r.has(at, "begun")
		})
	}
}

// An epoch may end although its files can be neither written nor removed. A process that finds
// these files later, once they can be removed, must not continue the epoch.
func TestAnEpochWhoseFilesCanNotBeRemovedHasEnded(t *testing.T) {
	t.Parallel()
	r := newRig(t, large)
	r.append("1")
	r.log.Close()
	renamed := r.dir
	// The name is so long that no file beside the directory can have a longer one.
	r.dir = filepath.Join(t.TempDir(), strings.Repeat("x", 252))
	if err := os.Rename(renamed, r.dir); err != nil {
		t.Fatal(err)
	}
	r.open()
	at := r.end()
	if err := r.log.FillDisk(); err != nil {
		t.Fatal(err)
	}
	if err := r.log.Append(entry("2")); !errors.Is(err, moves.ErrUnwritable) {
		t.Errorf("an append: %v", err)
	}
	if err := r.log.Restore(); !errors.Is(err, moves.ErrUnwritable) {
		t.Fatalf("it was restored: %v", err)
	}
	r.log.Close()
	between, _, err := moves.OpenSmall(r.dir, r.boot, r.note, r.limit)
	if between.Close(); !errors.Is(err, moves.ErrUnwritable) {
		t.Errorf("a process that can't remove them either: %v", err)
	}
	if err := os.Rename(r.dir, renamed); err != nil {
		t.Fatal(err)
	}
	r.dir = renamed
	r.open()
	r.resets("the place before", at)
	if _, err := os.Stat(r.note); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the note that the epoch has ended: %v", err)
	}
	at = r.end()
	r.append("3")
	r.open()
	r.has(at, "3")
}

// A list that can't be opened for writing counts as one that can't be written.
func TestAListThatCanNotBeMade(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "file", "moves")
	if err := os.WriteFile(filepath.Dir(dir), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	l, _, err := moves.Open(dir, boot, filepath.Join(t.TempDir(), "note"))
	if !errors.Is(err, moves.ErrUnwritable) || !errors.Is(l.Append(entry("1")), moves.ErrUnwritable) {
		t.Fatal(err)
	}
	if err := errors.Join(os.Remove(filepath.Dir(dir)), os.Mkdir(filepath.Dir(dir), 0o700)); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(l.Restore(), l.Append(entry("1"))); err != nil {
		t.Error(err)
	}
	l.Close()
}
