package main

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/output"
	"github.com/globalrefdb/globalrefdb/site/overview"
)

const unknown = "?" // in the place of what was not read

// topColumns are the lines at the top. The JSON has other fields.
func topColumns(p output.Palette) []output.Column[overview.Overview] {
	line := func(heading string, text func(overview.Overview) string) output.Column[overview.Overview] {
		return output.Column[overview.Overview]{Heading: heading, Text: text}
	}
	return []output.Column[overview.Overview]{
		line("TIME", func(v overview.Overview) string {
			if v.Time.IsZero() {
				return unknown
			}
			return v.Time.UTC().Format(time.DateTime) + " UTC"
		}),
		line("DATABASE", func(v overview.Overview) string { return databaseText(p, v) }),
		line("CHANGES", func(v overview.Overview) string {
			c := v.Changes
			switch {
			case c == nil:
				return unknown
			case c.More:
				return fmt.Sprintf("%.3g per second, more than %d within a minute", c.PerSecond, c.Count)
			}
			return fmt.Sprintf("%.3g per second, %d within a minute", c.PerSecond, c.Count)
		}),
		line("PUSHES", func(v overview.Overview) string {
			i := v.Intents
			if i == nil {
				return unknown
			}
			text := output.Count(i.Pending, "ref") + " in progress" + andMore(i.More)
			if i.Pending > 0 {
				text += ", the oldest for " + ago(i.OldestSeconds)
			}
			if i.Stuck > 0 {
				text += ", " + p.Red(fmt.Sprintf("%d stuck", i.Stuck))
			}
			if i.Undone > 0 {
				text += fmt.Sprintf(", %d decided by operators and not applied", i.Undone)
			}
			return text
		}),
		line("LOCKS", func(v overview.Overview) string {
			l := v.Locks
			if l == nil {
				return unknown
			}
			text := fmt.Sprintf("%d held, %d stale", l.Held, l.Stale) + andMore(l.More)
			if l.Awaited > 0 {
				text += fmt.Sprintf(", %s for %s", output.Count(l.Waiters, "waiter"), output.Count(l.Awaited, "ref"))
			}
			return text
		}),
	}
}

func andMore(more bool) string {
	if more {
		return " and more"
	}
	return ""
}

func databaseText(p output.Palette, v overview.Overview) string {
	d := v.Database
	if d == nil {
		return p.Red("not read")
	}
	text := p.Green("writable")
	switch {
	case d.Writable:
	case d.Lost > 0:
		text = p.Red("not writable") + ", " + output.Count(d.Lost, "lost change")
	default:
		text = p.Red("not writable")
	}
	if !d.Writable && len(d.Waiting) > 0 {
		text += ", waiting for " + output.Escape(strings.Join(d.Waiting, ", "))
	}
	if d.Schema > 0 {
		text += fmt.Sprintf(", schema %d", d.Schema)
	}
	return text
}

