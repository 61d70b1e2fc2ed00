package driver

import (
	"fmt"
	"iter"
	"strings"
	"unicode"
	"unicode/utf8"
)

const maxFollowerBytes = 200

// CheckFollower returns an error wrapping [ErrInvalid] if name can't be the name of a follower: it
// is empty, longer than 200 bytes or not UTF-8, or contains control characters.
func CheckFollower(name string) error {
	if name == "" || len(name) > maxFollowerBytes || !utf8.ValidString(name) || strings.ContainsFunc(name, unicode.IsControl) {
		return fmt.Errorf("%w follower %.100q: give 1 to %d bytes of UTF-8 without control characters", ErrInvalid, name, maxFollowerBytes)
	}
	return nil
}

const (
	// MaxNameBytes is the maximum length of a project and a ref taken together: they are the key of
	// a B-tree, and PostgreSQL limits a key to 2,704 bytes.
	MaxNameBytes = 2000

	// ReclaimPrefix is the prefix of the project in the marker rows that a reclaim briefly leaves
	// in the table of locks, in the form that Gerrit's spanner-refdb plugin uses. The name of a
	// project can't start with it.
	ReclaimPrefix = "RECLAIM_"

	// MaxPartBytes is the maximum length of a component of a ref that git can place: the component
	// with ".lock" appended is a file name, and file systems limit a name to 255 bytes.
	MaxPartBytes = 250
)

// CheckProject returns an error wrapping [ErrInvalid] if name can't be the name of a project: it is
// empty or not UTF-8, contains a NUL byte, is longer than [MaxNameBytes], or starts with
// [ReclaimPrefix].
func CheckProject(name string) error {
	switch reason := TextFault(name); {
	case reason != "":
		return fmt.Errorf("%w project %q: %s", ErrInvalid, name, reason)
	case strings.HasPrefix(name, ReclaimPrefix):
		return fmt.Errorf("%w project %q: the prefix %s is reserved", ErrInvalid, name, ReclaimPrefix)
	}
	return nil
}

// CheckRef returns an error wrapping [ErrInvalid] if name is not a valid full ref name. The rules
// are those of git check-ref-format; in addition, a name of one level may contain only A–Z and
// underscores, like HEAD.
func CheckRef(name string) error {
	reason := TextFault(name)
	if reason == "" {
		reason = refFault(name)
	}
	if reason != "" {
		return fmt.Errorf("%w ref %q: %s", ErrInvalid, name, reason)
	}
	return nil
}

// CheckKey combines CheckProject, CheckRef, and the limit on the length of both together.
func CheckKey(project, ref string) error {
	if err := CheckProject(project); err != nil {
		return err
	}
	if err := CheckRef(ref); err != nil {
		return err
	}
	if n := len(project) + len(ref); n > MaxNameBytes {
		return fmt.Errorf("%w ref %q of project %q: together %d bytes, at most %d are allowed",
			ErrInvalid, ref, project, n, MaxNameBytes)
	}
	return nil
}

// CheckPlaceable returns an error wrapping [ErrInvalid] if no git repository can store a ref of
// that name in a file, because a component is longer than [MaxPartBytes]. It does not matter to
// programs that place no refs in a repository.
func CheckPlaceable(ref string) error {
	for part := range strings.SplitSeq(ref, "/") {
		if n := len(part); n > MaxPartBytes {
			return fmt.Errorf("%w ref %q: a part between slashes of %d bytes, at most %d are allowed", ErrInvalid, ref, n, MaxPartBytes)
		}
	}
	return nil
}

// Excludes reports whether no git repository can store refs of both names at once, because one name
// is a directory of the other: refs/heads/t and refs/heads/t/x.
func Excludes(a, b string) bool {
	return strings.HasPrefix(a, b+"/") || strings.HasPrefix(b, a+"/")
}

// RefsAbove iterates over the parent directories of ref that are valid ref names, the longest
// first: for refs/heads/t/x these are refs/heads/t and refs/heads.
func RefsAbove(ref string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for i := strings.LastIndexByte(ref, '/'); i > 0; i = strings.LastIndexByte(ref[:i], '/') {
			if above := ref[:i]; refFault(above) == "" && !yield(above) {
				return
			}
		}
	}
}

// TextFault returns the reason why name can't be stored as a name, or "" if it can be stored.
func TextFault(name string) string {
	switch {
	case name == "":
		return "empty"
	case !utf8.ValidString(name):
		return "not UTF-8"
	case strings.Contains(name, "\x00"):
		return "holds a NUL byte"
	case len(name) > MaxNameBytes:
		return fmt.Sprintf("%d bytes long, at most %d are allowed", len(name), MaxNameBytes)
	}
	return ""
}

func refFault(name string) string {
	switch {
	case !strings.Contains(name, "/") && strings.Trim(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZ_") != "":
		return "not a full name such as refs/heads/main"
	case strings.Contains(name, ".."):
		return `holds ".."`
	case strings.Contains(name, "@{"):
		return `holds "@{"`
	case strings.HasSuffix(name, "."):
		return `ends with "."`
	}
	for _, c := range []byte(name) {
		if c < 0x20 || c == 0x7f || strings.IndexByte(" ~^:?*[\\", c) >= 0 {
			return fmt.Sprintf("holds the character %q", c)
		}
	}
	for part := range strings.SplitSeq(name, "/") {
		switch {
		case part == "":
			return `has an empty component: a "/" at its start or end, or two in a row`
		case strings.HasPrefix(part, "."):
			return `has a component that starts with "."`
		case strings.HasSuffix(part, ".lock"):
			return `has a component that ends with ".lock"`
		}
	}
	return ""
}
