package check

import (
	"context"
	"fmt"
	"strings"

	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/install"
	"github.com/globalrefdb/globalrefdb/site/wire"
)

// hidesRefs finds internal refs that are not hidden from clients.
func (k *repositoryCheck) hidesRefs(ctx context.Context, v install.Variables) {
	if shown := install.NotHiddenBy(v.Local[strings.ToLower(install.HiddenRefs.Key)]); len(shown) > 0 {
		k.find(Setting, install.HiddenRefs.Key, fmt.Sprintf("it does not hide %s: %s", strings.Join(shown, " and "), install.HiddenRefs.Why),
			func() (string, error) { return install.GitConfig{Repo: k.repo}.HideRefs(ctx) })
	}
}

// peer finds a ref that prevents the refs of a peer from being fetched.
func (k *repositoryCheck) peer(ref string) {
	if name, ok := strings.CutPrefix(ref, config.PeerPrefix); ok && !strings.Contains(name, "/") {
		k.find(PeerRef, ref, "no sync created it, and it prevents this peer's refs from being fetched: `"+wire.PastTheHook(k.Path, "update-ref", "-d", ref)+"` removes it", nil)
	}
}
