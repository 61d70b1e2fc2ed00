package install

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/globalrefdb/globalrefdb/internal/gitrepo"
)

// A Setting is a git setting that a guarded repository needs.
type Setting struct {
	Key, Value string
	Why        string
}

// lockTimeout is in milliseconds. Git keeps its locks while the hook asks the daemon, so other git
// processes should wait for them that long.
const lockTimeout = "10000"

// Settings are the git settings that a guarded repository needs.
var Settings = [...]Setting{
	{"receive.autogc", "false", "a push would start gc, which fires the hook for every ref"},
	{"gc.auto", "0", "gc fires the hook for every ref"},
	{"maintenance.auto", "false", "maintenance fires the hook for every ref"},
	{"gc.pruneExpire", "never", "gc would prune objects that other sites' packs build on: `refdbctl site maintain` prunes"},
	{"core.useReplaceRefs", "false", "a push to refs/replace/ could hide any object from every git here, and stop all pushes"},
	{"core.fsync", "all", "after a crash of the machine a ref's file could be empty, and its objects missing"},
	{"core.logAllRefUpdates", "always", "a ref's previous values could not be found after a mistake, or after the database was restored from a backup"},
	{"core.filesRefLockTimeout", lockTimeout, "pushes would fail while another push waits for the database"},
	{"core.packedRefsTimeout", lockTimeout, "pushes would fail while another push waits for the database"},
	{"reftable.lockTimeout", lockTimeout, "pushes would fail while another push waits for the database"},
}

// Holds reports whether a value has the same effect as ours, or a stronger one.
func (s Setting) Holds(value string) bool {
	if value == s.Value {
		return true
	}
	switch s.Value {
	case "false":
		switch strings.ToLower(value) {
		case "no", "off", "0":
			return true
		}
	case lockTimeout:
		n, err := strconv.Atoi(value)
		return err == nil && (n < 0 || n >= 10000) // a negative value means no limit
	}
	return false
}

// A GitConfig is a repository's own configuration, which git reads for every user. For each of our
// settings it also records the value that we set, and the previous value, if there was one.
type GitConfig struct {
	Repo *gitrepo.Repo
	File string // the file to change instead; "" for the repository's own
}

// Set sets the single value of a key.
func (c GitConfig) Set(ctx context.Context, key, value string) error {
	return c.run(ctx, key, "--replace-all", key, value)
}

func (c GitConfig) unset(ctx context.Context, key string) error {
	return c.run(ctx, key, "--unset-all", key)
}

func (c GitConfig) run(ctx context.Context, key string, args ...string) error {
	if _, err := c.Repo.Command(ctx, slices.Concat([]string{"config"}, c.where(), args)...).Output(); err != nil {
		err = fmt.Errorf("changing git's setting %s: %w", key, gitrepo.Failure(ctx, err))
		if _, unlocked := os.Lstat(configLock(c.Repo)); c.File == "" && unlocked == nil {
			err = fmt.Errorf("%w: %s", err, unlockConfig(c.Repo))
		}
		return err
	}
	return nil
}

// configLock is the lock file by which git, and this program, exclude concurrent changes of the
// repository's configuration.
func configLock(repo *gitrepo.Repo) string { return filepath.Join(repo.Dir(), "config.lock") }

// unlockConfig returns the advice for a locked configuration.
func unlockConfig(repo *gitrepo.Repo) string {
	return "another program is changing the settings, or was killed while it did: run the command again; " + unlock(repo.Dir())
}

// unlock returns the advice for lock files that killed programs have left.
func unlock(dir string) string {
	return "if the lock file stays, `refdbctl site check --repair " + dir + "` removes it once it is 10 s old and no git process runs that may have created it"
}

// where returns the arguments that name the configuration.
func (c GitConfig) where() []string {
	if c.File == "" {
		return []string{"--local"}
	}
	return []string{"--file", c.File}
}

func (s Setting) setKey() string    { return "refdb." + s.Key + ".set" }
func (s Setting) beforeKey() string { return "refdb." + s.Key + ".before" }

// Apply sets s, unless the repository's variables already satisfy it, and records the previous
// value.
func (c GitConfig) Apply(ctx context.Context, v Variables, s Setting) (did string, err error) {
	value, ok := v.Get(s.Key)
	if ok && s.Holds(value) {
		return "is " + value, nil
	}
	// The previous value is the one from before the first Apply.
	ours, known := v.Get(s.setKey())
	if !known && ok {
		if err := c.Set(ctx, s.beforeKey(), value); err != nil {
			return "", err
		}
	}
	if ours != s.Value {
		if err := c.Set(ctx, s.setKey(), s.Value); err != nil {
			return "", err
		}
	}
	if err := c.Set(ctx, s.Key, s.Value); err != nil {
		return "", err
	}
	if !ok {
		return "set to " + s.Value, nil
	}
	return fmt.Sprintf("set to %s, was %s", s.Value, value), nil
}

// restore restores the previous value, unless the setting was changed since.
func (c GitConfig) restore(ctx context.Context, v Variables, s Setting) (did string, err error) {
	ours, known := v.Get(s.setKey())
	if !known {
		return "was not changed", nil
	}
	before, had := v.Get(s.beforeKey())
	switch value, ok := v.Get(s.Key); {
	case !ok || value != ours:
		did = "was changed since: left alone"
	case had:
		did, err = "is "+before+" again", c.Set(ctx, s.Key, before)
	default:
		did, err = "removed", c.unset(ctx, s.Key)
	}
	if err != nil {
		return "", err
	}
	if had {
		if err := c.unset(ctx, s.beforeKey()); err != nil {
			return "", err
		}
	}
	return did, c.unset(ctx, s.setKey())
}
