package config

import (
	"fmt"
	"strings"
)

// Rules say which refs of a project are guarded, at all sites.
type Rules struct{ refs, alsoRefs, skipRefs patterns }

// ParseRules reads rules as the database has them. Each line is "ref PATTERN", "alsoRef PATTERN" or "skipRef PATTERN",
// like guard.ref, guard.alsoRef and guard.skipRef in a site's configuration. Without a "ref" all refs are guarded that are by default.
func ParseRules(text string) (r Rules, err error) {
	for line := range strings.Lines(text) {
		kind, pattern, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		switch kind {
		case "ref":
			err = r.refs.add(pattern)
		case "alsoRef":
			err = r.alsoRefs.add(pattern)
		case "skipRef":
			err = r.skipRefs.add(pattern)
		default:
			err = fmt.Errorf("the rule %q is of no known kind: upgrade the program", line)
		}
		if err != nil {
			return Rules{}, err
		}
	}
	if r.refs == nil {
		r.refs = patterns{{text: "*"}}
	}
	return r, nil
}

// NewRules makes rules of patterns. Without refs all refs are guarded that are by default.
func NewRules(refs, alsoRefs, skipRefs []string) (Rules, error) {
	var lines []string
	for _, p := range refs {
		lines = append(lines, "ref "+p)
	}
	for _, p := range alsoRefs {
		lines = append(lines, "alsoRef "+p)
	}
	for _, p := range skipRefs {
		lines = append(lines, "skipRef "+p)
	}
	for _, l := range lines {
		if strings.ContainsAny(l, "\n\r") {
			return Rules{}, fmt.Errorf("the rule %q has more than one line", l)
		}
	}
	return ParseRules(strings.Join(lines, "\n"))
}

// String returns the rules as [ParseRules] reads them.
func (r Rules) String() string {
	var lines []string
	for _, p := range r.refs {
		lines = append(lines, "ref "+p.text)
	}
	for _, p := range r.alsoRefs {
		lines = append(lines, "alsoRef "+p.text)
	}
	for _, p := range r.skipRefs {
		lines = append(lines, "skipRef "+p.text)
	}
	return strings.Join(lines, "\n")
}

// Rules returns the rules of the configuration, which projects get that are new to the database.
func (c *Config) Rules() Rules { return Rules{c.refs, c.alsoRefs, c.skipRefs} }

// Under returns the configuration with a project's rules instead of its own.
func (c *Config) Under(r Rules) *Config {
	ruled := *c
	ruled.projects, ruled.refs, ruled.alsoRefs, ruled.skipRefs = patterns{{text: "*"}}, r.refs, r.alsoRefs, r.skipRefs
	return &ruled
}
