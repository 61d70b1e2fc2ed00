package output

import (
	"fmt"
	"strings"
	"time"
)

// Enumerate joins the first 100 items, so that they fit the detail of an audit entry.
func Enumerate(items []string) string {
	const most = 100
	if n := len(items); n > most {
		return strings.Join(items[:most], "; ") + fmt.Sprintf("; and %d more", n-most)
	}
	return strings.Join(items, "; ")
}

// Ago formats an age to tenths of a second below a minute, to seconds above.
func Ago(d time.Duration) string {
	if d < time.Minute {
		return d.Round(100 * time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}

// OrNil returns v if ok, else nil: what JSON and CSV have where there is nothing.
func OrNil(ok bool, v any) any {
	if ok {
		return v
	}
	return nil
}

// OrDash returns s if ok, else a dash: what tables have where there is nothing.
func OrDash(ok bool, s string) string {
	if ok {
		return s
	}
	return "-"
}

// Count returns a number and a noun, which gets an s in the plural.
func Count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// OneLine joins the lines of a message and makes it safe for a terminal.
func OneLine(s string) string {
	var lines []string
	for line := range strings.Lines(s) {
		if line = strings.TrimSpace(line); line != "" {
			lines = append(lines, line)
		}
	}
	return Escape(strings.Join(lines, "; "))
}
