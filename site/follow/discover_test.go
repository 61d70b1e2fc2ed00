package follow

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/globalrefdb/globalrefdb/site/config"
)

// The site learns of a new repository before the follower knows it.
func TestARepositoryThatIsNewHereIsComparedAsAWhole(t *testing.T) {
	appeared := 0
	var f *Follower
	f = New(nil, Options{Appeared: func(r config.Repository) {
		if f.known[r.Project] != identity(r.Path) {
			appeared++
		}
	}})
	close(f.loaded)
	r := config.Repository{Project: "a", Path: t.TempDir()}
	file := filepath.Join(r.Path, "config")
	compared := func(what string, want bool) {
		t.Helper()
		f.queue, appeared = newQueue(), 0
		f.Found(r)
		if (appeared == 1) != want {
			t.Errorf("%s: the site was told %d times", what, appeared)
		}
		if got := f.queue.Len() > 0; got != want {
			t.Errorf("%s: compared: %v", what, got)
		}
	}
	compared("it has gone meanwhile", false)
	if f.Knows("a") {
		t.Error("a repository that is not there is known")
	}
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	compared("it is new", true)
	compared("it is known", false)
	if err := os.WriteFile(file+".new", nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(file+".new", file); err != nil {
		t.Fatal(err)
	}
	compared("another took its place", true)
}
