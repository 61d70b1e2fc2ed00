package maintainer

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/site/maintenance"
)

func TestARepositoryIsMaintainedOnceADay(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "refdb"), 0o755); err != nil {
		t.Fatal(err)
	}
	if isDue(dir) {
		t.Error("a new repository is due at once: all of a site would be")
	}
	info, err := os.Stat(maintenance.File(dir))
	if err != nil {
		t.Fatal(err)
	}
	if age := time.Since(info.ModTime()); age < 0 || age > maintainEvery+time.Minute {
		t.Errorf("its turn counts from %s ago", age)
	}
	for ago, due := range map[time.Duration]bool{maintainEvery + time.Minute: true, maintainEvery - time.Minute: false} {
		if err := noteMaintained(dir, time.Now().Add(-ago)); err != nil {
			t.Fatal(err)
		}
		if isDue(dir) != due {
			t.Errorf("%s after its last maintenance it is due: %v", ago, !due)
		}
	}
}
