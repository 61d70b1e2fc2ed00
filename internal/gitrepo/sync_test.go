package gitrepo

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestTheDirectoriesThatAMoveChanges(t *testing.T) {
	t.Parallel()
	common := t.TempDir()
	elsewhere := t.TempDir()
	for name, c := range map[string]struct {
		format, packed string
		refs           []string
		want           string // below the repository
	}{
		"one ref":             {"files", "", []string{"refs/heads/x"}, "refs/heads refs ."},
		"folders":             {"files", "", []string{"refs/heads/a/b", "refs/heads/x", "refs/tags/v"}, "refs/tags refs/heads/a refs/heads refs ."},
		"packed-refs, a link": {"files", elsewhere, []string{"refs/heads/x"}, "refs/heads refs elsewhere ."},
		"tables":              {"reftable", "", []string{"refs/heads/a/b"}, "reftable ."},
	} {
		t.Run(name, func(t *testing.T) {
			r := &Repo{path: name, common: filepath.Join(common, name), format: c.format}
			if err := os.MkdirAll(r.common, 0o755); err != nil {
				t.Fatal(err)
			}
			if c.packed != "" {
				target := filepath.Join(c.packed, "packed-refs")
				if err := os.WriteFile(target, nil, 0o644); err != nil {
					t.Fatal(err)
				}
				if err := os.Symlink(target, r.packedPath()); err != nil {
					t.Fatal(err)
				}
			}
			var want []string
			for _, dir := range strings.Fields(c.want) {
				if dir == "elsewhere" {
					want = append(want, elsewhere)
				} else {
					want = append(want, filepath.Join(r.common, dir))
				}
			}
			if got := r.dirsOf(c.refs); !slices.Equal(got, want) {
				t.Errorf("got %q, want %q", got, want)
			}
			if err := r.Sync(c.refs); err != nil {
				t.Errorf("with directories that are gone: %v", err)
			}
		})
	}
	// A directory that can't be written to disk is no success.
	r := &Repo{path: "x", common: "/proc/self/fd", format: "files"}
	if err := r.Sync([]string{"refs/x"}); err == nil {
		t.Error("a directory that can't be written to disk is taken for written")
	}
}
