package install

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"

	"github.com/globalrefdb/globalrefdb/internal/gitrepo"
	"github.com/globalrefdb/globalrefdb/site/hookdir"
)

// HiddenRefs is the setting that hides refs from clients. It may have many values, of which the
// last one that matches a ref decides.
var HiddenRefs = Setting{Key: "transfer.hideRefs", Value: strings.Join(hookdir.Hidden[:], " and "), Why: "clients would see refs of peers, or refs that only keep objects, and clone them"}

func (c GitConfig) shown(ctx context.Context) ([]string, error) {
	values, err := c.values(ctx, HiddenRefs.Key)
	if err != nil {
		return nil, err
	}
	return NotHiddenBy(values), nil
}

// values returns all values of a key.
func (c GitConfig) values(ctx context.Context, key string) ([]string, error) {
	out, err := c.Repo.Command(ctx, slices.Concat([]string{"config"}, c.where(), []string{"--null", "--get-all", key})...).Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && exit.ExitCode() == 1 {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading git's setting %s: %w", key, gitrepo.Failure(ctx, err))
	}
	return strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00"), nil
}

// NotHiddenBy returns the prefixes of refs that these values of the setting fail to hide from
// clients.
func NotHiddenBy(values []string) (shown []string) {
	for _, prefix := range hookdir.Hidden {
		if !hides(values, prefix) {
			shown = append(shown, prefix)
		}
	}
	return shown
}

func hides(values []string, refs string) bool {
	for _, value := range slices.Backward(values) {
		prefix, shown := strings.CutPrefix(value, "!")
		prefix = strings.TrimRight(strings.TrimPrefix(prefix, "^"), "/")
		if refs == prefix || strings.HasPrefix(refs, prefix+"/") {
			return !shown
		}
	}
	return false
}

// HideRefs adds our values, and records the addition.
func (c GitConfig) HideRefs(ctx context.Context) (did string, err error) {
	shown, err := c.shown(ctx)
	if err != nil || len(shown) == 0 {
		return "hides " + HiddenRefs.Value, err
	}
	ours, err := c.values(ctx, HiddenRefs.setKey())
	if err != nil {
		return "", err
	}
	for _, prefix := range shown {
		if !slices.Contains(ours, prefix) {
			if err := c.run(ctx, HiddenRefs.Key, "--add", HiddenRefs.setKey(), prefix); err != nil {
				return "", err
			}
		}
		if err := c.run(ctx, HiddenRefs.Key, "--add", HiddenRefs.Key, prefix); err != nil {
			return "", err
		}
	}
	return strings.Join(shown, " and ") + " added", nil
}

// showRefs removes our values.
func (c GitConfig) showRefs(ctx context.Context) (did string, err error) {
	ours, err := c.values(ctx, HiddenRefs.setKey())
	if err != nil {
		return "", err
	}
	if len(ours) == 0 {
		return "was not changed", nil
	}
	values, err := c.values(ctx, HiddenRefs.Key)
	if err != nil {
		return "", err
	}
	var removed []string
	for _, prefix := range ours {
		if !slices.Contains(values, prefix) || !hides(values, prefix) {
			continue
		}
		if err := c.run(ctx, HiddenRefs.Key, "--unset-all", HiddenRefs.Key, "^"+prefix+"$"); err != nil {
			return "", err
		}
		removed = append(removed, prefix)
	}
	did = "was changed since: left alone"
	if len(removed) > 0 {
		did = strings.Join(removed, " and ") + " removed"
	}
	return did, c.unset(ctx, HiddenRefs.setKey())
}
