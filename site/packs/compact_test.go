package packs_test

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/site/packs"
)

func (s *site) whyCompact(want string) {
	s.Helper()
	why, err := s.source().WhyCompact(s.Context())
	if err != nil || !strings.Contains(why, want) || want == "" && why != "" {
		s.Errorf("compact because of %q, %v, want %q", why, err, want)
	}
}

func (s *site) compact() {
	s.Helper()
	if _, err := s.receive(); err != nil {
		s.Fatal(err)
	}
	base, err := s.source().StoreBase(s.Context(), func(context.Context) (*packs.Mark, error) { return s.mark, nil }, packs.Limits{})
	if err != nil || base.Pack.ID == "" {
		s.Fatalf("%+v, %v", base, err)
	}
}

// A value that was written without a push is in no pack until a site that has its objects stores a
// base.
func TestABaseIsNeededForObjectsInNoPack(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a, b := w.site("a"), w.site("b")
	a.whyCompact("")
	first := a.commit("first")
	a.push(move("main", "", first))
	a.whyCompact("")
	second := a.commit("second", first)
	a.git("update-ref", "refs/heads/main", second)
	if err := a.db.Update(t.Context(), project, []refdb.Update{move("main", first, second), move("same", "", first)}); err != nil {
		t.Fatal(err)
	}
	a.whyCompact("objects that are in no pack")
	b.whyCompact("") // b does not have the objects
	a.compact()
	a.whyCompact("")
	third := a.commit("third", second)
	a.push(move("main", second, third), move("again", "", second))
	a.whyCompact("")
	if _, err := b.receive(); err != nil || !b.whole(third) {
		t.Error(err)
	}
}

func TestABaseIsNeededOnceLaterPacksAreLargerThanTheLatestBase(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.site("a")
	a.git("config", "core.compression", "0") // compression would only cost time
	head := a.commit("first")
	a.push(move("main", "", head))
	a.compact()
	random := func() string { // returns a commit of a file that git can't compress
		text := make([]byte, 9<<20)
		f := must(os.Open("/dev/urandom"))
		defer f.Close()
		must(io.ReadFull(f, text)) // one read may be cut short by a signal
		path := filepath.Join(t.TempDir(), "random")
		if err := os.WriteFile(path, text, 0o644); err != nil {
			t.Fatal(err)
		}
		blob := a.git("hash-object", "-w", path)
		tree := treeOf(a, blob)
		return a.git("commit-tree", "-m", "random", "-p", head, tree)
	}
	for i, want := range []string{"", "bytes were stored since the latest base", ""} {
		if i == 2 {
			a.compact()
		}
		next := random()
		a.push(move("main", head, next))
		head = next
		a.whyCompact(want)
	}
}

// treeOf returns the ID of a tree with one file.
func treeOf(s *site, blob string) string {
	s.Helper()
	s.git("update-index", "--add", "--cacheinfo", "100644,"+blob+",file")
	return s.git("write-tree")
}
