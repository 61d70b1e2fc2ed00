package gitrepo_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

func TestWhatIsIncomingIsSeenBesideTheRest(t *testing.T) {
	t.Parallel()
	dir, first := newRepo(t, "--bare")
	second := commitOn(t, dir, "second", first)
	pack := packOf(t, openDir(t, dir), []string{second}, []string{first})
	to, _ := newRepo(t, "--bare")
	repo := openDir(t, to)
	if err := unpack(t, repo, packOf(t, openDir(t, dir), []string{first}, nil)); err != nil {
		t.Fatal(err)
	}
	incoming := filepath.Join(to, "objects", "incoming-1")
	if err := os.MkdirAll(filepath.Join(incoming, "pack"), 0o755); err != nil {
		t.Fatal(err)
	}
	with, err := repo.WithIncoming(incoming)
	if err != nil {
		t.Fatal(err)
	}
	index := with.Command(t.Context(), "index-pack", "--stdin", "--fix-thin")
	index.Stdin = bytes.NewReader(pack)
	if out, err := index.CombinedOutput(); err != nil {
		t.Fatal(string(out), err)
	}
	whole, err := with.IsConnected(t.Context(), []string{second}, nil)
	answers(t, "with what is incoming", whole, err, true, "")
	whole, err = repo.IsConnected(t.Context(), []string{second}, nil)
	answers(t, "without", whole, err, false, "")
	// Only what git keeps there is taken for that.
	link := filepath.Join(to, "objects", "incoming-2")
	if err := os.Symlink(t.TempDir(), link); err != nil {
		t.Fatal(err)
	}
	for _, elsewhere := range []string{t.TempDir(), link, filepath.Join(to, "objects"), filepath.Join(incoming, "pack"), "/nowhere"} {
		if _, err := repo.WithIncoming(elsewhere); err == nil {
			t.Errorf("%s was taken", elsewhere)
		}
	}
}
