package main

import "strings"

// kept reports whether a ref is one that belongs into the global ref database.
// Those that Gerrit keeps out by default don't: changes' patch sets never move
// once they exist, caches and drafts are a site's own, and
// refs/multi-site/version is a plain value there, not the local ref's.
func kept(ref string) bool {
	switch {
	case strings.HasPrefix(ref, "refs/changes/"):
		return strings.HasSuffix(ref, "/meta") || strings.HasSuffix(ref, "/robot-comments")
	case strings.HasPrefix(ref, "refs/cache-automerge/"), strings.HasPrefix(ref, "refs/draft-comments/"),
		ref == "refs/multi-site/version", ref == "HEAD":
		return false
	}
	return true
}

const skipHelp = `Left out by default is what Gerrit keeps out of the database: refs/changes/* except .../meta and
.../robot-comments, refs/cache-automerge/*, refs/draft-comments/*, refs/multi-site/version, and
HEAD, which each site has for itself. --all includes them.`
