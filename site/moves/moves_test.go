package moves_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/globalrefdb/globalrefdb/site/moves"
)

const (
	boot = "1b2c"
	who  = "0123456789abcdef0123456789abcdef"
)

// A rig is a directory with a list, which is open.
type rig struct {
	t     *testing.T
	dir   string
	boot  string
	note  string
	limit int64
	log   *moves.Log
	left  []*moves.Begun
}

func newRig(t *testing.T, limit int64) *rig {
	t.Helper()
	r := &rig{t: t, dir: filepath.Join(t.TempDir(), "moves"), boot: boot, note: filepath.Join(t.TempDir(), "note"), limit: limit}
	r.open()
	return r
}

const large = 1 << 20

// open opens the list as the next process would after the previous one was killed.
func (r *rig) open() {
	r.t.Helper()
	var err error
	if r.log, r.left, err = moves.OpenSmall(r.dir, r.boot, r.note, r.limit); err != nil {
		r.t.Fatal(err)
	}
	log := r.log
	r.t.Cleanup(log.Close)
}

// entry returns an entry about a ref of repository /a.
func entry(ref string) moves.Entry { return moves.Entry{Ref: ref, Dir: "/a"} }

func (r *rig) append(refs ...string) {
	r.t.Helper()
	entries := make([]moves.Entry, len(refs))
	for i, ref := range refs {
		entries[i] = entry(ref)
	}
	if err := r.log.Append(entries...); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) end() moves.Place {
	r.t.Helper()
	at, err := r.log.End()
	if err != nil {
		r.t.Fatal(err)
	}
	return at
}

// after returns the refs of all entries after a place.
func (r *rig) after(at moves.Place) (refs []string) {
	r.t.Helper()
	for {
		p, err := r.log.Read(at)
		if err != nil {
			r.t.Fatal(err)
		}
		for _, e := range p.Entries {
			refs = append(refs, e.Ref)
		}
		if p.Next == at {
			return refs
		}
		at = p.Next
	}
}

func (r *rig) has(at moves.Place, want ...string) {
	r.t.Helper()
	if got := r.after(at); !slices.Equal(got, want) {
		r.t.Errorf("the list has %q, want %q", got, want)
	}
}

// resets checks that a place is no longer valid.
func (r *rig) resets(what string, at moves.Place) {
	r.t.Helper()
	if p, err := r.log.Read(at); !errors.Is(err, moves.ErrReset) {
		r.t.Errorf("%s: it reads %+v, %v, want a reset", what, p, err)
	}
}

func (r *rig) begin(refs ...string) *moves.Begun {
	r.t.Helper()
	entries := make([]moves.Entry, len(refs))
	for i, ref := range refs {
		entries[i] = entry(ref)
	}
	b, err := r.log.Begin(entries...)
	if err != nil {
		r.t.Fatal(err)
	}
	return b
}

func TestEntriesAreReadAsTheyWereAppended(t *testing.T) {
	t.Parallel()
	r := newRig(t, large)
	at := r.end()
	want := []moves.Entry{
		{Who: who, Ref: "refs/heads/x", Dir: "/srv/g it/a.git"}, {Ref: "refs/heads/\xff", Dir: "/srv/g it/a.git"},
		{Ref: "HEAD", Dir: "/b"}, {Dir: "/c"},
	}
	for _, some := range [][]moves.Entry{want[:1], want[1:]} {
		if err := r.log.Append(some...); err != nil {
			t.Fatal(err)
		}
	}
	for _, as := range []string{"by the process that appended them", "by the next one"} {
		p, err := r.log.Read(at)
		if err != nil || !slices.Equal(p.Entries, want) || p.Next != r.end() {
			t.Errorf("%s: %+v, %v", as, p, err)
		}
		r.open()
	}
	r.has(r.end())
}

func TestAReaderGoesOnFromItsPlace(t *testing.T) {
	t.Parallel()
	r := newRig(t, large)
	r.append("1")
	at := r.end()
	r.append("2", "3")
	r.has(at, "2", "3")
	r.append("4")
	r.has(at, "2", "3", "4")
	r.open()
	r.append("5")
	r.has(at, "2", "3", "4", "5")
}

func TestAPageHasAnEntryOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t, large)
	at := r.end()
	for range 3 {
		r.append("1", "2", "1")
	}
	if err := r.log.Append(moves.Entry{Who: who, Ref: "1", Dir: "/a"}, moves.Entry{Ref: "1", Dir: "/b"}); err != nil {
		t.Fatal(err)
	}
	p, err := r.log.Read(at)
	want := []moves.Entry{entry("1"), entry("2"), {Who: who, Ref: "1", Dir: "/a"}, {Ref: "1", Dir: "/b"}}
	if err != nil || !slices.Equal(p.Entries, want) || p.Next != r.end() {
		t.Errorf("%+v, %v", p, err)
	}
}

