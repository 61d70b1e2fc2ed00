package wire

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// ShellWord quotes text as a word of a shell command line.
func ShellWord(text string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("/._-+=:,@%", r)
	}
	if text != "" && strings.IndexFunc(text, func(r rune) bool { return !plain(r) }) < 0 {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}

// Printable returns a ref's name, quoted if it contains unprintable characters.
func Printable(ref string) string {
	if !utf8.ValidString(ref) || strings.ContainsFunc(ref, func(r rune) bool { return !strconv.IsPrint(r) }) {
		return strconv.Quote(ref)
	}
	return ref
}

// OneLine joins the lines of s.
func OneLine(s string) string {
	return strings.Join(strings.FieldsFunc(s, func(r rune) bool { return r == '\n' || r == '\r' }), "; ")
}
