package maker_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/internal/sitetest"
	"github.com/globalrefdb/globalrefdb/site/maker"
)

func TestWhatKilledMakersHaveLeftIsRemovedAndWhatALiveOneHasStays(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	c := sitetest.SiteConfig(t, root, "")
	home := filepath.Join(root, config.UnfinishedDir)
	remove := func(want int) {
		t.Helper()
		if n, err := maker.RemoveAbandoned(t.Context(), c); n != want || err != nil {
			t.Errorf("removed %d, %v, want %d", n, err, want)
		}
	}
	remove(0) // there is no such directory

	live, dir := begin(t, c, filepath.Join(root, "live.git"))
	key := config.Unfinished + strings.Repeat("a", 64)
	other := config.Unfinished + strings.Repeat("b", 64)
	probe := filepath.Join(home, "probe-1")
	err := errors.Join(
		os.MkdirAll(filepath.Join(home, key+"-123", "objects"), 0o755),
		os.WriteFile(filepath.Join(home, key+".lock"), nil, 0o644),
		os.Mkdir(filepath.Join(home, other+"-123"), 0o755), // killed after it had removed its lock
		os.WriteFile(probe, nil, 0o600),
	)
	old := time.Now().Add(-time.Hour)
	if err := errors.Join(err, os.Chtimes(probe, old, old)); err != nil {
		t.Fatal(err)
	}
	remove(2)
	if left, err := os.ReadDir(home); err != nil || len(left) != 2 { // the live one's directory and lock
		t.Errorf("left: %v, %v", left, err)
	}
	if _, err := os.Stat(filepath.Join(dir, "config")); err != nil {
		t.Error(err)
	}
	if err := errors.Join(live.Finish(), live.Close()); err != nil {
		t.Error(err)
	}

	if err := os.Mkdir(home, 0o700); err != nil { // killed before it had made anything
		t.Fatal(err)
	}
	remove(0)
	if _, err := os.Lstat(home); !os.IsNotExist(err) {
		t.Errorf("the directory is left: %v", err)
	}
}
