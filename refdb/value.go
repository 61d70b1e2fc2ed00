package refdb

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// A Value is what a ref holds: an object ID (40 or 64 hex digits), a symbolic
// ref ("ref: refs/heads/main") or, as Gerrit stores in refs/multi-site/version,
// any other string. Two of its values stand for a ref that is not there:
// [Unknown], and a zero ID, which says that the ref was deleted.
type Value string

const (
	// Unknown is the value of a ref that the database has no row for.
	Unknown Value = ""
	// Deleted is the zero ID that a deleted ref holds in a SHA-1 repository.
	Deleted Value = "0000000000000000000000000000000000000000"
	// Deleted256 is the zero ID that a deleted ref holds in a SHA-256 repository.
	Deleted256 Value = Deleted + "000000000000000000000000"

	// MaxValueBytes is the length of the longest value that can be stored.
	MaxValueBytes = 4096

	symbolicPrefix = "ref: "
)

// IsDeleted reports whether v is a zero ID of either length.
func (v Value) IsDeleted() bool { return v == Deleted || v == Deleted256 }

// IsAbsent reports whether v stands for a ref that is not there: unknown or deleted.
func (v Value) IsAbsent() bool { return v == Unknown || v.IsDeleted() }

// IsObjectID reports whether v is an object ID: 40 or 64 lower-case hex
// digits, the zero IDs included.
func (v Value) IsObjectID() bool {
	if len(v) != len(Deleted) && len(v) != len(Deleted256) {
		return false
	}
	return strings.Trim(string(v), "0123456789abcdef") == ""
}

// Target returns the ref that v points to, if v is a symbolic ref.
func (v Value) Target() (ref string, ok bool) {
	return strings.CutPrefix(string(v), symbolicPrefix)
}

// tombstone returns what to store for New == v when the ref held, or was
// expected to hold, old: v itself or, where v is absent, the zero ID of old's length.
func (v Value) tombstone(old Value) Value {
	if v != Unknown {
		return v
	}
	if len(old) == len(Deleted256) {
		return Deleted256
	}
	return Deleted
}

// CheckValue returns an error wrapping [ErrInvalid] if v can't be stored:
// longer than [MaxValueBytes], not UTF-8, holding a NUL, or a symbolic ref to
// a name that is none. Unknown is a fine value here: as New it means "delete".
func CheckValue(v Value) error {
	switch {
	case len(v) > MaxValueBytes:
		return fmt.Errorf("%w value of %d bytes: at most %d are allowed", ErrInvalid, len(v), MaxValueBytes)
	case !utf8.ValidString(string(v)):
		return fmt.Errorf("%w value %q: not UTF-8", ErrInvalid, string(v))
	case strings.Contains(string(v), "\x00"):
		return fmt.Errorf("%w value %q: holds a NUL byte", ErrInvalid, string(v))
	}
	if target, ok := v.Target(); ok {
		if err := CheckRef(target); err != nil {
			return fmt.Errorf("value %q: %w", string(v), err)
		}
	}
	return nil
}
