//go:build linux

package sites

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A history is a repository full of commits that nobody has pushed yet. Clients
// push from it.
//
//	a ── b
//	 ├── c
//	 ├── leaf 0 ┬─ its children
//	 ├── leaf 1 ┴─ …
type history struct {
	g        *git
	dir      string
	a, b, c  string
	tag      string     // an annotated tag of a
	leaves   []string   // children of a
	children [][]string // of each leaf
	zero     string
}

// newHistory makes a history with that many leaves, and children of each.
func newHistory(t testing.TB, g *git, objects string, leaves, children int) *history {
	t.Helper()
	h := &history{g: g, dir: filepath.Join(shortDir(t), "history.git")}
	g.initBare(t, h.dir, storage{objects, "files"})
	var stream strings.Builder
	mark := 0
	commit := func(parent int) int {
		mark++
		message := fmt.Sprintf("commit %d", mark)
		fmt.Fprintf(&stream, "commit refs/keep/last\nmark :%d\ncommitter T <t@example.com> %d +0000\ndata %d\n%s\n", mark, 1_700_000_000+mark, len(message), message)
		if parent > 0 {
			fmt.Fprintf(&stream, "from :%d\n", parent)
		}
		fmt.Fprintln(&stream)
		return mark
	}
	a := commit(0)
	b, c := commit(a), commit(a)
	first := mark + 1
	for range leaves {
		leaf := commit(a)
		for range children {
			commit(leaf)
		}
	}
	marks := filepath.Join(h.dir, "marks")
	g.feed(t, h.dir, stream.String(), "fast-import", "--quiet", "--force", "--export-marks="+marks)
	text, err := os.ReadFile(marks)
	must(t, text, err)
	ids := make([]string, mark+1)
	for line := range strings.Lines(string(text)) {
		var n int
		var id string
		if _, err := fmt.Sscanf(line, ":%d %s", &n, &id); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		ids[n] = id
	}
	h.a, h.b, h.c = ids[a], ids[b], ids[c]
	for i := range leaves {
		at := first + i*(children+1)
		h.leaves = append(h.leaves, ids[at])
		h.children = append(h.children, ids[at+1:at+1+children])
	}
	g.run(t, h.dir, "tag", "-a", "-m", "annotated", "annotated", h.a)
	h.tag = g.run(t, h.dir, "rev-parse", "refs/tags/annotated")
	h.zero = strings.Repeat("0", len(h.a))
	return h
}

// letters replaces the names of objects in a text by short ones.
func (h *history) letters() *strings.Replacer {
	return strings.NewReplacer(h.zero, "0", h.a, "A", h.b, "B", h.c, "C", h.tag, "T")
}
