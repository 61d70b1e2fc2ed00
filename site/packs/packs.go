// Package packs carries the objects of pushes through the database. It makes packs of the objects
// that a push brings, stores them in parts, and unpacks the packs of other sites.
package packs

import (
	"context"
	"errors"
	"fmt"

	"github.com/globalrefdb/globalrefdb/internal/gitrepo"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/site/config"
)

// Stored reports whether the database keeps the objects of a project, permanently or in transit.
func Stored(p driver.Project) bool { return p.Store != "" }

// InTransit reports whether the database keeps the objects of a project for [TransitFor] only.
func InTransit(p driver.Project) bool { return p.Store == config.StoreTransit }

var (
	// ErrTooLarge means that a pack would exceed its size limit.
	ErrTooLarge = errors.New("the pack is too large")
	// ErrShallow means that no pack can be made because the repository's history is cut off.
	ErrShallow = errors.New("the repository is shallow")
	// ErrPartial means that the repository is a partial clone: a pack of it might lack objects.
	ErrPartial = errors.New("the repository is a partial clone")
	// ErrIncomplete means that the repository lacks objects that a pack contains or builds on.
	ErrIncomplete = errors.New("objects are missing")
	// ErrDatabase means that a request to the database failed while a pack was made or stored.
	ErrDatabase = errors.New("the database failed")
	// ErrDamaged means that the bytes of a pack in the database are not those that were stored.
	ErrDamaged = errors.New("the pack is damaged")
)

// CheckSource returns an error if the configuration and files of the repository at path show that
// no packs can be made of it. This error wraps [ErrShallow] or [ErrPartial], and says what to do.
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
