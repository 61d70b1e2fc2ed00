package maintenance

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/globalrefdb/globalrefdb/internal/gitrepo"
	"github.com/globalrefdb/globalrefdb/site/config"
)

const (
	// maxPacks is the number of packs above which all objects are repacked: the default of git's
	// gc.autoPackLimit.
	maxPacks = 50
	// maxLoose is the number of loose objects above which those that refs reach are packed.
	maxLoose = 1000
	// grace keeps objects that are younger than two weeks from being pruned: a git may have written
	// them for a ref that it is about to move. It must not be shorter than the grace period of
	// git's own gc.
	grace = "--expire=2.weeks.ago"
)

// File returns the path of the repository's file whose modification time is the time of the last
// maintenance.
func File(dir string) string { return filepath.Join(dir, "refdb", "maintained") }

// Packed says which objects [Pack] has packed.
type Packed string

const (
	PackedNothing Packed = "nothing"
	PackedLoose   Packed = "loose" // the loose objects
	PackedAll     Packed = "all"
)

// Pack expires reflogs according to git's configuration, packs all refs, and packs objects if that
// pays. No object is lost: objects that no ref reaches any more become loose, with the age of their
// pack. With extensions.preciousObjects, the repository's objects stay as they are.
//
// A geometric repack would cost less where there are many packs. But it packs unreachable objects,
// too, which would then seem to be new each time, so that they would never be pruned.
func Pack(ctx context.Context, repo *gitrepo.Repo) (Packed, error) {
	// Expiring fails if a push has one of the refs locked, or deletes it. The next maintenance
	// tries again.
	_, err := repo.Maintain(ctx, true, nil, "reflog", "expire", "--all")
	if err == nil || ctx.Err() == nil {
		_, err = repo.Maintain(ctx, true, nil, "pack-refs", "--all")
	}
	if err != nil || repo.IsPrecious() {
		return PackedNothing, err
	}
	loose, packs, err := repo.Count(ctx)
	did, args := PackedNothing, []string{"repack", "-d", "-l", "-q"}
	switch {
	case err != nil:
		return did, err
	case packs > maxPacks:
		did, args = PackedAll, append(args, "-A")
	case loose > maxLoose:
		did = PackedLoose
	default:
		return did, nil
	}
	if _, err := repo.Maintain(ctx, true, nil, args...); err != nil {
		return PackedNothing, err
	}
	return did, nil
}

// Pins counts the refs that keep objects.
type Pins struct{ All, Added, Removed int }

// Pin creates a ref below [config.KeptPrefix] for each of ids whose objects are all here and that
// no other ref reaches. Unless onlyAdd is set, it removes all other refs below that prefix.
func Pin(ctx context.Context, repo *gitrepo.Repo, ids []string, onlyAdd bool) (p Pins, err error) {
	whole, err := repo.Connected(ctx, ids)
	if err != nil {
		return p, err
	}
	here := make([]string, 0, len(whole))
	for _, id := range ids {
		if whole[id] {
			here = append(here, id)
		}
	}
	needed, err := repo.Unreached(ctx, here, config.OwnPrefix)
	if err != nil {
		return p, err
	}
	there, err := pinned(ctx, repo)
	if err != nil {
		return p, err
	}
	var in bytes.Buffer
	for _, id := range needed {
		if !there[id] {
			fmt.Fprintf(&in, "create %s%s\x00%s\x00", config.KeptPrefix, id, id)
			p.Added++
		}
		delete(there, id)
	}
	p.All = len(needed)
	if onlyAdd {
		p.All += len(there)
	} else {
		for id := range there {
			fmt.Fprintf(&in, "delete %s%s\x00\x00", config.KeptPrefix, id)
			p.Removed++
		}
	}
	if in.Len() == 0 {
		return p, nil
	}
	if err := update(ctx, repo, &in); err != nil {
		return p, fmt.Errorf("keeping objects that other sites may build on: %w", err)
	}
	return p, nil
}

// pinned returns the object IDs that have a ref below [config.KeptPrefix].
func pinned(ctx context.Context, repo *gitrepo.Repo) (map[string]bool, error) {
	out, err := repo.Maintain(ctx, false, nil, "for-each-ref", "--format=%(refname)", config.KeptPrefix)
	if err != nil {
		return nil, err
	}
	ids := map[string]bool{}
	for line := range strings.Lines(out) {
		ids[strings.TrimPrefix(strings.TrimSpace(line), config.KeptPrefix)] = true
	}
	return ids, nil
}

// Prunable returns the number of files that [Prune] would remove now: objects, and files that gits
// have left when they were killed.
func Prunable(ctx context.Context, repo *gitrepo.Repo) (int, error) {
	out, err := repo.Maintain(ctx, true, nil, "prune", "-n", grace)
	return strings.Count(out, "\n"), err
}

// Prune removes the objects that no ref reaches and that are older than two weeks. It returns their
// number. lock is the file from [Exclusive].
func Prune(ctx context.Context, repo *gitrepo.Repo, lock *os.File) (int, error) {
	out, err := repo.Maintain(ctx, false, []*os.File{lock}, "prune", "-v", grace)
	return objects(out), err
}

// objects counts the lines of git prune that name an object and its type.
func objects(out string) (n int) {
	for line := range strings.Lines(out) {
		if id, kind, ok := strings.Cut(strings.TrimSpace(line), " "); ok && len(id) >= 40 && !strings.Contains(kind, " ") {
			n++
		}
	}
	return n
}
