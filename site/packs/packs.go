// Package packs carries the objects of pushes through the database: it makes packs of what a push brings, stores
// them in parts, and unpacks at a site what the others have stored.
package packs

import (
	"errors"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/site/config"
)

// Stored reports whether the database keeps the objects of a project, all of them or in transit.
func Stored(p refdb.Project) bool { return p.Store != "" }

// InTransit reports whether it keeps them for [TransitFor] only.
func InTransit(p refdb.Project) bool { return p.Store == config.StoreTransit }

var (
	// ErrTooLarge: a pack would exceed the limit.
	ErrTooLarge = errors.New("the pack is too large")
	// ErrShallow: the repository's history is cut off, so that no pack can be made of it.
	ErrShallow = errors.New("the repository is shallow")
	// ErrIncomplete: a pack builds on objects, or lacks some, that are not here.
	ErrIncomplete = errors.New("objects are missing")
	// ErrDamaged: what the database has is not what was stored.
	ErrDamaged = errors.New("the pack is damaged")
)
