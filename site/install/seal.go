package install

import (
	"path/filepath"

	"github.com/globalrefdb/globalrefdb/site/config"
)

// Seal puts the hook into a directory that is going to become a repository, before git would take it for one. No moment comes at which a
// push into it, or another change of its refs, goes past the hook. All are refused until the repository is under guard.
func Seal(c *config.Config, dir, hook string) error {
	program, err := ReadHook(hook)
	if err != nil {
		return err
	}
	h := Hooks{Dir: filepath.Join(dir, "hooks"), program: program, shared: filepath.Join(c.State, "refdb-hook")}
	_, err = h.Install("reference-transaction")
	return err
}
