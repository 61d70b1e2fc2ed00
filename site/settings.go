package site

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"strings"

	"github.com/globalrefdb/globalrefdb/internal/gitrepo"
)

// A setting is one of git's own that a guarded repository needs.
type setting struct {
	key, value string
	why        string
}

// lockTimeout is in milliseconds: git keeps its locks while the hook asks, and
// who comes meanwhile should wait.
const lockTimeout = "10000"

var settings = [...]setting{
	{"receive.autogc", "false", "a push would start gc, which fires the hook for every ref"},
	{"gc.auto", "0", "gc fires the hook for every ref"},
	{"maintenance.auto", "false", "maintenance fires the hook for every ref"},
	{"core.fsync", "all", "after a crash of the machine a ref's file could be empty, and its objects missing"},
	{"core.filesRefLockTimeout", lockTimeout, "pushes would fail while another waits for the database"},
	{"core.packedRefsTimeout", lockTimeout, "pushes would fail while another waits for the database"},
	{"reftable.lockTimeout", lockTimeout, "pushes would fail while another waits for the database"},
}

// holds reports whether a value is as good as the one we would set.
func (s setting) holds(value string) bool {
	if value == s.value {
		return true
	}
	switch s.value {
	case "false":
		switch strings.ToLower(value) {
		case "no", "off", "0":
			return true
		}
	case lockTimeout:
		n, err := strconv.Atoi(value)
		return err == nil && (n < 0 || n >= 10000) // below 0 is for ever
	}
	return false
}

// gitConfig is a repository's own configuration, what git reads for whoever
// runs it. What a setting was before is kept in it, in a section per key: what we
// set, and what there was, if anything.
type gitConfig struct{ repo *gitrepo.Repo }

func (c gitConfig) get(ctx context.Context, key string) (value string, ok bool, err error) {
	out, err := c.repo.Command(ctx, "config", "--local", "--get", key).Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && exit.ExitCode() == 1 {
		return "", false, nil
	}
	if err != nil {
		return "", false, fmt.Errorf("reading git's setting %s: %w", key, gitError(ctx, err))
	}
	return strings.TrimSuffix(string(out), "\n"), true, nil
}

func (c gitConfig) set(ctx context.Context, key, value string) error {
	return c.run(ctx, key, "--replace-all", key, value)
}

func (c gitConfig) unset(ctx context.Context, key string) error {
	return c.run(ctx, key, "--unset-all", key)
}

func (c gitConfig) run(ctx context.Context, key string, args ...string) error {
	if _, err := c.repo.Command(ctx, append([]string{"config", "--local"}, args...)...).Output(); err != nil {
		return fmt.Errorf("changing git's setting %s: %w", key, gitError(ctx, err))
	}
	return nil
}

func (s setting) setKey() string    { return "refdb." + s.key + ".set" }
func (s setting) beforeKey() string { return "refdb." + s.key + ".before" }

// apply makes the setting hold, and remembers what it was.
func (c gitConfig) apply(ctx context.Context, s setting) (did string, err error) {
	value, ok, err := c.get(ctx, s.key)
	if err != nil {
		return "", err
	}
	if ok && s.holds(value) {
		return "is " + value, nil
	}
	_, known, err := c.get(ctx, s.setKey())
	if err != nil {
		return "", err
	}
	// The former value is what was there before the first time.
	if !known {
		if ok {
			if err := c.set(ctx, s.beforeKey(), value); err != nil {
				return "", err
			}
		}
		if err := c.set(ctx, s.setKey(), s.value); err != nil {
			return "", err
		}
	}
	if err := c.set(ctx, s.key, s.value); err != nil {
		return "", err
	}
	if !ok {
		return "set to " + s.value, nil
	}
	return fmt.Sprintf("set to %s, was %s", s.value, value), nil
}

// restore makes the setting what it was, unless it was changed since.
func (c gitConfig) restore(ctx context.Context, s setting) (did string, err error) {
	ours, known, err := c.get(ctx, s.setKey())
	if err != nil {
		return "", err
	}
	if !known {
		return "was not changed", nil
	}
	before, had, err := c.get(ctx, s.beforeKey())
	if err != nil {
		return "", err
	}
	value, ok, err := c.get(ctx, s.key)
	switch {
	case err != nil:
		return "", err
	case !ok || value != ours:
		did = "was changed since: left alone"
	case had:
		did, err = "is "+before+" again", c.set(ctx, s.key, before)
	default:
		did, err = "removed", c.unset(ctx, s.key)
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

// gitError makes one line of what git failed with.
func gitError(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		if line := complaint(string(exit.Stderr)); line != "" {
			return errors.New("git says: " + line)
		}
	}
	return err
}

// complaint picks the line that says why out of what git printed.
func complaint(stderr string) string {
	var last string
	for line := range strings.Lines(stderr) {
		line = strings.TrimSpace(line)
		if line == "" || strings.Contains(line, "aborted by ") {
			continue
		}
		for _, prefix := range []string{"fatal: ", "error: "} {
			if text, ok := strings.CutPrefix(line, prefix); ok {
				return text
			}
		}
		last = line
	}
	return last
}
