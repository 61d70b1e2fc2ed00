package main

import (
	"io"
	"net/url"
	"regexp"
	"slices"
	"strings"
)

const redacted = "xxxxx"

// redactor is a writer that lets no password of a database URL through. Each
// Write is a whole message.
type redactor struct {
	to     io.Writer
	secret func() string // the URL in use
}

func (r *redactor) Write(p []byte) (int, error) {
	if _, err := io.WriteString(r.to, redact(string(p), r.secret())); err != nil {
		return 0, err
	}
	return len(p), nil
}

var (
	// userinfo runs to the last @ before a space, because passwords are often
	// not escaped as they should be.
	userinfo = regexp.MustCompile(`(//[^\s/?#:@]*:)[^\s"'` + "`" + `]*@`)
	setting  = regexp.MustCompile(`((?i:password|passwd|pwd)=)(?:'[^']*'|[^\s&;"'` + "`" + `]+)`)
)

// redact returns text without the passwords of url, and without whatever else
// looks like a password in a URL or a connection string.
func redact(text, url string) string {
	for _, secret := range secrets(url) {
		text = strings.ReplaceAll(text, secret, redacted)
	}
	text = userinfo.ReplaceAllString(text, "${1}"+redacted+"@")
	return setting.ReplaceAllString(text, "${1}"+redacted)
}

// secrets returns the passwords in a URL, escaped as they are there and not, longest first.
// The URL may be malformed: it is not parsed but cut at its delimiters.
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
				// A parser that stumbles over it may quote a piece.
				all = append(all, strings.FieldsFunc(password, func(r rune) bool { return strings.ContainsRune("/?#@:[]%", r) })...)
			}
		}
	}
	for _, match := range setting.FindAllStringSubmatchIndex(raw, -1) {
		add(strings.Trim(raw[match[3]:match[1]], "'"))
	}
	// A very short one would blot out half of every message, and hide nothing:
	// where it stands as a password, the patterns catch it.
	all = slices.DeleteFunc(all, func(s string) bool { return len(s) < 3 })
	slices.SortFunc(all, func(a, b string) int { return len(b) - len(a) })
	return slices.Compact(all)
}
