package install

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"

	"github.com/globalrefdb/globalrefdb/internal/gitrepo"
)

// peers is the prefix of the refs of peers, as git's Setting names it.
const peers = "refs/peer"

// HiddenRefs is the setting that hides refs from clients. It may have many values; the last one that
// matches a ref decides.
var HiddenRefs = Setting{Key: "transfer.hideRefs", Value: peers, Why: "clients would see the refs of peers, and clone them"}

func (c GitConfig) hidesPeers(ctx context.Context) (bool, error) {
	out, err := c.Repo.Command(ctx, "config", "--local", "--null", "--get-all", HiddenRefs.Key).Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && exit.ExitCode() == 1 {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("reading git's Setting %s: %w", HiddenRefs.Key, gitrepo.Failure(ctx, err))
	}
	return PeersHiddenBy(strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00")), nil
}

// PeersHiddenBy reports whether the setting hides the refs of peers if it has these values.
func PeersHiddenBy(values []string) bool {
	for _, value := range slices.Backward(values) {
		prefix, shown := strings.CutPrefix(value, "!")
		prefix = strings.TrimRight(strings.TrimPrefix(prefix, "^"), "/")
		if peers == prefix || strings.HasPrefix(peers, prefix+"/") {
			return !shown
		}
	}
	return false
}

// HidePeers adds our value, and records that.
func (c GitConfig) HidePeers(ctx context.Context) (did string, err error) {
	if is, err := c.hidesPeers(ctx); err != nil || is {
		return "hides " + peers, err
	}
	if err := c.Set(ctx, HiddenRefs.setKey(), HiddenRefs.Value); err != nil {
		return "", err
	}
	return peers + " added", c.run(ctx, HiddenRefs.Key, "--add", HiddenRefs.Key, HiddenRefs.Value)
}

// showPeers removes our value.
func (c GitConfig) showPeers(ctx context.Context) (did string, err error) {
	_, ours, err := c.get(ctx, HiddenRefs.setKey())
	if err != nil {
		return "", err
	}
	if !ours {
		return "was not changed", nil
	}
	if is, err := c.hidesPeers(ctx); err != nil {
		return "", err
	} else if !is {
		return "was changed since: left alone", c.unset(ctx, HiddenRefs.setKey())
	}
	if err := c.run(ctx, HiddenRefs.Key, "--unset", HiddenRefs.Key, "^"+peers+"$"); err != nil {
		return "", err
	}
	return peers + " removed", c.unset(ctx, HiddenRefs.setKey())
}
