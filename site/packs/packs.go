// Package packs carries the objects of pushes through the database: it makes packs of what a push brings, stores
// them in parts, and unpacks at a site what the others have stored.
package packs

import (
	"context"
	"errors"
	"fmt"

	"github.com/globalrefdb/globalrefdb/internal/gitrepo"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/site/config"
)

// Stored reports whether the database keeps the objects of a project, all of them or in transit.
func Stored(p driver.Project) bool { return p.Store != "" }

// InTransit reports whether it keeps them for [TransitFor] only.
func InTransit(p driver.Project) bool { return p.Store == config.StoreTransit }

var (
	// ErrTooLarge: a pack would exceed the limit.
	ErrTooLarge = errors.New("the pack is too large")
	// ErrShallow: the repository's history is cut off, so that no pack can be made of it.
	ErrShallow = errors.New("the repository is shallow")
	// ErrPartial: the repository is a partial clone, so that a pack that is made of it may lack objects.
	ErrPartial = errors.New("the repository is a partial clone")
	// ErrIncomplete: a pack builds on objects, or lacks some, that are not here.
	ErrIncomplete = errors.New("objects are missing")
	// ErrDatabase: the database did not take a part of a pack, or did not say what it has.
	ErrDatabase = errors.New("the database failed")
	// ErrDamaged: what the database has is not what was stored.
	ErrDamaged = errors.New("the pack is damaged")
)

// CheckSource returns an error if no packs can be made of the repository at path, as git's settings and files say at once: one that wraps
// [ErrShallow] or [ErrPartial], and says what to do.
func CheckSource(ctx context.Context, path string) error {
	repo, err := gitrepo.Open(ctx, path)
	if err != nil {
		return err
	}
	if repo.IsShallow() {
		return fmt.Errorf("%s: %w: its history is cut off, and the database keeps all objects; nothing was changed: "+
			"run `git fetch --unshallow` there, then the command again", path, ErrShallow)
	}
	partial, err := repo.IsPartial(ctx)
	if err == nil && partial {
		err = fmt.Errorf("%s: %w: git gets its objects from elsewhere when they are needed, and the database keeps all objects; nothing was changed: "+
			"put a full clone in its place (git clone --bare), and run the command again", path, ErrPartial)
	}
	return err
}
