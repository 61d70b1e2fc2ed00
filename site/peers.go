package site

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"

	"github.com/globalrefdb/globalrefdb/site/wire"
)

// PeerPrefix is where a site keeps what it fetched from others: guarded by nothing,
// moved by sync alone, and hidden from clients.
const PeerPrefix = "refs/peer/"

const peers = "refs/peer" // PeerPrefix, as git's setting names it

// ofPeers reports whether a ref is in the peers' namespace, or in its way.
func ofPeers(ref string) bool { return ref == peers || strings.HasPrefix(ref, PeerPrefix) }

// noPeers refuses pushes to the refs of peers.
func noPeers(body []byte) error {
	lines, err := wire.ParseLines(body)
	if err != nil {
		return err
	}
	var why refused
	for _, l := range lines {
		if ofPeers(l.Ref) {
			why = append(why, name(l.Ref)+": only `refdbctl site sync` moves the refs of peers, which are kept below "+PeerPrefix)
		}
	}
	return why.or()
}

// hidden is the setting that hides refs from clients. It has many values, the last
// of which that concerns a ref decides.
var hidden = setting{key: "transfer.hideRefs", value: peers, why: "clients would see the refs of peers, and clone them"}

func (c gitConfig) hidesPeers(ctx context.Context) (bool, error) {
	out, err := c.repo.Command(ctx, "config", "--local", "--null", "--get-all", hidden.key).Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && exit.ExitCode() == 1 {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("reading git's setting %s: %w", hidden.key, gitError(ctx, err))
	}
	values := strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00")
	for _, value := range slices.Backward(values) {
		prefix, shown := strings.CutPrefix(value, "!")
		prefix = strings.TrimRight(strings.TrimPrefix(prefix, "^"), "/")
		if peers == prefix || strings.HasPrefix(peers, prefix+"/") {
			return !shown, nil
		}
	}
	return false, nil
}

// hidePeers adds our value, and remembers that it did.
func (c gitConfig) hidePeers(ctx context.Context) (did string, err error) {
	if is, err := c.hidesPeers(ctx); err != nil || is {
		return "hides " + peers, err
	}
	if err := c.set(ctx, hidden.setKey(), hidden.value); err != nil {
		return "", err
	}
	return peers + " added", c.run(ctx, hidden.key, "--add", hidden.key, hidden.value)
}

// showPeers removes our value.
func (c gitConfig) showPeers(ctx context.Context) (did string, err error) {
	_, ours, err := c.get(ctx, hidden.setKey())
	if err != nil {
		return "", err
	}
	if !ours {
		return "was not changed", nil
	}
	if is, err := c.hidesPeers(ctx); err != nil {
		return "", err
	} else if !is {
		return "was changed since: left alone", c.unset(ctx, hidden.setKey())
	}
	if err := c.run(ctx, hidden.key, "--unset", hidden.key, "^"+peers+"$"); err != nil {
		return "", err
	}
	return peers + " removed", c.unset(ctx, hidden.setKey())
}

// peers finds what keeps the refs of a peer from being fetched, and whether they are hidden.
func (k *check) peers(ctx context.Context) error {
	config := gitConfig{k.repo}
	switch is, err := config.hidesPeers(ctx); {
	case err != nil:
		return err
	case !is:
		k.find(Setting, hidden.key, fmt.Sprintf("it does not hide %s: %s", hidden.value, hidden.why), func() (string, error) { return config.hidePeers(ctx) })
	}
	// In a pattern an asterisk stands for one component.
	out, err := k.repo.Command(ctx, "for-each-ref", "--format=%(refname)", "--", PeerPrefix+"*").Output()
	if err != nil {
		return fmt.Errorf("listing the refs of peers: %w", gitError(ctx, err))
	}
	for ref := range strings.Lines(string(out)) {
		ref = strings.TrimSuffix(ref, "\n")
		k.find(PeerRef, ref, "no sync made it, and it keeps that peer's refs from being fetched: git -c core.hooksPath=/dev/null update-ref -d "+ref+" removes it", nil)
	}
	return nil
}
