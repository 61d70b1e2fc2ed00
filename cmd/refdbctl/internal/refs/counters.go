package refs

import (
	"strings"
)

// IsCounter reports whether a ref is one of Gerrit's sequences. Numbers that were taken from it are in use, also where nobody knows of
// it: it never goes back.
func IsCounter(ref string) bool { return strings.HasPrefix(ref, "refs/sequences/") }
