package catchup_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/globalrefdb/globalrefdb/site/internal/sitetest"
)

// What a project's rules say of objects is judged where a push enters. A site that judged again would never have what all others have.
func TestSyncTakesObjectsThatASiteAcceptedWhateverTheirForm(t *testing.T) {
	t.Parallel()
	r := sitetest.NewReplicas(t)
	tree := strings.TrimSpace(sitetest.GitIn(t, r.A.Dir, "rev-parse", r.A.Commit(t, "x")+"^{tree}"))
	sitetest.GitIn(t, r.B.Dir, "config", "transfer.fsckObjects", "true")
	text := fmt.Sprintf("tree %s\nauthor nobody 1 +0000\ncommitter nobody 1 +0000\n\nno address\n", tree)
	file := filepath.Join(t.TempDir(), "commit")
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	odd := sitetest.GitIn(t, r.A.Dir, "hash-object", "-t", "commit", "-w", "--literally", file)
	r.Both(t, sitetest.MainRef, odd)
	if got := r.Sync(t).Summary(); got != "created heads/main" {
		t.Error(got)
	}
}
