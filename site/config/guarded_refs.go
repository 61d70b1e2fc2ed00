package config

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// GuardedByDefault reports whether a ref belongs in the global ref database. As in Gerrit, by default these
// don't: the patch sets of changes, which never move once they exist; caches and drafts, which
// are a site's own; and the plain values that Gerrit's plugin multi-site keeps in the database.
func GuardedByDefault(ref string) bool {
	switch {
	case strings.HasPrefix(ref, "refs/changes/"):
		return strings.HasSuffix(ref, "/meta") || strings.HasSuffix(ref, "/robot-comments")
	case strings.HasPrefix(ref, mergesPrefix), strings.HasPrefix(ref, "refs/draft-comments/"), strings.HasPrefix(ref, MultiSitePrefix), ref == "HEAD":
		return false
	}
	return true
}

// Guards reports whether a ref is guarded: it is below refs/ and of a guarded project, git does not
// treat it as a site's own, nor Gerrit unless the configuration says otherwise, and the configuration does not leave it out.
func (c *Config) Guards(project, ref string) bool {
	return Guardable(ref) && !c.skipRefs.match(ref) && c.projects.match(project) &&
		(c.alsoRefs.match(ref) || c.refs.match(ref) && GuardedByDefault(ref))
}

// GuardsProject reports whether the configuration guards refs of the project.
func (c *Config) GuardsProject(project string) bool { return c.projects.match(project) }

// GuardsAny reports whether a served ref of the project is guarded whose name begins and ends as given. It does not look into
// regular expressions: it tries names that rules and git use.
func (c *Config) GuardsAny(project, prefix, suffix string) bool {
	names := []string{prefix + suffix, prefix + "x" + suffix, "refs/heads/main", "refs/tags/v1"}
	for _, p := range slices.Concat(c.refs, c.alsoRefs) {
		names = append(names, p.text, strings.TrimSuffix(p.text, "*")+"x")
	}
	return slices.ContainsFunc(names, func(ref string) bool {
		return len(ref) >= len(prefix)+len(suffix) && strings.HasPrefix(ref, prefix) && strings.HasSuffix(ref, suffix) && !IsTracking(ref) && c.Guards(project, ref)
	})
}

// Guardable reports whether rules may guard the ref: it is below refs/, and its namespace is not reserved for unguarded refs.
func Guardable(ref string) bool {
	if !strings.HasPrefix(ref, "refs/") {
		return false
	}
	n, ok := Reserved(ref)
	return !ok || n.Use == SwitchedOff
}

// A pattern is like Gerrit's: "^regex" matches a whole name, "prefix*" the beginning of a
// name, and anything else exactly itself.
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

// isName reports whether the pattern matches one name only.
func (p pattern) isName() bool { return p.regexp == nil && !strings.HasSuffix(p.text, "*") }

type patterns []pattern

// String returns the patterns, one per line.
func (ps patterns) String() string {
	var text strings.Builder
	for _, p := range ps {
		text.WriteString(p.text + "\n")
	}
	return text.String()
}

func (ps patterns) match(name string) bool {
	for _, p := range ps {
		if p.match(name) {
			return true
		}
	}
	return false
}
