package sqlite

import (
	"context"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestAnAddressNamesAFile(t *testing.T) {
	wd, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for in, want := range map[string]string{
		"sqlite:/a/b.db":                      "/a/b.db",
		"sqlite:///a/b.db":                    "/a/b.db",
		"sqlite:////a/b.db":                   "/a/b.db",
		"sqlite:/a/../b.db":                   "/b.db",
		"sqlite:b.db":                         wd + "/b.db",
		"sqlite:./b.db":                       wd + "/b.db",
		"sqlite:a/b.db":                       wd + "/a/b.db",
		"SQLite:b.db":                         wd + "/b.db",
		"sqlite:a b.db":                       wd + "/a b.db",
		"sqlite:a%20b.db":                     wd + "/a b.db",
		"sqlite:a+b.db":                       wd + "/a+b.db",
		"sqlite:100%25.db":                    wd + "/100%.db",
		"sqlite:what%3F.db":                   wd + "/what?.db",
		"sqlite:%231.db":                      wd + "/#1.db",
		"sqlite:datenbank-ü-日本.db":            wd + "/datenbank-ü-日本.db",
		"sqlite:%ff.db":                       wd + "/\xff.db",
		"sqlite:file:b.db":                    wd + "/file:b.db",
		"sqlite:b&c=d.db":                     wd + "/b&c=d.db",
		"sqlite:/a/b.db?":                     "/a/b.db",
		"sqlite:/a/b.db?synchronous=full":     "/a/b.db",
		"sqlite:/a/b.db?synchronous=n%6Frmal": "/a/b.db",
	} {
		a, err := parse(in)
		if err != nil {
			t.Errorf("%s: %v", in, err)
		} else if a.path != want {
			t.Errorf("%s names %q, want %q", in, a.path, want)
		}
	}
}

func TestSynchronousIsFullUnlessTheAddressSaysNormal(t *testing.T) {
	for in, want := range map[string]string{
		"sqlite:/a": "full", "sqlite:/a?": "full", "sqlite:/a?synchronous=full": "full", "sqlite:/a?synchronous=normal": "normal",
	} {
		if a, err := parse(in); err != nil || a.synchronous != want {
			t.Errorf("%s: %q, %v, want %q", in, a.synchronous, err, want)
		}
	}
}

func TestAnInvalidAddressIsRefusedWithARemedy(t *testing.T) {
	const usage = "the only parameter is synchronous, full or normal, given once"
	for in, want := range map[string]string{
		"":                                    "want sqlite:FILE",
		"/a/b.db":                             "want sqlite:FILE",
		"postgres://host/db":                  "want sqlite:FILE",
		"sqlite":                              "want sqlite:FILE",
		"sqlite:":                             "no file is named: write sqlite:FILE",
		"sqlite:?synchronous=full":            "no file is named: write sqlite:FILE",
		"sqlite://":                           "what follows // would be a host: write sqlite:FILE, or sqlite:///FILE for an absolute path",
		"sqlite://b.db":                       "what follows // would be a host: write sqlite:FILE, or sqlite:///FILE for an absolute path",
		"sqlite://localhost/b.db":             "what follows // would be a host: write sqlite:FILE, or sqlite:///FILE for an absolute path",
		"sqlite:///":                          "it names a directory, not a file",
		"sqlite:/a/":                          "it names a directory, not a file",
		"sqlite::memory:":                     "a database in memory is not shared with other processes: name a file",
		"sqlite:%3Amemory%3A":                 "a database in memory is not shared with other processes: name a file",
		"sqlite:a#b":                          "write # as %23 in a file's name",
		"sqlite:100%":                         "write % as %25 in a file's name",
		"sqlite:100%zz":                       "write % as %25 in a file's name",
		"sqlite:a%00b":                        "a file's name can't hold a NUL byte",
		"sqlite:/" + strings.Repeat("a", 600): "the path has 601 bytes, at most 504 are possible",
		"sqlite:/a?mode=memory":               "mode=memory: " + usage,
		"sqlite:/a?_pragma=x":                 "_pragma=x: " + usage,
		"sqlite:/a?synchronous=off":           "synchronous=off: " + usage,
		"sqlite:/a?synchronous=":              "synchronous=: " + usage,
		"sqlite:/a?synchronous=FULL":          "synchronous=FULL: " + usage,
		"sqlite:/a?synchronous=full&synchronous=normal": "synchronous=full,normal: " + usage,
		"sqlite:/a?synchronous=full;x=y":                usage,
		"sqlite:/a?synchronous=%zz":                     usage,
		"sqlite:/a?b?synchronous=full":                  "b?synchronous=full: " + usage,
	} {
		_, err := parse(in)
		if err == nil || !strings.HasSuffix(err.Error(), ": "+want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want … %s", in, err, want)
		}
	}
}

// The path that parse returns must be the path that SQLite opens.
func TestFilesOfEveryNameAreOpened(t *testing.T) {
	for _, name := range []string{
		"plain.db", "with space.db", "100%.db", "%41.db", "what?.db", "a?mode=memory", "#1.db", "a#b.db", "a&b=c;d.db", "a+b.db",
		"ü-日本-🚀.db", "e\u0301.db", "\xff\xfe.db", "file:x.db", ":memory", "it's \"quoted\".db", "new\nline.db", "back\\slash.db", "-", "~", "$HOME",
	} {
		dir := t.TempDir()
		m, err := Migrator(t.Context(), "sqlite:"+escape(filepath.Join(dir, name)))
		if err != nil {
			t.Errorf("%q: %v", name, err)
			continue
		}
		if err := m.Up(t.Context()); err != nil {
			t.Errorf("%q: %v", name, err)
		}
		entries, _ := os.ReadDir(dir)
		for _, entry := range entries {
			if entry.Name() != name && entry.Name() != name+"-wal" && entry.Name() != name+"-shm" {
				t.Errorf("%q: found a file %q", name, entry.Name())
			}
		}
		if len(entries) == 0 {
			t.Errorf("%q: found no file", name)
		}
		if err := m.Close(); err != nil {
			t.Errorf("%q: %v", name, err)
		}
		d, err := Open(t.Context(), "sqlite:"+escape(filepath.Join(dir, name)))
		if err != nil {
			t.Errorf("%q: %v", name, err)
			continue
		}
		if err := d.Close(); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
}

func TestTheLongestPathCanBeOpened(t *testing.T) {
	path := t.TempDir()
	for len(path) < maxPath {
		path += "/" + strings.Repeat("x", min(200, maxPath-len(path)-1))
		if maxPath-len(path) == 1 {
			path += "y"
		}
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		t.Fatal(err)
	}
	m, err := Migrator(t.Context(), "sqlite:"+path)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if err := m.Up(t.Context()); err != nil {
		t.Fatal(err)
	}
	d, err := Open(t.Context(), "sqlite:"+path)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if err := d.Forget(context.Background(), nil); err != nil {
		t.Error(err)
	}
}

func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		"sqlite:/a/b.db", "sqlite:a b%20%3F%23.db?synchronous=normal", "sqlite:///x", "sqlite://h/x", "sqlite:?", "sqlite:%",
		"sqlite::memory:", "sqlite:a#b", "sqlite:/a?synchronous=full&synchronous=full", "sqlite:%00", "sqlite:\xff",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, in string) {
		a, err := parse(in)
		if err != nil {
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("%q: an error of several lines: %v", in, err)
			}
			return
		}
		if !filepath.IsAbs(a.path) || filepath.Clean(a.path) != a.path || strings.Contains(a.path, "\x00") || len(a.path) > maxPath {
			t.Errorf("%q names %q", in, a.path)
		}
		if a.synchronous != "full" && a.synchronous != "normal" {
			t.Errorf("%q has synchronous=%q", in, a.synchronous)
		}
		// Formatted again, it is the same address.
		again, err := parse("sqlite:" + escape(a.path) + "?synchronous=" + a.synchronous)
		if err != nil || again != a {
			t.Errorf("%q is %v, but formatted again it is %v, %v", in, a, again, err)
		}
		if _, err := a.connector("rw", 0); err != nil {
			t.Errorf("%q: %v", in, err)
		}
	})
}

// escape formats a path for an address.
func escape(path string) string { return (&url.URL{Path: path}).EscapedPath() }
