package durable

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/globalrefdb/globalrefdb/site/internal/disktest"
)

type content struct {
	Names []string `json:"names"`
}

func mustSave(t *testing.T, s State, names ...string) {
	t.Helper()
	if err := s.Save(content{names}); err != nil {
		t.Fatal(err)
	}
}

// has checks what a file of the state holds.
func has(t *testing.T, s State, names ...string) {
	t.Helper()
	var c content
	if found, err := s.Load(&c); err != nil || !found || !slices.Equal(c.Names, names) {
		t.Errorf("it has %q, %v, %v, want %q", c.Names, found, err, names)
	}
}

// alone checks that there is no other file.
func alone(t *testing.T, path string) {
	t.Helper()
	all, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(all) != 1 || all[0].Name() != filepath.Base(path) {
		t.Errorf("there are %v, %v", all, err)
	}
}

func TestAStateIsLoadedAsItWasSaved(t *testing.T) {
	s := In(t.TempDir(), "file")
	c := content{[]string{"before"}}
	if found, err := s.Load(&c); found || err != nil || c.Names[0] != "before" {
		t.Errorf("of no file: %v, %v, %v", found, err, c)
	}
	for _, names := range [][]string{{"a", "b"}, {"é\n"}, nil} {
		mustSave(t, s, names...)
		has(t, s, names...)
	}
	info, err := os.Stat(string(s))
	if err != nil || info.Mode() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	if text, found, err := s.LoadText(); text != "{\"names\":null}\n" || !found || err != nil {
		t.Errorf("%q, %v, %v", text, found, err)
	}
	alone(t, string(s))
}

// An empty file is damaged: it is no sign that this is the first start.
func TestDamagedState(t *testing.T) {
	s := In(t.TempDir(), "file")
	for _, text := range []string{"", "{", "\x00\x00", `{"names":[1]}`, `{"names":[]} x`} {
		if err := s.SaveText(text); err != nil {
			t.Fatal(err)
		}
		found, err := s.Load(new(content))
		if !found || err == nil || !strings.Contains(err.Error(), "the daemon's state is damaged: "+string(s)+": ") {
			t.Errorf("%q: %v, %v", text, found, err)
		}
	}
	if err := errors.Join(os.Remove(string(s)), os.Mkdir(string(s), 0o700)); err != nil {
		t.Fatal(err)
	}
	if found, err := s.Load(new(content)); found || err == nil || !strings.Contains(err.Error(), string(s)) {
		t.Errorf("a directory: %v, %v", found, err)
	}
}

// A process may be killed after any byte of the new file, and before it has its name.
func TestAProcessThatWasKilledWhileItSaved(t *testing.T) {
	s := In(t.TempDir(), "file")
	next, err := json.Marshal(content{[]string{"new", "one"}})
	if err != nil {
		t.Fatal(err)
	}
	for n := range len(next) + 1 {
		mustSave(t, s, "old")
		if err := os.WriteFile(string(s)+".new", next[:n], 0o600); err != nil {
			t.Fatal(err)
		}
		has(t, s, "old")
		mustSave(t, s, "x")
		has(t, s, "x")
		alone(t, string(s))
	}
}

// writers replace the file at a path.
var writers = map[string]func(path, text string) error{
	"State":     func(path, text string) error { return State(path).SaveText(text) },
	"WriteFile": func(path, text string) error { return WriteFile(path, []byte(text), 0o644) },
	"Rewrite":   func(path, text string) error { return Rewrite(path, []byte(text)) },
}

func TestAFileThatCanNotBeReplaced(t *testing.T) {
	for name, write := range writers {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "file")
			if err := os.WriteFile(path, []byte("old"), 0o640); err != nil {
				t.Fatal(err)
			}
			// Package testing may write a file meanwhile, which is far smaller.
			lift := limitFileSize(t, 1<<20)
			err := write(path, strings.Repeat("x", 2<<20))
			lift()
			if text, readErr := os.ReadFile(path); err == nil || readErr != nil || string(text) != "old" {
				t.Errorf("there was no room: %v; it has %q, %v", err, text, readErr)
			}
			alone(t, path)
			if err := errors.Join(os.Remove(path), os.MkdirAll(filepath.Join(path, "x"), 0o755)); err != nil {
				t.Fatal(err)
			}
			if err := write(path, "new"); err == nil {
				t.Error("a directory with something in it was replaced")
			}
			alone(t, path)
		})
	}
}

// limitFileSize bounds the files that this process writes, until lift is called.
func limitFileSize(t *testing.T, bytes uint64) (lift func()) {
	t.Helper()
	var was unix.Rlimit
	err := unix.Getrlimit(unix.RLIMIT_FSIZE, &was)
	if err == nil {
		err = unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: bytes, Max: was.Max})
	}
	if err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &was); err != nil {
			t.Fatal(err)
		}
	}
}

func TestARewrittenFileKeepsItsModeAndOwner(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte("old"), 0o604); err != nil {
		t.Fatal(err)
	}
	uid := uint32(os.Geteuid())
	if uid == 0 {
		uid = 12345
		if err := os.Chown(path, int(uid), 0); err != nil {
			t.Fatal(err)
		}
	}
	if err := Rewrite(path, []byte("new")); err != nil {
		t.Fatal(err)
	}
	var is unix.Stat_t
	if err := unix.Stat(path, &is); err != nil || is.Mode&0o777 != 0o604 || is.Uid != uid {
		t.Errorf("mode %o, owner %d, %v", is.Mode&0o777, is.Uid, err)
	}
	if err := Rewrite(path+"x", nil); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file that is not there: %v", err)
	}
}

// What was replaced is on the disk when the call returns: its content, and its name.
func TestACrashOfTheMachine(t *testing.T) {
	for name, write := range writers {
		t.Run(name, func(t *testing.T) {
			disk := disktest.New(t)
			path := filepath.Join(disk.Dir, "file")
			if err := os.WriteFile(path, []byte("old"), 0o644); err != nil {
				t.Fatal(err)
			}
			disk.Sync()
			if err := write(path, "new"); err != nil {
				t.Fatal(err)
			}
			text, err := os.ReadFile(filepath.Join(disk.Crashed(), "file"))
			if err != nil || string(text) != "new" {
				t.Errorf("after the crash it has %q, %v", text, err)
			}
		})
	}
}
