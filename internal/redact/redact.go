// Package redact removes passwords from text.
package redact

import (
	"io"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
)

const redacted = "xxxxx"

// Writer is a writer that removes the passwords of database URLs. Each Write is a
// whole message. It may be used from several goroutines: loggers have a lock each.
type Writer struct {
	To   io.Writer
	URLs func() []string // the URLs in use

	mu sync.Mutex
}

func (r *Writer) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, err := io.WriteString(r.To, Text(string(p), r.URLs()...)); err != nil {
		return 0, err
	}
	return len(p), nil
}

var (
	// userinfo extends to the last @ before a space: passwords often contain an unescaped @.
	userinfo = regexp.MustCompile(`(//[^\s/?#:@]*:)[^\s"'` + "`" + `]*@`)
	setting  = regexp.MustCompile(`((?i:password|passwd|pwd)=)(?:'[^']*'|[^\s&;"'` + "`" + `]+)`)
)

// Text returns text without the passwords of urls, and without anything else that
// looks like a password in a URL or a connection string.
func Text(text string, urls ...string) string {
	var all []string
	for _, url := range urls {
		all = append(all, secrets(url)...)
	}
	slices.SortStableFunc(all, longestFirst)
	for _, secret := range all {
		text = strings.ReplaceAll(text, secret, redacted)
	}
	text = userinfo.ReplaceAllString(text, "${1}"+redacted+"@")
	return setting.ReplaceAllString(text, "${1}"+redacted)
}

// secrets returns the passwords in a URL, both as they are written and unescaped, longest first.
// The URL may be malformed, so it is not parsed but cut at its delimiters.
func secrets(raw string) []string {
	var all []string
	add := func(s string) {
		all = append(all, s)
		if plain, err := url.PathUnescape(s); err == nil {
			all = append(all, plain)
		}
		if plain, err := url.QueryUnescape(s); err == nil {
			all = append(all, plain)
		}
	}
	if _, rest, ok := strings.Cut(raw, "//"); ok {
		if at := strings.LastIndexByte(rest, '@'); at >= 0 {
			if _, password, ok := strings.Cut(rest[:at], ":"); ok {
				add(password)
				// A parser that rejects the URL may quote a part of the password.
				all = append(all, strings.FieldsFunc(password, func(r rune) bool { return strings.ContainsRune("/?#@:[]%", r) })...)
			}
		}
	}
	for _, match := range setting.FindAllStringSubmatchIndex(raw, -1) {
		add(strings.Trim(raw[match[3]:match[1]], "'"))
	}
	// A very short password would match parts of every message. The patterns of Text still match it
	// where it is in the place of a password.
	all = slices.DeleteFunc(all, func(s string) bool { return len(s) < 3 })
	slices.SortFunc(all, longestFirst)
	return slices.Compact(all)
}

func longestFirst(a, b string) int { return len(b) - len(a) }
