package maintenance

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/globalrefdb/globalrefdb/internal/gitrepo"
	"github.com/globalrefdb/globalrefdb/site/config"
)

// PeerFor is how long the refs of a peer are kept after the last fetch from this peer.
const PeerFor = 14 * 24 * time.Hour

// peerFile returns the path of the repository's file whose modification time is the time of the
// last fetch from a peer.
func peerFile(dir, peer string) string { return filepath.Join(dir, "refdb", "peers", peer) }

// NotePeer records at as the time when a peer's refs were last fetched or first seen.
func NotePeer(dir, peer string, at time.Time) error {
	path := peerFile(dir, peer)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	return errors.Join(f.Close(), os.Chtimes(path, at, at))
}

// DropPeers removes the refs below [config.PeerPrefix] of peers from which nothing was fetched for
// [PeerFor]. It returns the number of removed refs. If the last fetch from a peer is not known, its
// time counts from now.
func DropPeers(ctx context.Context, repo *gitrepo.Repo) (int, error) {
	out, err := repo.Maintain(ctx, false, nil, "for-each-ref", "--format=%(refname)", config.PeerPrefix)
	if err != nil {
		return 0, err
	}
	var in bytes.Buffer
	n, old := 0, map[string]bool{}
	for line := range strings.Lines(out) {
		ref := strings.TrimSpace(line)
		peer, _, _ := strings.Cut(strings.TrimPrefix(ref, config.PeerPrefix), "/")
		isOld, known := old[peer]
		if !known {
			if isOld, err = isUnused(repo.Dir(), peer); err != nil {
				return 0, err
			}
			old[peer] = isOld
		}
		if isOld {
			fmt.Fprintf(&in, "delete %s\x00\x00", ref)
			n++
		}
	}
	if n > 0 {
		if err := update(ctx, repo, &in); err != nil {
			return 0, fmt.Errorf("removing refs of peers that nothing is fetched from: %w", err)
		}
	}
	for peer, isOld := range old {
		if isOld {
			err = errors.Join(err, os.Remove(peerFile(repo.Dir(), peer)))
		}
	}
	return n, err
}

// isUnused reports whether nothing was fetched from a peer for [PeerFor].
func isUnused(dir, peer string) (bool, error) {
	info, err := os.Stat(peerFile(dir, peer))
	if errors.Is(err, fs.ErrNotExist) {
		return false, NotePeer(dir, peer, time.Now())
	}
	return err == nil && time.Since(info.ModTime()) > PeerFor, err
}

// update runs commands of git update-ref for refs that are not guarded, without hooks.
func update(ctx context.Context, repo *gitrepo.Repo, in *bytes.Buffer) error {
	cmd := repo.Command(context.WithoutCancel(ctx), "-c", "core.hooksPath=/dev/null", "-c", "core.logAllRefUpdates=false", "update-ref", "--no-deref", "--stdin", "-z")
	cmd.Stdin = in
	if _, err := cmd.Output(); err != nil {
		return gitrepo.Failure(ctx, err)
	}
	return nil
}
