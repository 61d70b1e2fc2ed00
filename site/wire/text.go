package wire

import (
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// ShellWord quotes text as a word of a shell command line. The word is printable: unprintable bytes
// have escapes, in the form $'…' of bash, ksh, zsh and POSIX 2024.
func ShellWord(text string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("/._-+=:,@%", r)
	}
	if text != "" && strings.IndexFunc(text, func(r rune) bool { return !plain(r) }) < 0 {
		return text
	}
	if Printable(text) == text {
		return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
	}
	word := []byte("$'")
	for len(text) > 0 {
		r, n := utf8.DecodeRuneInString(text)
		switch {
		case r == utf8.RuneError && n == 1, !strconv.IsPrint(r):
			for _, b := range []byte(text[:n]) {
				word = append(word, '\\', '0'+b>>6, '0'+b>>3&7, '0'+b&7)
			}
		case r == '\'', r == '\\':
			word = append(word, '\\', byte(r))
		default:
			word = append(word, text[:n]...)
		}
		text = text[n:]
	}
	return string(append(word, '\''))
}

// CommandLine returns a command line with arguments, none of which is taken for an option.
func CommandLine(line string, arguments ...string) string {
	if slices.ContainsFunc(arguments, func(a string) bool { return strings.HasPrefix(a, "-") }) {
		line += " --"
	}
	for _, a := range arguments {
		line += " " + ShellWord(a)
	}
	return line
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