func TestAPageIsBounded(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		n     int
		long  string // what the refs end with
		again int    // how often each is there
		pages int
	}{
		"by entries":      {2500, "", 1, 3},
		"by bytes":        {1000, strings.Repeat("x", 4000), 1, 5},
		"by what is read": {900, strings.Repeat("x", 500), 20, 3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, 64<<20)
			at := r.end()
			var want []string
			for i := range c.n {
				want = append(want, fmt.Sprintf("%d%s", i, c.long))
			}
			for range c.again {
				r.append(want...)
			}
			var got []string
			pages := 0
			for ; ; pages++ {
				p, err := r.log.Read(at)
				if err != nil {
					t.Fatal(err)
				}
				if p.Next == at {
					break
				}
				bytes := 0
				for _, e := range p.Entries {
					bytes += len(e.Ref) + len(e.Dir) + 5
					if len(got) < c.n {
						got = append(got, e.Ref)
					}
				}
				if len(p.Entries) > 1000 || bytes > 1<<20 {
					t.Errorf("a page of %d entries, %d bytes", len(p.Entries), bytes)
				}
				at = p.Next
			}
			if !slices.Equal(got, want) || pages != c.pages {
				t.Errorf("%d pages have %d entries", pages, len(got))
			}
		})
	}
}

func TestAnAppendIsOneWrite(t *testing.T) {
	t.Parallel()
	r := newRig(t, large)
	writes, err := r.log.Writes()
	if err != nil {
		t.Fatal(err)
	}
	r.append("1", "2", "3")
	b := r.begin("4", "5")
	if err := b.End(); err != nil {
		t.Fatal(err)
	}
	if n := writes(); n != 3 {
		t.Errorf("%d writes, want 3", n)
	}
	r.append()
	if n := writes(); n != 3 {
		t.Errorf("an append of nothing is %d writes", n-3)
	}
}

// Begun moves are in the list's files at once, but readers get them only when they have ended.
// Until then the next process inherits them.
func TestBegunMovesAreListedWhenTheyHaveEnded(t *testing.T) {
	t.Parallel()
	r := newRig(t, large)
	at := r.end()
	first, second := r.begin("1", "2"), r.begin("3")
	r.append("5")
	r.has(at, "5")
	for range 2 { // the second call does nothing
		if err := first.End(); err != nil {
			t.Fatal(err)
		}
	}
	r.has(at, "5", "1", "2")
	r.open()
	if len(r.left) != 1 || !slices.Equal(r.left[0].Refs()["/a"], []string{"3"}) {
		t.Fatalf("%d are left, want 1", len(r.left))
	}
	r.has(at, "5", "1", "2")
	next := r.begin("6")
	if err := errors.Join(r.left[0].End(), next.End()); err != nil {
		t.Fatal(err)
	}
	r.has(at, "5", "1", "2", "3", "6")
	_ = second // its process was killed
	if r.open(); len(r.left) > 0 {
		t.Errorf("%d are left", len(r.left))
	}
}

func TestDroppedMovesAreNeitherListedNorLeft(t *testing.T) {
	t.Parallel()
	r := newRig(t, large)
	at, count := r.end(), r.log.Count()
	for range 2 { // the second call does nothing
		if err := r.begin("1").Drop(); err != nil {
			t.Fatal(err)
		}
	}
	if n := r.log.Count(); n != count {
		t.Errorf("%d entries were counted", n-count)
	}
	r.append("2")
	r.has(at, "2")
	if r.open(); len(r.left) > 0 {
		t.Errorf("%d are left", len(r.left))
	}
}

// files returns the paths of the segments.
func (r *rig) files() []string {
	r.t.Helper()
	all, err := filepath.Glob(filepath.Join(r.dir, "*"))
	if err != nil {
		r.t.Fatal(err)
	}
	return all
}

func (r *rig) text() string {
	r.t.Helper()
	text, err := os.ReadFile(r.files()[0])
	if err != nil {
		r.t.Fatal(err)
	}
	return string(text)
}

// replace replaces the text of the first segment.
func (r *rig) replace(change func(string) string) {
	r.t.Helper()
	path := r.files()[0]
	text, err := os.ReadFile(path)
	if err == nil {
		err = os.WriteFile(path, []byte(change(string(text))), 0o600)
	}
	if err != nil {
		r.t.Fatal(err)
	}
}

func TestAnInvalidPlaceResetsItsReader(t *testing.T) {
	t.Parallel()
	r := newRig(t, large)
	// The directory's name contains text that looks like an entry.
	if err := r.log.Append(moves.Entry{Ref: "0", Dir: "/a moved 1 - x /b"}); err != nil {
		t.Fatal(err)
	}
	inner := strings.Index(r.text(), "moved 1 - x")
	r.append("1", "2")
	at := string(r.end())
	epoch, _, _ := strings.Cut(at, "-")
	for _, place := range []string{"", "x", "x-1-0", epoch, epoch + "-1", epoch + "-1-x", epoch + "-x-0", epoch + "-2-0", epoch + "-1--1", epoch + "-1-1", epoch + "-1-100000", at + "-1", fmt.Sprintf("%s-1-%d", epoch, inner)} {
		r.resets(place, moves.Place(place))
	}
	r.has(moves.Place(epoch+"-1-0"), "0", "1", "2")
}

