package config

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/globalrefdb/globalrefdb/internal/gitrepo"
	"github.com/globalrefdb/globalrefdb/site/internal/durable"
)

// An Edit is the arguments of one git config that changes a file.
type Edit []string

// Rewrite replaces a file in the syntax of git-config by what git makes of it with the edits: all of them are in the file, or none. Its
// mode, owner and group stay; one that is not there is made.
func Rewrite(ctx context.Context, path string, edits []Edit) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("changing %s: %w", path, err)
		}
	}()
	// The file may be a link to where the configuration is kept.
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	}
	text, isNew, err := edited(ctx, path, edits)
	if err != nil {
		return err
	}
	if isNew {
		return durable.WriteFile(path, text, 0o644)
	}
	return durable.Rewrite(path, text)
}

// Edited returns what [Rewrite] would make of a file, and leaves that alone.
func Edited(ctx context.Context, path string, edits []Edit) ([]byte, error) {
	text, _, err := edited(ctx, path, edits)
	return text, err
}

func edited(ctx context.Context, path string, edits []Edit) (text []byte, isNew bool, err error) {
	text, err = os.ReadFile(path)
	isNew = errors.Is(err, fs.ErrNotExist)
	if err != nil && !isNew {
		return nil, false, err
	}
	dir, err := os.MkdirTemp("", "refdb-config")
	if err != nil {
		return nil, false, err
	}
	defer os.RemoveAll(dir)
	copied := filepath.Join(dir, "config")
	if err := os.WriteFile(copied, text, 0o600); err != nil {
		return nil, false, err
	}
	for _, e := range edits {
		cmd := exec.CommandContext(ctx, "git", append([]string{"config", "--file", copied}, e...)...)
		cmd.Dir = "/"
		cmd.Env = append(gitrepo.Environ(), "LC_ALL=C")
		if _, err := cmd.Output(); err != nil {
			return nil, false, fmt.Errorf("git config %s: %w", strings.Join(e, " "), gitrepo.Failure(ctx, err))
		}
	}
	text, err = os.ReadFile(copied)
	return text, isNew, err
}
