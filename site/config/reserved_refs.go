package config

import "strings"

// PeerPrefix begins the refs that a site fetched from others. They are not guarded, only a
// sync moves them, and clients don't see them.
const PeerPrefix = "refs/peer/"

// OwnPrefix begins the refs that the daemon keeps for itself. They are not guarded, and clients don't see them.
const OwnPrefix = "refs/refdb/"

// KeptPrefix begins the refs that keep objects from being pruned. Each is named after its value.
const KeptPrefix = OwnPrefix + "kept/"

// MultiSitePrefix begins the names under which Gerrit's plugin multi-site keeps its own data in the
// ref database: numbers, under names that can't coexist in a repository.
const MultiSitePrefix = "refs/multi-site/"

// IsMultiSites reports whether a row is of the plugin multi-site.
func IsMultiSites(ref string) bool {
	return ref == MultiSitePrefix+"version" || ref == MultiSitePrefix+"version/value"
}

// mergesPrefix begins the merges that each Gerrit computes for itself.
const mergesPrefix = "refs/cache-automerge/"

// SitesProject is the project in which the database keeps what sites say about themselves: refs/sites/,
// refs/unpacked/ and others. No repository may be a copy of it: a push could write them.
const SitesProject = "refdb/sites"

// A Namespace of refs means something to git or to a program of the site.
type Namespace struct {
	Prefix string // ends in "/", or is the name of a single ref
	Use    Use
}

// A Use says who gives a [Namespace] its meaning, and so what becomes of a push to it.
type Use int

const (
	// Peers refs come from other sites' repositories: only a sync moves them.
	Peers Use = iota
	// Daemons refs are written by the site daemon alone.
	Daemons
	// WorkTrees refs belong to one work tree of a repository. Git writes them there; pushed, they would reach no other site.
	WorkTrees
	// Gerrits refs are written by each Gerrit, or by its plugins, for its own use.
	Gerrits
	// SwitchedOff refs are ordinary, guarded refs, because guarded repositories have git ignore their meaning.
	SwitchedOff
)

// Namespaces are all namespaces with a meaning. docs/GIT.md has the same table.
var Namespaces = [...]Namespace{
	{PeerPrefix, Peers},
	{OwnPrefix, Daemons},
	{"refs/bisect/", WorkTrees},
	{"refs/worktree/", WorkTrees},
	{"refs/rewritten/", WorkTrees},
	{mergesPrefix, Gerrits},
	{MultiSitePrefix, Gerrits},
	{"refs/replace/", SwitchedOff},
}

// IsTracking reports whether a ref is one in which git keeps what it has seen of a remote repository.
func IsTracking(ref string) bool { return strings.HasPrefix(ref, "refs/remotes/") }

// Reserved returns the namespace that a ref is in.
func Reserved(ref string) (Namespace, bool) {
	for _, n := range Namespaces {
		if ref == n.Prefix || strings.HasSuffix(n.Prefix, "/") && strings.HasPrefix(ref, n.Prefix) {
			return n, true
		}
	}
	return Namespace{}, false
}

// Resembles returns the namespace that a ref would be in on a disk that ignores case, unless it is in that namespace.
func Resembles(ref string) (Namespace, bool) {
	if _, in := Reserved(ref); in {
		return Namespace{}, false
	}
	for _, n := range Namespaces {
		prefix, isPrefix := strings.CutSuffix(n.Prefix, "/")
		parts := strings.SplitAfterN(ref, "/", strings.Count(prefix, "/")+2)
		folded := strings.TrimSuffix(strings.Join(parts[:min(len(parts), strings.Count(prefix, "/")+1)], ""), "/")
		if strings.EqualFold(folded, prefix) && (isPrefix || folded == ref) {
			return n, true
		}
	}
	return Namespace{}, false
}
