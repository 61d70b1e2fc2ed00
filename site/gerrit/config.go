package gerrit

import (
	"bytes"
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

// values are the variables of a configuration file, by their names as git prints them.
type values map[string][]string

// canonical returns a name as git prints it: section and key in lower case.
func canonical(name string) string {
	first, last := strings.IndexByte(name, '.'), strings.LastIndexByte(name, '.')
	return strings.ToLower(name[:first]) + name[first:last] + strings.ToLower(name[last:])
}

func (v values) all(name string) []string { return v[canonical(name)] }

// last returns the value that counts of a variable with one value; "" if it has none.
func (v values) last(name string) string { return v.or(name, "") }

func (v values) or(name, otherwise string) string {
	all := v.all(name)
	if len(all) == 0 || all[len(all)-1] == "" {
		return otherwise
	}
	return all[len(all)-1]
}

// readConfig reads a configuration file, and those that it includes, as Gerrit does. One that is not there is empty.
func readConfig(ctx context.Context, path string) (values, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return values{}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading Gerrit's configuration: %w", err)
	}
	f.Close()
	out, err := gitConfig(ctx, path, "--includes", "--null", "--list")
	if err != nil {
		return nil, fmt.Errorf("reading Gerrit's configuration %s: %w", path, err)
	}
	v := values{}
	for item := range bytes.SplitSeq(bytes.TrimSuffix(out, []byte{0}), []byte{0}) {
		name, value, assigned := strings.Cut(string(item), "\n")
		if name == "" {
			continue
		}
		if !assigned {
			value = "true"
		}
		v[name] = append(v[name], value)
	}
	return v, nil
}

func gitConfig(ctx context.Context, path string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "git", append([]string{"config", "--file", path}, args...)...)
	cmd.Dir = "/"
	cmd.Env = append(gitrepo.Environ(), "LC_ALL=C")
	out, err := cmd.Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && ctx.Err() == nil {
		err = errors.New(strings.TrimSpace(strings.TrimPrefix(string(exit.Stderr), "fatal: ")))
	}
	return out, err
}

// An edit is the arguments of one git config.
type edit []string

// rewrite replaces a configuration file by what git makes of it with the edits: all of them are in the file, or none.
func rewrite(ctx context.Context, path string, edits []edit) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("changing %s: %w", path, err)
		}
	}()
	// The file may be a link to where the configuration is kept.
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	}
	mode := fs.FileMode(0o644)
	text, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return err
	default:
		info, err := os.Stat(path)
		if err != nil {
			return err
		}
		mode = info.Mode().Perm()
	}
	dir, err := os.MkdirTemp("", "refdb-config")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	copied := filepath.Join(dir, "config")
	if err := os.WriteFile(copied, text, 0o600); err != nil {
		return err
	}
	for _, e := range edits {
		if _, err := gitConfig(ctx, copied, e...); err != nil {
			return fmt.Errorf("git config %s: %w", strings.Join(e, " "), err)
		}
	}
	if text, err = os.ReadFile(copied); err != nil {
		return err
	}
	return durable.WriteFile(path, text, mode)
}
