package check

import (
	"context"
	"fmt"
	"strings"

	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/install"
)

// hidesPeers finds that the refs of peers are not hidden.
func (k *repositoryCheck) hidesPeers(ctx context.Context, v install.Variables) {
	if !install.PeersHiddenBy(v.Local[strings.ToLower(install.HiddenRefs.Key)]) {
		k.find(Setting, install.HiddenRefs.Key, fmt.Sprintf("it does not hide %s: %s", install.HiddenRefs.Value, install.HiddenRefs.Why),
			func() (string, error) { return install.GitConfig{Repo: k.repo}.HidePeers(ctx) })
	}
}

// peer finds a ref that keeps the refs of a peer from being fetched.
func (k *repositoryCheck) peer(ref string) {
	if name, ok := strings.CutPrefix(ref, config.PeerPrefix); ok && !strings.Contains(name, "/") {
		k.find(PeerRef, ref, "no sync made it, and it keeps that peer's refs from being fetched: git -c core.hooksPath=/dev/null update-ref -d "+ref+" removes it", nil)
	}
}
