package install

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/globalrefdb/globalrefdb/internal/gitrepo"
	"github.com/globalrefdb/globalrefdb/site/config"
)

// disabledKey is the setting that records that an operator ended the guard of a repository, or
// never wanted one.
const disabledKey = "refdb.disabled"

// HasGuard reports whether a repository with these settings is under guard, or was and has lost a
// part of it. A repository that was never put under guard has neither the link to the daemon's
// socket nor a record of settings.
func HasGuard(repo *gitrepo.Repo, v Variables) bool {
	if _, err := os.Lstat(SocketLink(repo)); !errors.Is(err, fs.ErrNotExist) {
		return true
	}
	for key := range v.Local {
		if strings.HasPrefix(key, "refdb.") && strings.HasSuffix(key, ".set") {
			return true
		}
	}
	return false
}

// WasDisabled reports whether the settings record that the repository stays unguarded.
func WasDisabled(v Variables) bool {
	value, _ := v.Get(disabledKey)
	return value == "true"
}

// IsDisabled is [WasDisabled] for a repository whose settings have not been read yet.
func IsDisabled(ctx context.Context, r config.Repository) bool {
	entries, err := config.ReadFile(ctx, filepath.Join(r.Path, "config"))
	disabled := false
	for _, e := range entries {
		if e.Name() == disabledKey {
			disabled = e.Value == "true"
		}
	}
	return err == nil && disabled
}

// RecordDisabled records that a repository stays unguarded.
func RecordDisabled(ctx context.Context, r config.Repository) error {
	repo, err := openOwn(ctx, r)
	if err != nil {
		return err
	}
	return GitConfig{Repo: repo}.Set(ctx, disabledKey, "true")
}

// ForgetDisabled reverses RecordDisabled.
func ForgetDisabled(ctx context.Context, r config.Repository) error {
	if !IsDisabled(ctx, r) {
		return nil
	}
	repo, err := openOwn(ctx, r)
	if err != nil {
		return err
	}
	return GitConfig{Repo: repo}.unset(ctx, disabledKey)
}