func TestEntriesOlderThanTwoSegmentsAreRemoved(t *testing.T) {
	t.Parallel()
	r := newRig(t, 500)
	places := []moves.Place{r.end()}
	b := r.begin("begun")
	gone := 0
	for i := range 100 {
		r.append(fmt.Sprintf("refs/%d", i))
		places = append(places, r.end())
		if n := len(r.files()); n > 2 {
			t.Fatalf("%d segments", n)
		}
		if i%10 == 0 {
			r.open() // the next process
			if len(r.left) != 1 || !slices.Equal(r.left[0].Refs()["/a"], []string{"begun"}) {
				t.Fatalf("after %d entries %d are left", i, len(r.left))
			}
			b = r.left[0]
		}
	}
	for i, at := range places {
		if p, err := r.log.Read(at); errors.Is(err, moves.ErrReset) {
			if gone++; gone != i+1 {
				t.Fatalf("place %d is gone, an earlier one is not", i)
			}
		} else if err != nil || len(r.after(at)) != len(places)-1-i {
			t.Fatalf("after place %d: %+v, %v", i, p, err)
		}
	}
	if gone == 0 || gone == len(places) {
		t.Errorf("%d of %d places are gone", gone, len(places))
	}
	at := r.end()
	if err := b.End(); err != nil {
		t.Fatal(err)
	}
	r.has(at, "begun")
}

// Moves in progress are repeated at the beginning of a segment. However many they are, a few more
// lines must not begin another segment: places would expire at once, and each line would cost as
// much as all moves in progress.
func TestMovesInProgressMayExceedASegment(t *testing.T) {
	t.Parallel()
	r := newRig(t, 500)
	var refs []string
	for i := range 50 {
		refs = append(refs, fmt.Sprintf("refs/large/%d", i))
	}
	b := r.begin(refs...)
	r.append("first") // in a segment after that
	at := r.end()
	for _, reopened := range []bool{false, true} {
		if reopened {
			r.open()
			b = r.left[0]
		}
		before := r.files()
		r.append("second")
		r.append("third")
		if after := r.files(); !slices.Equal(before, after) {
			t.Errorf("reopened %v: segments %v, then %v", reopened, before, after)
		}
	}
	if err := b.End(); err != nil {
		t.Fatal(err)
	}
	r.has(at, append([]string{"second", "third"}, refs...)...)
}

func TestAReaderWaitsForNewEntries(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, large)
		b := r.begin("1")
		at := r.end()
		waits := func(happens func() error) {
			t.Helper()
			returned := false
			go func() { r.log.Wait(context.Background(), at); returned = true }()
			if synctest.Wait(); returned {
				t.Error("the reader has not waited")
			}
			if err := happens(); err != nil {
				t.Fatal(err)
			}
			if synctest.Wait(); !returned {
				t.Fatal("it waits on")
			}
			at, _ = r.log.End()
		}
		waits(func() error { return r.log.Append(entry("2")) })
		waits(b.End)
		waits(func() error { r.log.FillDisk(); r.log.Append(entry("3")); return nil })
		if err := r.log.Restore(); err != nil {
			t.Fatal(err)
		}
		at = r.end()
		waits(func() error { r.log.Close(); return nil })
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		r.open()
		r.log.Wait(ctx, r.end())
		if ctx.Err() == nil {
			t.Error("the reader has not waited until its context ended")
		}
	})
}

func TestEntriesThatNoLineCanHoldAreOmitted(t *testing.T) {
	t.Parallel()
	r := newRig(t, large)
	at := r.end()
	err := r.log.Append(entry("1"), entry("a b"), entry("a\nb"), moves.Entry{Ref: "2", Dir: "/a\nmoved 1 - 3 /b"}, moves.Entry{Ref: "4", Dir: "a"}, entry("5"))
	if err != nil {
		t.Fatal(err)
	}
	r.has(at, "1", "5")
	r.open()
	r.has(at, "1", "5")
}

func TestHowMuchIsUnread(t *testing.T) {
	t.Parallel()
	r := newRig(t, 150)
	at := r.end()
	unread := func(what string, atLeast int64) {
		t.Helper()
		before := time.Now()
		size, oldest, known := r.log.Unread(at)
		if !known || size < atLeast || (size == 0) != (atLeast == 0) {
			t.Errorf("%s: %d bytes are unread, %v, want at least %d", what, size, known, atLeast)
		}
		if size > 0 && (oldest.After(before) || oldest.Before(before.Add(-time.Minute))) {
			t.Errorf("%s: the oldest is of %s", what, oldest)
		}
	}
	unread("nothing", 0)
	b := r.begin("1")
	unread("what has not ended", 0)
	r.append("2")
	unread("one", 10)
	b.End()
	r.append("3")
	unread("more, in another segment", 30)
	for range 3 {
		r.append("4", "5", "6")
	}
	if _, _, known := r.log.Unread(at); known {
		t.Error("it is known what has gone")
	}
	at = r.end()
	unread("all is read", 0)
}
