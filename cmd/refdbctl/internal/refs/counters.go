package refs

import (
	"strings"
)

// IsCounter reports whether a ref is one of Gerrit's sequences. A sequence never goes back: the
// numbers that were taken from it may be in use anywhere.
func IsCounter(ref string) bool { return strings.HasPrefix(ref, "refs/sequences/") }
