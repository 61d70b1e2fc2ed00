package catchup

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/globalrefdb/globalrefdb/internal/gitrepo"
	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/install"
)

// A repository may be put under guard at any step of a sync. Its moves are the daemon's from then on:
// beside the daemon they would be neither claimed nor listed.
func TestARepositoryIsPutUnderGuardDuringASync(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "a.git")
	if out, err := exec.CommandContext(t.Context(), "git", "init", "--quiet", "--bare", dir).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	repo, err := gitrepo.OpenDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	s := newSyncer(&config.Config{Socket: filepath.Join(dir, "no-daemon")}, nil, repo, "p", nil, Options{})
	release, _, err := s.mover.Claim(t.Context(), []string{"refs/heads/x"})
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	link := install.SocketLink(repo)
	if err := errors.Join(os.MkdirAll(filepath.Dir(link), 0o755), os.Symlink("/nonexistent", link)); err != nil {
		t.Fatal(err)
	}
	if err := s.mover.Move(t.Context(), []gitrepo.Move{{Ref: "refs/heads/x"}}); !errors.Is(err, errGuarded) {
		t.Errorf("it moves a ref: %v", err)
	}
	if _, _, err := s.mover.Claim(t.Context(), []string{"refs/heads/x"}); !errors.Is(err, errGuarded) {
		t.Errorf("it claims a ref: %v", err)
	}
	s.mover = nowGuarded{}
	s.asks = false // as if the link had come after catchUp looked
	if _, err := s.catchUp(t.Context(), []string{"refs/heads/x"}); err == nil || !strings.Contains(err.Error(), "daemon") {
		t.Errorf("the daemon is not asked: %v", err)
	}
}

// nowGuarded refuses as alone does.
type nowGuarded struct{}

func (nowGuarded) Claim(context.Context, []string) (func(), map[string]error, error) {
	return nil, nil, errGuarded
}
func (nowGuarded) Move(context.Context, []gitrepo.Move) error { return errGuarded }
