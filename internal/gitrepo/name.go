package gitrepo

import (
	"fmt"
	"strings"
)

// checkName returns an error unless name is the full name of a ref that git allows. As a path such
// a name never leads out of the repository's refs.
func checkName(name string) error {
	if strings.HasPrefix(name, "refs/") && wellFormed(name) {
		return nil
	}
	return fmt.Errorf("%q is not the full name of a ref that git allows", name)
}

// wellFormed reports whether name follows the rules of git check-ref-format.
func wellFormed(name string) bool {
	for part := range strings.SplitSeq(name, "/") {
		if part == "" || part[0] == '.' || strings.HasSuffix(part, ".lock") {
			return false
		}
	}
	for i := range len(name) {
		if c := name[i]; c <= ' ' || c == 0x7f || strings.IndexByte("~^:?*[\\", c) >= 0 {
			return false
		}
	}
	return !strings.Contains(name, "..") && !strings.Contains(name, "@{") && !strings.HasSuffix(name, ".")
}
