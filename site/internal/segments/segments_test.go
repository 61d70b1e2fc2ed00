package segments

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/globalrefdb/globalrefdb/site/internal/disktest"
	"github.com/globalrefdb/globalrefdb/site/internal/durable"
)

// layouts are the ways to name segments, in a directory.
var layouts = map[string]func(dir string) Layout{
	"numbered": func(dir string) Layout { return Numbered{dir} },
	"a pair":   func(dir string) Layout { return Pair{filepath.Join(dir, "older"), filepath.Join(dir, "newer")} },
}

func forEachLayout(t *testing.T, test func(t *testing.T, layout Layout)) {
	for name, in := range layouts {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, in(t.TempDir()))
		})
	}
}

const large = 1 << 20

// open opens a log, and returns the lines that it has.
func open(t *testing.T, layout Layout, limit int64) (*Log, []string) {
	t.Helper()
	var lines []string
	l, err := Open(layout, limit, func(s Segment) (int64, error) {
		some, err := linesOf(s)
		lines = append(lines, some...)
		return 0, err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l, lines
}

// create makes a log that has some lines.
func create(t *testing.T, layout Layout, limit int64, lines ...string) *Log {
	t.Helper()
	if paths, err := layout.Paths(); err != nil {
		t.Fatal(err)
	} else if len(paths) == 0 {
		l, err := Create(layout, limit, nil)
		if err != nil {
			t.Fatal(err)
		}
		l.Close()
	}
	l, _ := open(t, layout, limit)
	if len(lines) > 0 {
		mustAppend(t, l, lines...)
	}
	return l
}

func text(lines ...string) (b []byte) {
	for _, line := range lines {
		b = append(append(b, line...), '\n')
	}
	return b
}

func linesOf(s Segment) (lines []string, err error) {
	_, err = s.Scan(0, func(line []byte) bool {
		lines = append(lines, string(line))
		return true
	})
	return lines, err
}

func nothing() []byte { return nil }

func mustAppend(t *testing.T, l *Log, lines ...string) {
	t.Helper()
	if err := l.Append(text(lines...), nothing); err != nil {
		t.Fatal(err)
	}
}

// has checks the lines of all segments.
func has(t *testing.T, l *Log, want ...string) {
	t.Helper()
	var got []string
	for _, s := range l.Segments() {
		lines, err := linesOf(s)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, lines...)
	}
	if !slices.Equal(got, want) {
		t.Errorf("the log has %q, want %q", got, want)
	}
}

func TestALogThatIsNotThere(t *testing.T) {
	if _, err := Open(layouts["numbered"](t.TempDir()), large, nil); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	l, lines := open(t, layouts["a pair"](t.TempDir()), large)
	if len(lines) > 0 {
		t.Errorf("it has %q", lines)
	}
	mustAppend(t, l, "one")
	has(t, l, "one")
}

// A killed process may have written any part of its last append.
func TestTheTailMayBreakOffAnywhere(t *testing.T) {
	forEachLayout(t, func(t *testing.T, layout Layout) {
		first := create(t, layout, large)
		mustAppend(t, first, "one", "", "three")
		mustAppend(t, first, strings.Repeat("x", 100_000))
		path := first.Last().Path
		whole, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range slices.Concat(upTo(20), []int{20, 40_000, 65_530, len(whole) - 1, len(whole)}) {
			if err := os.WriteFile(path, whole[:n], 0o600); err != nil {
				t.Fatal(err)
			}
			complete := strings.Split(string(whole[:n]), "\n")
			complete = complete[:len(complete)-1]
			l, lines := open(t, layout, large)
			if !slices.Equal(lines, complete) {
				t.Fatalf("after %d bytes it has %d lines, want %d", n, len(lines), len(complete))
			}
			mustAppend(t, l, "later")
			l.Close()
			if _, lines = open(t, layout, large); !slices.Equal(lines, append(complete, "later")) {
				t.Fatalf("after %d bytes and an append it has %d lines", n, len(lines))
			}
		}
	})
}

func upTo(n int) (all []int) {
	for i := range n {
		all = append(all, i)
	}
	return all
}

// Whatever a file holds, it is a log of the lines in it.
func FuzzOpen(f *testing.F) {
	f.Add([]byte("one\ntwo\nthr"), 3)
	f.Add([]byte("\n\n\x00\x00"), 0)
	f.Add(bytes.Repeat([]byte("x"), 70_000), 1<<16)
	f.Fuzz(func(t *testing.T, content []byte, at int) {
		layout := Numbered{t.TempDir()}
		write(t, filepath.Join(layout.Dir, "0000000000000001"), string(content))
		l, lines := open(t, layout, large)
		complete := content[:bytes.LastIndexByte(content, '\n')+1]
		if !bytes.Equal(text(lines...), complete) {
			t.Fatalf("%q has the lines %q", content, lines)
		}
		mustAppend(t, l, "later")
		has(t, l, append(lines, "later")...)
		// An offset is one of a line, or none.
		offset := int64(min(max(at, 0), len(complete)))
		_, err := l.Last().Scan(offset, func([]byte) bool { return false })
		if begins := offset == 0 || complete[offset-1] == '\n'; begins != (err == nil) || err != nil && !errors.Is(err, ErrDamaged) {
			t.Errorf("at %d: %v", offset, err)
		}
	})
}

func TestALogKeepsTwoSegments(t *testing.T) {
	forEachLayout(t, func(t *testing.T, layout Layout) {
		l := create(t, layout, 20)
		for i := range 40 {
			mustAppend(t, l, fmt.Sprintf("line %02d", i)) // 8 bytes
			if n := len(l.Segments()); n > 2 {
				t.Fatalf("%d segments", n)
			}
			if i%7 == 0 {
				l.Close()
				l, _ = open(t, layout, 20)
			}
		}
		has(t, l, "line 36", "line 37", "line 38", "line 39")
		paths, err := filepath.Glob(filepath.Join(filepath.Dir(l.Last().Path), "*"))
		if err != nil || len(paths) != 2 {
			t.Errorf("files %q, %v", paths, err)
		}
	})
}

// What a segment repeats is not counted: otherwise each append would begin a segment.
func TestAnythingMayBeRepeated(t *testing.T) {
	forEachLayout(t, func(t *testing.T, layout Layout) {
		long := strings.Repeat("x", 100)
		l := create(t, layout, 20)
		mustAppend(t, l, long)
		repeats := 0
		again := func() []byte { repeats++; return text(long) }
		for _, line := range []string{"1", "2", "3"} {
			if err := l.Append(text(line), again); err != nil {
				t.Fatal(err)
			}
		}
		has(t, l, long, long, "1", "2", "3")
		l.Close()
		l, err := Open(layout, 20, func(s Segment) (int64, error) { return int64(len(long) + 1), nil })
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		if err := l.Append(text("4"), again); err != nil || repeats != 1 {
			t.Errorf("%v, a segment has begun %d times, want once", err, repeats)
		}
	})
}

// killedAt are the states of the files that a process leaves that is killed while it begins a
// segment with "three". There were segments with "one" and "two".
var killedAt = map[string]struct {
	kill func(t *testing.T, layout Layout)
	want []string
}{
	"while it writes the file": {func(t *testing.T, layout Layout) {
		write(t, layout.Unfinished(), "th")
	}, []string{"one", "two"}},
	"before the file has its name": {func(t *testing.T, layout Layout) {
		write(t, layout.Unfinished(), "three\n")
	}, []string{"one", "two"}},
	"before the oldest has gone": {func(t *testing.T, layout Layout) {
		write(t, layout.Unfinished(), "three\n")
		switch l := layout.(type) {
		case Numbered:
			rename(t, l.Unfinished(), filepath.Join(l.Dir, "0000000000000003"))
		case Pair:
			rename(t, l.Newer, l.Older)
		}
	}, []string{"two", "three"}},
	"at the end": {func(t *testing.T, layout Layout) {
		write(t, layout.Unfinished(), "three\n")
		if err := layout.Add(); err != nil {
			t.Fatal(err)
		}
	}, []string{"two", "three"}},
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

func rename(t *testing.T, from, to string) {
	t.Helper()
	if err := os.Rename(from, to); err != nil {
		t.Fatal(err)
	}
}

func TestAProcessThatIsKilledWhileASegmentBegins(t *testing.T) {
	for when, c := range killedAt {
		t.Run(when, func(t *testing.T) {
			forEachLayout(t, func(t *testing.T, layout Layout) {
				l := create(t, layout, 1, "one")
				mustAppend(t, l, "two")
				l.Close()
				c.kill(t, layout)
				l, lines := open(t, layout, 1)
				if !slices.Equal(lines, c.want) {
					t.Fatalf("it has %q, want %q", lines, c.want)
				}
				mustAppend(t, l, "later")
				has(t, l, c.want[1], "later")
				if paths, err := filepath.Glob(filepath.Join(filepath.Dir(l.Last().Path), "*")); err != nil || len(paths) != 2 {
					t.Errorf("files %q, %v", paths, err)
				}
			})
		})
	}
}

// An earlier release may have been killed after it renamed the newer segment.
func TestAPairWithoutItsNewerSegment(t *testing.T) {
	layout := layouts["a pair"](t.TempDir()).(Pair)
	write(t, layout.Older, "one\n")
	l, lines := open(t, layout, large)
	if !slices.Equal(lines, []string{"one"}) {
		t.Errorf("it has %q", lines)
	}
	mustAppend(t, l, "two")
	has(t, l, "one", "two")
}

func TestAnAppendThatFails(t *testing.T) {
	full := func(t *testing.T) *os.File {
		f, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	forEachLayout(t, func(t *testing.T, layout Layout) {
		l := create(t, layout, large, "one")
		l.out.Close()
		l.out = full(t) // it can't be truncated either
		if err := l.Append(text("two"), nothing); !errors.Is(err, ErrReopen) {
			t.Errorf("an append that can't be undone: %v", err)
		}
		l.Close()
		l, _ = open(t, layout, large)
		mustAppend(t, l, "two")
		l.limit = 1
		if err := os.Mkdir(layout.Unfinished(), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := l.Append(text("three"), nothing); err == nil || errors.Is(err, ErrReopen) {
			t.Errorf("a segment that can't begin: %v", err)
		}
		has(t, l, "one", "two")
		if err := os.Remove(layout.Unfinished()); err != nil {
			t.Fatal(err)
		}
		mustAppend(t, l, "three")
		has(t, l, "one", "two", "three")
	})
}

func TestASegmentThatHasChanged(t *testing.T) {
	forEachLayout(t, func(t *testing.T, layout Layout) {
		l := create(t, layout, large, "one", "two")
		s := l.Last()
		if err := os.Truncate(s.Path, 6); err != nil {
			t.Fatal(err)
		}
		if lines, err := linesOf(s); !errors.Is(err, ErrDamaged) || len(lines) != 1 {
			t.Errorf("%q, %v", lines, err)
		}
		if err := os.Remove(s.Path); err != nil {
			t.Fatal(err)
		}
		if _, err := linesOf(s); !errors.Is(err, fs.ErrNotExist) {
			t.Error(err)
		}
	})
}

// A Pair loses nothing that the log has when the older segment goes: neither what was repeated, nor the segment before.
// The disk may have the new names before it has what is in the files.
func TestACrashOfTheMachineWhenASegmentHasBegun(t *testing.T) {
	disk := disktest.New(t)
	three, four := strings.Repeat("3", 8000), strings.Repeat("4", 2000)
	layout := Pair{filepath.Join(disk.Dir, "older"), filepath.Join(disk.Dir, "newer")}
	write(t, layout.Older, "one\n")
	write(t, layout.Newer, "two\n")
	other := filepath.Join(disk.Dir, "other")
	write(t, other, "")
	disk.Sync()
	l, _ := open(t, layout, 9000)
	mustAppend(t, l, three)
	if err := l.Append(text(four), func() []byte { return text("one") }); err != nil {
		t.Fatal(err)
	}
	write(t, other, "x")
	if err := durable.SyncFile(other); err != nil { // this commits the names
		t.Fatal(err)
	}
	crashed := disk.Crashed()
	_, lines := open(t, Pair{filepath.Join(crashed, "older"), filepath.Join(crashed, "newer")}, 9000)
	if want := []string{"two", three, "one", four}; !slices.Equal(lines, want) {
		t.Errorf("after the crash it has %d lines, %.10q, want %d", len(lines), lines, len(want))
	}
}
