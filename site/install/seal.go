package install

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"

	"github.com/globalrefdb/globalrefdb/internal/gitrepo"
	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/hookdir"
	"github.com/globalrefdb/globalrefdb/site/internal/durable"
)

// Seal closes a directory that will become a repository, before git would recognize it as one, with
// a hook that starts the site's hook. At no moment does a push into it, or another change of its
// refs, bypass the hook. All of them are refused until the repository is under guard, even if the
// site's hooks are gone. [Guard] and [Enable] find the hook where they would put it.
//
// If the configuration of git's user, or of the system, leads git to hooks elsewhere, the
// repository starts with a configuration that hides all refs from pushes, like that of a guarded
// repository without the site's hooks.
func Seal(ctx context.Context, c *config.Config, dir, hook string) error {
	program, err := ReadHook(hook)
	if err != nil {
		return err
	}
	h := Hooks{Site: hookdir.Dir(c.Hooks), Own: filepath.Join(dir, "hooks")}
	if _, err := h.Site.Provide(ctx, program, false); err != nil {
		return err
	}
	switch elsewhere, err := hasHooksPath(ctx, dir); {
	case err != nil:
		return err
	case elsewhere:
		return durable.WriteFile(filepath.Join(dir, "config"), []byte(closed), 0o644)
	}
	if err := durable.MkdirAll(h.Own, 0o755); err != nil {
		return err
	}
	return h.placeRelay(deciding[0])
}

// hasHooksPath reports whether git would take the hooks of a repository created at dir from outside
// of the repository.
func hasHooksPath(ctx context.Context, dir string) (bool, error) {
	cmd := exec.CommandContext(ctx, "git", "--git-dir="+dir, "config", "--get", "core.hooksPath")
	cmd.Env = append(gitrepo.Environ(), "LC_ALL=C")
	_, err := cmd.Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && exit.ExitCode() == 1 {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("reading core.hooksPath: %w", gitrepo.Failure(ctx, err))
	}
	return true, nil
}
