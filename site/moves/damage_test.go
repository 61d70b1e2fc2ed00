package moves_test

import (
	"bytes"
	"os"
	"slices"
	"testing"
)

// A list has no checksums. If a byte has changed, either a new epoch begins, or only one line is
// read differently, or two lines if the byte was between them.
func TestAByteThatHasChanged(t *testing.T) {
	t.Parallel()
	r := newRig(t, 100)
	start := r.end()
	r.append("one", "two")
	b := r.begin("begun")
	r.append("three") // begins a segment
	if err := b.End(); err != nil {
		t.Fatal(err)
	}
	want := r.after(start)
	r.log.Close()
	files := map[string][]byte{}
	for _, path := range r.files() {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		files[path] = text
	}
	if len(files) != 2 {
		t.Fatalf("%d segments, want 2", len(files))
	}
	read := 0
	for path, text := range files {
		for i := range text {
			for _, flip := range []byte{1, text[i] ^ '\n'} {
				r.restoreFiles(files)
				changed := bytes.Clone(text)
				if changed[i] ^= flip; bytes.Equal(changed, text) {
					continue
				}
				r.write(path, changed)
				r.open()
				allowed := 1
				if text[i] == '\n' {
					allowed = 2
				}
				if r.log.IsNew() {
					r.resets("the old place", start)
				} else if got := r.after(start); lost(got, want) <= allowed && len(got) <= len(want) {
					read++
				} else {
					t.Fatalf("byte %d of %s became %q: it has %q, want %q", i, path, changed[i], got, want)
				}
				at := r.end()
				r.append("later")
				r.has(at, "later")
				r.log.Close()
			}
		}
	}
	if read == 0 {
		t.Error("no change of a byte within a name was tried")
	}
}

// lost counts the elements of want that are not in got.
func lost(got, want []string) (n int) {
	for _, one := range want {
		if !slices.Contains(got, one) {
			n++
		}
	}
	return n
}

// restoreFiles restores the list's files.
func (r *rig) restoreFiles(files map[string][]byte) {
	r.t.Helper()
	for _, path := range r.files() {
		if files[path] == nil {
			if err := os.Remove(path); err != nil {
				r.t.Fatal(err)
			}
		}
	}
	for path, text := range files {
		r.write(path, text)
	}
}

func (r *rig) write(path string, text []byte) {
	r.t.Helper()
	if err := os.WriteFile(path, slices.Clone(text), 0o600); err != nil {
		r.t.Fatal(err)
	}
}
