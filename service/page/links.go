package page

import (
	"fmt"
	"html/template"
	"net/url"
	"strings"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/service/access"
	"github.com/globalrefdb/globalrefdb/site/overview"
	"github.com/globalrefdb/globalrefdb/site/wire"
)

// path returns the path of a view.
func (p *Page) path(view string, query url.Values) string {
	if len(query) == 0 {
		return p.o.Prefix + view
	}
	return p.o.Prefix + view + "?" + query.Encode()
}

// link returns the path of a view with a query of names and values. Empty values are left out.
func (p *Page) link(view string, query ...string) string {
	q := url.Values{}
	for i := 0; i+1 < len(query); i += 2 {
		if query[i+1] != "" {
			q.Set(query[i], query[i+1])
		}
	}
	return p.path(view, q)
}

func (p *Page) asset(name string) string { return p.path("/assets/"+p.assets.hashed[name], nil) }

// functions are those of all templates.
var functions = template.FuncMap{
	"name":    wire.Printable,
	"ago":     ago,
	"seconds": func(s float64) string { return ago(time.Duration(s * float64(time.Second))) },
	"time":    func(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05Z") },
	"short":   short,
	"brief":   brief,
	"owner":   ownerText,
	"alive":   func(s overview.Site) bool { return s.Alive != nil && *s.Alive },
	"join":    func(names []string) string { return wire.Printable(strings.Join(names, ", ")) },
}

// ago formats an age.
func ago(d time.Duration) string {
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm %ds", int(d.Minutes()), int(d.Seconds())%60)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh %dm", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%d days", int(d.Hours()/24))
}

// shownDigits is how many digits of an object's ID people see.
const shownDigits = 12

// short abbreviates a value.
func short(value string) string {
	switch v := refdb.Value(value); {
	case value == "":
		return "none"
	case v.IsDeleted():
		return "deleted"
	case (len(value) == 40 || len(value) == 64) && strings.Trim(value, "0123456789abcdef") == "":
		return value[:shownDigits]
	}
	return brief(value)
}

// shownRunes is how much of a long text a view has.
const shownRunes = 100

// brief shows the beginning of a text.
func brief(text string) string {
	runes := 0
	for i := range text {
		if runes++; runes > shownRunes {
			return wire.Printable(text[:i]) + "…"
		}
	}
	return wire.Printable(text)
}

// ownerText names who holds a lock: a subject, or a site's process.
func ownerText(owner string) string {
	if subject, ok := access.SubjectOf(owner); ok {
		return wire.Printable(subject)
	}
	return wire.Printable(owner)
}
