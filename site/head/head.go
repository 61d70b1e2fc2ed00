// Package head decides what becomes of HEAD of a copy whose project's objects the database keeps: whether it follows the database, or the
// database takes over what somebody has changed here, as a forge does that has another default branch. For that each copy records
// the value that it and the database last agreed on.
package head

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/site/internal/durable"
)

// Ref is the name by which the database knows HEAD.
const Ref = "HEAD"

// A State is what HEAD holds: "ref: " and a branch, or, where it is detached, an object ID.
type State struct {
	Here   refdb.Value
	Global refdb.Value // in the database
	// Agreed is what both last held or, if the database held nothing, HEAD here; Unknown if that was not recorded.
	Agreed refdb.Value
	Bare   bool // HEAD of a work tree belongs to whoever works there
}

// A Step is what to do about a State.
type Step int

const (
	// Nothing is to be done.
	Nothing Step = iota
	// Agree records that HEAD here is what was agreed on.
	Agree
	// Follow lets HEAD here point to what the database says.
	Follow
	// Announce lets the database take HEAD over, unless another site is faster.
	Announce
	// Differ leaves both as they are, for an operator: both have changed, or nobody knows which one has.
	Differ
)

// Step returns what to do.
func (s State) Step() Step {
	_, global := s.Global.Target()
	_, here := s.Here.Target()
	switch {
	case s.Global.IsAbsent():
		switch {
		case !here || !s.Bare || s.Here == s.Agreed:
			return Nothing
		case s.Agreed == refdb.Unknown:
			return Agree
		}
		return Announce
	case !global:
		return Nothing
	case s.Here == s.Global:
		if s.Agreed == s.Here {
			return Nothing
		}
		return Agree
	case !here, !s.Bare, s.Agreed == s.Here:
		return Follow
	case s.Agreed == s.Global:
		return Announce
	}
	return Differ
}

// file has, in the repository, what was last agreed on.
const file = "refdb/head"

// ReadAgreed returns what the repository in dir has recorded; Unknown if it has recorded nothing.
func ReadAgreed(dir string) (refdb.Value, error) {
	text, err := os.ReadFile(filepath.Join(dir, file))
	if errors.Is(err, fs.ErrNotExist) {
		return refdb.Unknown, nil
	}
	return refdb.Value(strings.TrimSuffix(string(text), "\n")), err
}

// NoteAgreed records in the repository in dir what HEAD and the database agree on.
func NoteAgreed(dir string, v refdb.Value) error {
	path := filepath.Join(dir, file)
	if err := durable.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return durable.WriteFile(path, []byte(string(v)+"\n"), 0o644)
}
