package gerrit_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/globalrefdb/globalrefdb/site/gerrit"
	"github.com/globalrefdb/globalrefdb/site/internal/sitetest"
)

// A sequence that can't be read is no missing one: that would give out numbers that are in use.
func TestASequenceThatIsBrokenIsAnError(t *testing.T) {
	t.Parallel()
	repo, dir := sitetest.EmptyRepo(t)
	if n, err := gerrit.NextNumber(t.Context(), repo, gerrit.ChangeSequence); n != 0 || err != nil {
		t.Errorf("without one: %d, %v", n, err)
	}
	path := filepath.Join(dir, filepath.FromSlash(gerrit.ChangeSequence))
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	for text, says := range map[string]string{"": gerrit.ChangeSequence, strings.Repeat("1", 40) + "\n": "git says"} {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if n, err := gerrit.NextNumber(t.Context(), repo, gerrit.ChangeSequence); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %d, %v", text, n, err)
		}
	}
}
