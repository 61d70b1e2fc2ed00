//go:build linux

package gitrepo_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/globalrefdb/globalrefdb/internal/testprogram"
)

// A pack of a few bytes may stand for any number of them: the git that unpacks it is bound before it gets the first.
func TestUnpackingIsBound(t *testing.T) {
	dir, first := newRepo(t, "--bare")
	pack := packOf(t, openDir(t, dir), []string{first}, nil)
	repo := openDir(t, dir)
	bin := t.TempDir()
	said := filepath.Join(bin, "said")
	script := "#!/bin/sh\nread -r first\ngrep -E 'Max (data size|cpu time|file size)' /proc/$$/limits | sed 's/   */ /g; s/ $//' >" + said + "\ncat >/dev/null\n"
	if err := testprogram.Write(filepath.Join(bin, "git"), []byte(script)); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	if err := unpack(t, repo, append(pack, '\n')); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(said)
	if want := "Max cpu time 60 70 seconds\nMax file size 16777216 16777216 bytes\nMax data size 4294967296 4294967296 bytes\n"; err != nil || string(got) != want {
		t.Errorf("%v, got\n%swant\n%s", err, got, want)
	}
}
