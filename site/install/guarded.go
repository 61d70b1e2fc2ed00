package install

import (
	"os"
	"path/filepath"

	"github.com/globalrefdb/globalrefdb/site/config"
)

// GuardedBy returns the repositories whose hooks ask the daemon of this configuration.
func GuardedBy(c *config.Config) (guarded []config.Repository, err error) {
	all, err := c.Repositories()
	for _, r := range all {
		if IsGuardedBy(c, r) {
			guarded = append(guarded, r)
		}
	}
	return guarded, err
}

// IsGuardedBy reports whether the hooks of a repository ask the daemon of this configuration.
func IsGuardedBy(c *config.Config, r config.Repository) bool {
	target, err := os.Readlink(filepath.Join(r.Path, "refdb", "socket"))
	return err == nil && target == c.Socket
}
