package gerrit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"strings"

	"github.com/globalrefdb/globalrefdb/internal/gitrepo"
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
	return read(ctx, path, "--includes")
}

// readOwn reads what a configuration file says itself.
func readOwn(ctx context.Context, path string) (values, error) {
	return read(ctx, path, "--no-includes")
}

func read(ctx context.Context, path, includes string) (values, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return values{}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading Gerrit's configuration: %w", err)
	}
	f.Close()
	out, err := runConfig(ctx, path, includes, "--null", "--list")
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

// includedFrom returns the last file that a configuration file includes, itself or through others, in which a key has the value.
func includedFrom(ctx context.Context, path, key, value string) (file string, err error) {
	out, err := runConfig(ctx, path, "--includes", "--null", "--show-origin", "--get-all", key)
	if err != nil {
		return "", fmt.Errorf("reading Gerrit's configuration %s: %w", path, err)
	}
	fields := strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00")
	for i := 0; i+1 < len(fields); i += 2 {
		if from := strings.TrimPrefix(fields[i], "file:"); fields[i+1] == value && from != path {
			file = from
		}
	}
	return file, nil
}

func runConfig(ctx context.Context, path string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "git", append([]string{"config", "--file", path}, args...)...)
	cmd.Dir = "/"
	cmd.Env = append(gitrepo.Environ(), "LC_ALL=C")
	out, err := cmd.Output()
	if err != nil {
		return nil, gitrepo.Failure(ctx, err)
	}
	return out, nil
}
