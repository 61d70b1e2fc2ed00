package journal

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
)

func made(n int) driver.Known {
	return driver.Known{
		Project: "p", Ref: "refs/heads/é", Old: refdb.Value(fmt.Sprint(n - 1)), New: refdb.Value(fmt.Sprint(n)), Op: fmt.Sprintf("OP%d-x", n),
		Owner: "a/1", By: "alice", At: time.UnixMicro(int64(n)).UTC(),
	}
}

func announced(n int) driver.Known {
	k := made(n)
	k.Op, k.Token, k.Agent = fmt.Sprintf("OP%d", n), refdb.Token(n), "boot:1:2"
	return k
}

func (j *Journal) mustNote(t *testing.T, known ...driver.Known) {
	t.Helper()
	if err := j.Note(known); err != nil {
		t.Fatal(err)
	}
}

func (j *Journal) wantPending(t *testing.T, want ...driver.Known) {
	t.Helper()
	got, err := j.Pending()
	if err != nil || len(got) != len(want) {
		t.Fatalf("pending are %+v, %v; want %+v", got, err, want)
	}
	for _, k := range got {
		if k != want[0] && (len(want) < 2 || k != want[1]) {
			t.Errorf("pending is %+v", k)
		}
	}
}

func TestWhatWasNotedIsThereAfterAStart(t *testing.T) {
	dir := t.TempDir()
	j := New(dir)
	j.mustNote(t, made(1), made(2), announced(3), announced(4), announced(5))
	j.mustNote(t, made(3)) // ends the intent
	if ended, err := j.End("p", []string{made(5).Ref, "refs/heads/other"}, "OP5"); err != nil || len(ended) != 1 || ended[0].Ref != made(5).Ref {
		t.Fatalf("ended %+v, %v", ended, err)
	}
	if ended, err := j.End("p", []string{made(5).Ref}, "OP5"); err != nil || len(ended) != 0 {
		t.Fatalf("ended again: %+v, %v", ended, err)
	}
	marks := []driver.WitnessMark{{Name: "a", Since: time.UnixMicro(7).UTC()}}
	if err := j.SetMarks(marks); err != nil {
		t.Fatal(err)
	}
	for _, j := range []*Journal{j, New(dir)} {
		j.wantPending(t, announced(4))
		newest, err := j.Newest(0, 2)
		if err != nil || len(newest) != 2 || newest[0] != made(3) || newest[1] != made(2) {
			t.Errorf("newest are %+v, %v", newest, err)
		}
		if newest, err = j.Newest(2, 5); err != nil || len(newest) != 1 || newest[0] != made(1) {
			t.Errorf("the rest is %+v, %v", newest, err)
		}
		if got, err := j.Marks(); err != nil || len(got) != 1 || got[0] != marks[0] {
			t.Errorf("marks are %+v, %v", got, err)
		}
		if err := j.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestAChangeThatIsSeenAgainIsNotedOnce(t *testing.T) {
	j := New(t.TempDir())
	j.mustNote(t, made(1), made(1))
	j.mustNote(t, made(1))
	if newest, err := j.Newest(0, 9); err != nil || len(newest) != 1 {
		t.Errorf("%+v, %v", newest, err)
	}
}

// A crash may leave a part of the last line.
func TestALineThatIsNotWholeIsLeftOut(t *testing.T) {
	dir := t.TempDir()
	j := New(dir)
	j.mustNote(t, made(1), made(2))
	j.Close()
	text, err := os.ReadFile(j.path(newer))
	if err == nil {
		err = os.WriteFile(j.path(newer), text[:len(text)-7], 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	j = New(dir)
	j.mustNote(t, made(3))
	j.Close()
	newest, err := New(dir).Newest(0, 9)
	if err != nil || len(newest) != 2 || newest[0] != made(3) || newest[1] != made(1) {
		t.Errorf("%+v, %v", newest, err)
	}
}

func TestTheOlderHalfGoesAndPendingIntentsStay(t *testing.T) {
	dir := t.TempDir()
	j := New(dir)
	j.segment = 4096
	j.mustNote(t, announced(1))
	const last = 500
	for n := 2; n <= last; n++ {
		j.mustNote(t, made(n))
	}
	j.Close()
	j = New(dir)
	j.wantPending(t, announced(1))
	all, err := j.Newest(0, last)
	if err != nil || len(all) < 10 || len(all) > last/2 || all[0] != made(last) {
		t.Errorf("%d are left, %v", len(all), err)
	}
	for i, k := range all {
		if k != made(last-i) {
			t.Fatalf("%d-th newest is %+v", i, k)
		}
	}
}

// limit sets a limit of the process until the function is called that it returns.
func limit(t *testing.T, resource int, to uint64) (lift func()) {
	t.Helper()
	var was unix.Rlimit
	err := unix.Getrlimit(resource, &was)
	if err == nil {
		err = unix.Setrlimit(resource, &unix.Rlimit{Cur: to, Max: was.Max})
	}
	if err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := unix.Setrlimit(resource, &was); err != nil {
			t.Fatal(err)
		}
	}
}

func TestAJournalGoesOnOnceItCanBeginANewFile(t *testing.T) {
	for name, obstruct := range map[string]func(t *testing.T, j *Journal) (end func()){
		"the older one stays": func(t *testing.T, j *Journal) func() {
			// A directory that holds something is not replaced.
			if err := os.MkdirAll(filepath.Join(j.path(older), "x"), 0o700); err != nil {
				t.Fatal(err)
			}
			return func() { os.RemoveAll(j.path(older)) }
		},
		"too many files are open": func(t *testing.T, _ *Journal) func() { return limit(t, unix.RLIMIT_NOFILE, 3) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			j := New(dir)
			j.segment = 1
			j.mustNote(t, announced(1), made(2))
			before := j.sizeOf(t, newer)
			end := obstruct(t, j)
			failed := 0
			for range 5 {
				if j.Note([]driver.Known{made(3)}) != nil {
					failed++
				}
			}
			end()
			if failed < 5 {
				t.Fatal("nothing was in the way")
			}
			if grown := j.sizeOf(t, newer); grown > before+10 { // empty lines
				t.Errorf("it has grown from %d to %d bytes", before, grown)
			}
			j.mustNote(t, made(4))
			j.Close()
			j = New(dir)
			j.wantPending(t, announced(1))
			newest, err := j.Newest(0, 9)
			if err != nil || len(newest) != 2 || newest[0] != made(4) || newest[1] != made(2) {
				t.Errorf("%+v, %v", newest, err)
			}
		})
	}
}

func (j *Journal) sizeOf(t *testing.T, file string) int {
	t.Helper()
	text, err := os.ReadFile(j.path(file))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return len(text)
}

// An intent that is noted and was never let through would be taken for one that the database has lost.
func TestOfWhatCouldNotBeWrittenNothingIsThereAfterAStart(t *testing.T) {
	dir := t.TempDir()
	j := New(dir)
	j.mustNote(t, announced(1))
	j.mustNote(t, announced(2))
	lift := limit(t, unix.RLIMIT_FSIZE, uint64(j.sizeOf(t, newer)*5/2)) // in the middle of a line
	err := j.Note([]driver.Known{announced(3), announced(4), announced(5), announced(6)})
	lift()
	if err == nil {
		t.Fatal("there was room")
	}
	j.mustNote(t, made(2))
	j.Close()
	j = New(dir)
	j.wantPending(t, announced(1))
	if newest, err := j.Newest(0, 9); err != nil || len(newest) != 1 || newest[0] != made(2) {
		t.Errorf("%+v, %v", newest, err)
	}
}

func TestNobodyKnowsOfMovesBeforeTheDaemonSaysHow(t *testing.T) {
	j := New(t.TempDir())
	lost := []driver.Known{announced(1)}
	if _, open, err := j.Settle(t.Context(), lost); !open || err != nil {
		t.Errorf("open: %t, %v", open, err)
	}
	j.SettleWith(func(_ context.Context, lost []driver.Known) ([]driver.Known, bool, error) {
		lost[0].Move = driver.MoveMade
		return lost, false, nil
	})
	if got, open, err := j.Settle(t.Context(), lost); open || err != nil || got[0].Move != driver.MoveMade {
		t.Errorf("%+v, open: %t, %v", got, open, err)
	}
}

// A release before this one repeated pending intents at the end of the older file, and began with an empty line after
// each start.
func TestAJournalOfAnEarlierRelease(t *testing.T) {
	dir := t.TempDir()
	j := New(dir)
	if err := os.Mkdir(filepath.Join(dir, "journal"), 0o700); err != nil {
		t.Fatal(err)
	}
	for file, lines := range map[string][]line{older: {lineOf(made(1)), lineOf(announced(2))}, newer: {lineOf(made(3)), lineOf(announced(4))}} {
		text, err := encode(lines)
		if err == nil {
			err = os.WriteFile(j.path(file), slices.Concat([]byte("\n"), text, []byte("\n")), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	j.segment = 1
	for n := range 3 { // the files of the earlier release go
		j.wantPending(t, announced(2), announced(4))
		j.mustNote(t, made(5+n))
		if err := j.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if newest, err := j.Newest(0, 9); err != nil || len(newest) != 2 || newest[0] != made(7) {
		t.Errorf("%+v, %v", newest, err)
	}
}

// A byte that has changed damages one line, or two if it was between them; all others count.
func TestAByteThatHasChanged(t *testing.T) {
	dir := t.TempDir()
	j := New(dir)
	j.segment = 1
	j.mustNote(t, announced(1), made(2))
	j.mustNote(t, made(3), made(4))
	j.Close()
	files := map[string][]byte{}
	for _, file := range []string{older, newer} {
		text, err := os.ReadFile(j.path(file))
		if err != nil {
			t.Fatal(err)
		}
		files[file] = text
	}
	for file, text := range files {
		for i := range text {
			for _, flip := range []byte{1, text[i] ^ '\n'} {
				changed := bytes.Clone(text)
				changed[i] ^= flip
				for name, content := range map[string][]byte{older: files[older], newer: files[newer], file: changed} {
					if err := os.WriteFile(j.path(name), content, 0o600); err != nil {
						t.Fatal(err)
					}
				}
				j := New(dir)
				j.mustNote(t, made(99))
				j.Close()
				newest, err := j.Newest(0, 9)
				intact, least := 0, 2
				if text[i] == '\n' {
					least = 1
				}
				for _, k := range newest {
					if k == made(2) || k == made(3) || k == made(4) {
						intact++
					}
				}
				if err != nil || newest[0] != made(99) || intact < least {
					t.Fatalf("byte %d of %s became %q: %+v, %v", i, file, changed[i], newest, err)
				}
				j.Close()
			}
		}
	}
}

func TestAJournalThatCanNotBeWrittenSaysSoUntilItCan(t *testing.T) {
	t.Parallel()
	state := t.TempDir()
	j := New(state)
	t.Cleanup(func() { j.Close() })
	dir := filepath.Join(state, "journal")
	if err := os.WriteFile(dir, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	failed := (*Error)(nil)
	for what, err := range map[string]error{"note": j.Note([]driver.Known{made(1)}), "marks": j.SetMarks(nil)} {
		if !errors.As(err, &failed) || j.Failed() == nil {
			t.Errorf("%s: %v; it says %v", what, err, j.Failed())
		}
	}
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	if err := j.Note([]driver.Known{made(1)}); err != nil || j.Failed() != nil {
		t.Errorf("%v; it says %v", err, j.Failed())
	}
}
