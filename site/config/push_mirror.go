package config

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
)

// A PushMirror is an external server to which the sites push the refs of projects.
type PushMirror struct {
	Name string // the same at all sites, of which one at a time pushes

	url            string
	projects, refs patterns
}

// Placeholders in the URL of a [PushMirror].
const (
	projectPlaceholder = "{project}" // team/app
	dashedPlaceholder  = "{dashed}"  // team-app
)

// Pushes reports whether the project is pushed to the mirror.
func (m PushMirror) Pushes(project string) bool { return m.projects.match(project) }

// PushesRef reports whether a ref of such a project is.
func (m PushMirror) PushesRef(ref string) bool { return m.refs.match(ref) }

// Address returns the URL of a project's repository at the mirror.
func (m PushMirror) Address(project string) string {
	dashed := strings.ReplaceAll(project, "/", "-")
	if strings.Contains(m.url, "://") {
		parts := strings.Split(project, "/")
		for i, part := range parts {
			parts[i] = url.PathEscape(part)
		}
		project, dashed = strings.Join(parts, "/"), url.PathEscape(dashed)
	}
	return strings.NewReplacer(projectPlaceholder, project, dashedPlaceholder, dashed).Replace(m.url)
}

// IsLike reports whether m and o push the same refs of the same projects to the same place.
func (m PushMirror) IsLike(o PushMirror) bool {
	return m.Name == o.Name && m.url == o.url && m.projects.String() == o.projects.String() && m.refs.String() == o.refs.String()
}

// setPushMirror sets a key of section pushMirror.
func (c *Config) setPushMirror(e Entry) error {
	if e.subsection == "" || strings.Contains(e.subsection, "/") || driver.CheckRef("refs/heads/"+e.subsection) != nil {
		return fmt.Errorf("%q can't be a mirror's name: write [pushMirror \"NAME\"], with a name that could be a branch's, without %q", e.subsection, "/")
	}
	i := slices.IndexFunc(c.PushMirrors, func(m PushMirror) bool { return m.Name == e.subsection })
	if i < 0 {
		c.PushMirrors, i = append(c.PushMirrors, PushMirror{Name: e.subsection}), len(c.PushMirrors)
	}
	m := &c.PushMirrors[i]
	switch e.key {
	case "url":
		if e.Value == "" || strings.HasPrefix(e.Value, "-") {
			return fmt.Errorf("%q is not the URL of a repository", e.Value)
		}
		scheme, rest, _ := strings.Cut(e.Value, "://")
		authority, _, _ := strings.Cut(rest, "/")
		if strings.HasPrefix(scheme, "http") && strings.Contains(authority, "@") {
			return errors.New("the URL has a user or a password, which git would show to all users of this machine: remove it, and configure a credential helper (gitcredentials(7)) for the daemon's user")
		}
		m.url = e.Value
		return nil
	case "project":
		return m.projects.add(e.Value)
	case "ref":
		return m.refs.add(e.Value)
	}
	return errUnknownKey
}

// completePushMirrors fills in what is not configured.
func (c *Config) completePushMirrors() error {
	for i := range c.PushMirrors {
		m := &c.PushMirrors[i]
		if m.url == "" {
			return fmt.Errorf("pushMirror.%s.url is missing: give the URL of the projects' repositories there, such as git@example.com:mirrors/%s.git", m.Name, projectPlaceholder)
		}
		if m.projects == nil {
			m.projects = patterns{{text: "*"}}
		}
		if m.refs == nil {
			m.refs = patterns{{text: "refs/heads/*"}, {text: "refs/tags/*"}}
		}
		one := len(m.projects) == 1 && m.projects[0].isName()
		if !one && !strings.Contains(m.url, projectPlaceholder) && !strings.Contains(m.url, dashedPlaceholder) {
			return fmt.Errorf("pushMirror.%s.url: several projects would have one repository: put %s (team/app) or %s (team-app) into the URL, or name one project", m.Name, projectPlaceholder, dashedPlaceholder)
		}
	}
	return nil
}

var errUnknownKey = errors.New("there is no such key in this version: see docs/GIT.md for those there are")
