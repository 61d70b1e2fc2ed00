package journal

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
)

// at is the change n, made at a time in seconds.
func at(n int, second int64) driver.Known {
	k := made(n)
	k.At = time.Unix(second, 0).UTC()
	return k
}

func (j *Journal) newestOps(t *testing.T, skip, limit int) (ops []string) {
	t.Helper()
	newest, err := j.Newest(skip, limit)
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range newest {
		ops = append(ops, k.Op)
	}
	return ops
}

func names(numbers ...int) (ops []string) {
	for _, n := range numbers {
		ops = append(ops, made(n).Op)
	}
	return ops
}

// The newest changes are those that a database which went back lacks first.
func TestTheNewestChangesAreTheLastOnesThatWereMade(t *testing.T) {
	t.Parallel()
	for _, x := range []struct {
		what   string
		before []driver.Known // noted by an earlier process
		note   func(j *Journal) error
		want   []int
	}{
		{"what came while no process ran comes before what this one has made", []driver.Known{at(1, 10)}, func(j *Journal) error {
			return errors.Join(j.Note([]driver.Known{at(4, 40)}), j.NoteEarlier([]driver.Known{at(2, 20), at(3, 30)}), j.Note([]driver.Known{at(5, 50)}))
		}, []int{5, 4, 3, 2, 1}},
		{"and after what the earlier process noted, though its clock was ahead", []driver.Known{at(1, 1000)}, func(j *Journal) error {
			return errors.Join(j.Note([]driver.Known{at(4, 40)}), j.NoteEarlier([]driver.Known{at(2, 20), at(3, 30)}), j.Note([]driver.Known{at(5, 50)}))
		}, []int{5, 4, 3, 2, 1}},
		{"the database's clock goes back", nil, func(j *Journal) error {
			return errors.Join(j.Note([]driver.Known{at(1, 50)}), j.Note([]driver.Known{at(2, 20)}), j.Note([]driver.Known{at(3, 30)}))
		}, []int{3, 2, 1}},
	} {
		t.Run(x.what, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			j := New(dir)
			j.mustNote(t, x.before...)
			if err := j.Close(); err != nil {
				t.Fatal(err)
			}
			j = New(dir)
			if err := x.note(j); err != nil {
				t.Fatal(err)
			}
			for _, what := range []string{"in memory", "after a start"} {
				if got := j.newestOps(t, 0, len(x.want)); !slices.Equal(got, names(x.want...)) {
					t.Errorf("%s: %q", what, got)
				}
				if got := j.newestOps(t, 1, 100); !slices.Equal(got, names(x.want[1:]...)) {
					t.Errorf("%s, from the files: %q", what, got)
				}
				if err := j.Close(); err != nil {
					t.Fatal(err)
				}
				j = New(dir)
			}
		})
	}
}

// Those that are in memory are the newest, without a gap.
func TestEarlierChangesThatDoNotFitIntoMemoryAreInTheFiles(t *testing.T) {
	t.Parallel()
	j := New(t.TempDir())
	defer j.Close()
	const n = 2*recentChanges + 10
	var all, want []int
	var known []driver.Known
	for i := 1; i <= n; i++ {
		known = append(known, at(i+n, int64(i+n)))
	}
	j.mustNote(t, known...)
	if err := j.NoteEarlier([]driver.Known{at(1, 1), at(2, 2)}); err != nil {
		t.Fatal(err)
	}
	for i := 2 * n; i > n; i-- {
		all = append(all, i)
	}
	want = append(all, 2, 1)
	var got []string
	for skip := 0; skip < len(want); skip += 500 {
		got = append(got, j.newestOps(t, skip, 500)...)
	}
	if !slices.Equal(got, names(want...)) {
		t.Errorf("%d of %d; the first that differs: %s", len(got), len(want), firstDifference(got, names(want...)))
	}
}

func firstDifference(a, b []string) string {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return fmt.Sprintf("%d: %s, want %s", i, a[i], b[i])
		}
	}
	return "the length"
}

func TestHowFarTheChangesWereReadOutlivesTheProcessAndASegment(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	j := New(dir)
	j.segment = 2000
	if cursor, err := j.Read(); cursor != "" || err != nil {
		t.Errorf("at first: %q, %v", cursor, err)
	}
	if err := j.NoteRead("a cursor"); err != nil {
		t.Fatal(err)
	}
	j.mustNote(t, announced(1))
	for n := range 100 {
		j.mustNote(t, made(n+10))
	}
	for range 2 {
		if cursor, err := j.Read(); cursor != "a cursor" || err != nil {
			t.Errorf("%q, %v", cursor, err)
		}
		j.wantPending(t, announced(1))
		if err := j.Close(); err != nil {
			t.Fatal(err)
		}
		j = New(dir)
	}
}

func TestTestimoniesOutliveTheProcess(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	j := New(dir)
	word := time.UnixMicro(77).UTC()
	carried := announced(1)
	carried.Word = word
	want := driver.Testimony{Site: "us", Word: word, Given: true, Intents: []driver.Known{carried}}
	if err := j.SetTestimonies([]driver.Testimony{want}); err != nil {
		t.Fatal(err)
	}
	if err := j.SetPolicy(driver.PolicyMark{Policy: driver.Wait, Since: word}); err != nil {
		t.Fatal(err)
	}
	j = New(dir)
	all, err := j.Testimonies()
	if err != nil || len(all) != 1 || all[0].Site != "us" || !all[0].Given || !all[0].Word.Equal(word) || !slices.Equal(all[0].Intents, want.Intents) {
		t.Errorf("%+v, %v", all, err)
	}
	if p, err := j.Policy(); err != nil || p.Policy != driver.Wait || !p.Since.Equal(word) {
		t.Errorf("%+v, %v", p, err)
	}
}