func topSiteColumns(p output.Palette) []output.Column[overview.Site] {
	text := func(heading string, text func(overview.Site) string) output.Column[overview.Site] {
		return output.Column[overview.Site]{Heading: heading, Text: text, Value: func(s overview.Site) any { return text(s) }}
	}
	return []output.Column[overview.Site]{
		text("SITE", func(s overview.Site) string { return output.Escape(s.Name) }),
		text("STATE", func(s overview.Site) string {
			switch {
			case (s.Alive == nil || *s.Alive) && len(s.Alarms) > 0:
				return p.Yellow(output.Count(len(s.Alarms), "alarm"))
			case s.Alive == nil:
				return unknown
			case *s.Alive:
				return p.Green("alive")
			case s.Awaited || s.Testified:
				return p.Red("unreachable")
			}
			return "ended"
		}),
		text("VERSION", func(s overview.Site) string { return output.OrDash(s.Version != "", output.Escape(s.Version)) }),
		text("SCHEMA", func(s overview.Site) string { return output.OrDash(s.Schema > 0, fmt.Sprint(s.Schema)) }),
		text("LAG", func(s overview.Site) string {
			switch {
			case s.Lag == nil:
				return "-"
			case s.Lag.Unreadable:
				return p.Red("unreadable")
			case s.Lag.Changes == 0 && !s.Lag.More:
				return "none"
			}
			return fmt.Sprintf("%s%s, %s", output.Count(s.Lag.Changes, "change"), andMore(s.Lag.More), ago(s.Lag.Seconds))
		}),
		text("FOLLOWED", func(s overview.Site) string { return output.OrDash(s.Version != "", fmt.Sprint(s.Followed)) }),
		text("BEHIND", func(s overview.Site) string {
			switch {
			case s.Version == "":
				return "-"
			case s.Behind == 0:
				return "0"
			}
			behind := p.Yellow(fmt.Sprint(s.Behind))
			if len(s.BehindProjects) > 0 {
				behind += ", " + output.Escape(s.BehindProjects[0])
			}
			if s.BehindSeconds > 0 {
				behind += " for " + ago(s.BehindSeconds)
			}
			return behind
		}),
	}
}

var topIntentColumns = []output.Column[overview.Intent]{
	{Heading: "PUSH TO", Value: func(i overview.Intent) any { return i.Project }},
	{Name: "ref", Value: func(i overview.Intent) any { return i.Ref }},
	{Name: "site", Value: func(i overview.Intent) any { return i.Site }},
	output.Optional("by", func(i overview.Intent) string { return i.By }),
	{Heading: "FOR", Text: func(i overview.Intent) string { return ago(i.Seconds) }},
}

var topLockColumns = []output.Column[overview.Lock]{
	{Heading: "LOCK ON", Value: func(l overview.Lock) any { return l.Project }},
	{Name: "ref", Value: func(l overview.Lock) any { return l.Ref }},
	{Name: "owner", Value: func(l overview.Lock) any { return l.Owner }},
	{Heading: "HELD FOR", Text: func(l overview.Lock) string { return output.OrDash(!l.Reserved, ago(l.Seconds)) }},
	{Name: "waiters", Value: func(l overview.Lock) any { return l.Waiters }},
}

// problemColumns are those of CSV.
var problemColumns = []output.Column[overview.Problem]{
	{Name: "code", Value: func(r overview.Problem) any { return r.Code }},
	{Name: "site", Value: func(r overview.Problem) any { return output.OrNil(r.Site != "", r.Site) }},
	{Name: "command", Value: func(r overview.Problem) any { return r.Command }},
	{Name: "detail", Value: func(r overview.Problem) any { return r.Detail }},
}

// problemText returns a problem in lines of a width, and the command on a line of its own.
func problemText(p output.Palette, r overview.Problem, width int) string {
	at := ""
	if r.Site != "" {
		at = " at " + output.Escape(r.Site)
	}
	return p.Red(r.Code) + ": " + wrap(output.Escape(r.Detail), width, len(r.Code)+2) + "\n  run" + at + ": " + p.Bold(output.Escape(r.Command)) + "\n"
}

func unreadText(p output.Palette, u overview.Unread, width int) string {
	return p.Red("not read: ") + wrap(output.Escape(u.What)+": "+output.OneLine(u.Error), width, len("not read: ")) + "\n"
}

// wrap breaks text into lines, the first of which begins at a column, and indents the others.
func wrap(text string, width, column int) string {
	const indent = "  "
	var b strings.Builder
	for i, word := range strings.Fields(text) {
		n := utf8.RuneCountInString(word)
		switch {
		case i == 0:
		case column+1+n > width:
			b.WriteString("\n" + indent)
			column = len(indent)
		default:
			b.WriteString(" ")
			column++
		}
		b.WriteString(word)
		column += n
	}
	return b.String()
}

func ago(seconds float64) string { return output.Ago(time.Duration(seconds * float64(time.Second))) }
