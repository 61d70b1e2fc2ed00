package page

import (
	"fmt"
	"html/template"
	"net/url"
	"slices"
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
	return wire.Printable(value)
}

// ownerText names who holds a lock: a subject, or a site's process.
func ownerText(owner string) string {
	if subject, ok := access.SubjectOf(owner); ok {
		return wire.Printable(subject)
	}
	return wire.Printable(owner)
}

// command returns a command line with its arguments quoted for a shell. A name that people can't see as it
// is, and might not be able to paste, is left to the command that lists such names. A name is never an
// option.
func command(line string, arguments ...string) string {
	if slices.ContainsFunc(arguments, func(a string) bool { return strings.HasPrefix(a, "-") }) {
		line += " --"
	}
	for _, a := range arguments {
		if wire.Printable(a) != a {
			return "refdbctl top"
		}
		line += " " + wire.ShellWord(a)
	}
	return line
}
