package driver

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

func (v Value) describe() string {
	switch {
	case v == Unknown:
		return "nothing"
	case v.IsDeleted():
		return "nothing (deleted)"
	default:
		return fmt.Sprintf("%q", string(v))
	}
}

// A Value is the value of a ref: an object ID (40 or 64 hex digits), a symbolic ref ("ref:
// refs/heads/main") or any other string, such as Gerrit stores in refs/multi-site/version. Two
// values represent a ref that does not exist: [Unknown], and a zero ID, which means that the ref
// was deleted.
type Value string

const (
	// Unknown is the value of a ref that the database has no row for.
	Unknown Value = ""
	// Deleted is the zero ID that a deleted ref holds in a SHA-1 repository. As [Update].New it
	// deletes a ref in any repository.
	Deleted Value = "0000000000000000000000000000000000000000"
	// Deleted256 is the zero ID that a deleted ref holds in a SHA-256 repository.
	Deleted256 Value = Deleted + "000000000000000000000000"

	// MaxValueBytes is the maximum length of a value, in bytes.
	MaxValueBytes = 4096

	symbolicPrefix = "ref: "
)

// IsDeleted reports whether v is a zero ID of either length.
func (v Value) IsDeleted() bool { return v == Deleted || v == Deleted256 }

// IsAbsent reports whether v represents a ref that does not exist: unknown or deleted.
func (v Value) IsAbsent() bool { return v == Unknown || v.IsDeleted() }

// Equivalent reports whether v and w are equal, or both absent.
func (v Value) Equivalent(w Value) bool { return v == w || v.IsAbsent() && w.IsAbsent() }

// IsObjectID reports whether v is an object ID: 40 or 64 lower-case hex
// digits, the zero IDs included.
func (v Value) IsObjectID() bool {
	if len(v) != len(Deleted) && len(v) != len(Deleted256) {
		return false
	}
	return strings.Trim(string(v), "0123456789abcdef") == ""
}

// Target returns the ref that v refers to, if v is a symbolic ref.
func (v Value) Target() (ref string, ok bool) {
	return strings.CutPrefix(string(v), symbolicPrefix)
}

// Abbrev returns a short form of v for people: the first seven digits of an
// object ID, "nothing", "deleted", or any other value in quotes.
func (v Value) Abbrev() string {
	switch {
	case v == Unknown:
		return "nothing"
	case v.IsDeleted():
		return "deleted"
	case v.IsObjectID():
		return string(v[:7])
	default:
		return strconv.Quote(string(v))
	}
}

// CheckValue returns an error wrapping [ErrInvalid] if v can't be stored: it is longer than
// [MaxValueBytes] or not UTF-8, contains a NUL byte, or is a symbolic ref to an invalid name.
// CheckValue accepts Unknown, which is not valid as [Update].New.
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
