package site

import (
	"fmt"
	"regexp"
	"strings"
)

// Kept reports whether a ref is one that belongs into the global ref database.
// Those that Gerrit keeps out by default don't: changes' patch sets never move
// once they exist, caches and drafts are a site's own, and
// refs/multi-site/version is a plain value there, not the local ref's.
func Kept(ref string) bool {
	switch {
	case strings.HasPrefix(ref, "refs/changes/"):
		return strings.HasSuffix(ref, "/meta") || strings.HasSuffix(ref, "/robot-comments")
	case strings.HasPrefix(ref, "refs/cache-automerge/"), strings.HasPrefix(ref, "refs/draft-comments/"),
		ref == "refs/multi-site/version", ref == "HEAD":
		return false
	}
	return true
}

// private are the namespaces that each site, or each of its work trees, has for itself.
var private = [...]string{PeerPrefix, "refs/bisect/", "refs/worktree/", "refs/rewritten/"}

// Guards reports whether the ref's value belongs to the global database: all refs below
// refs/ of the configured projects, but for those that Gerrit or git itself
// treats as a site's own, and those that the configuration leaves out.
func (c *Config) Guards(project, ref string) bool {
	if !strings.HasPrefix(ref, "refs/") || !Kept(ref) {
		return false
	}
	for _, prefix := range private {
		if strings.HasPrefix(ref, prefix) {
			return false
		}
	}
	return !c.skipRefs.match(ref) && c.projects.match(project) && c.refs.match(ref)
}

// A pattern is one of Gerrit's: "^regex" matches the whole name, "prefix*" its
// beginning, anything else the very name.
type pattern struct {
	text   string
	regexp *regexp.Regexp
}

func parsePattern(text string) (pattern, error) {
	p := pattern{text: text}
	switch {
	case text == "":
		return p, fmt.Errorf("it is empty: give a name, prefix* or ^regex")
	case strings.HasPrefix(text, "^"):
		var err error
		if p.regexp, err = regexp.Compile(`\A(?:` + text + `)\z`); err != nil {
			return p, err
		}
	}
	return p, nil
}

func (p pattern) match(name string) bool {
	if p.regexp != nil {
		return p.regexp.MatchString(name)
	}
	if prefix, ok := strings.CutSuffix(p.text, "*"); ok {
		return strings.HasPrefix(name, prefix)
	}
	return name == p.text
}

type patterns []pattern

func (ps patterns) match(name string) bool {
	for _, p := range ps {
		if p.match(name) {
			return true
		}
	}
	return false
}
