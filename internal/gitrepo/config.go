package gitrepo

import "strings"

// parseConfig reads the variables of a repository's config that are in sections
// without a subsection: the last value of each, by "section.key" in lower case. Included
// files are left out: git doesn't look for the format of a repository in those either.
func parseConfig(text string) map[string]string {
	vars := map[string]string{}
	section := ""
	text = strings.ReplaceAll(strings.TrimPrefix(text, "\ufeff"), "\r\n", "\n")
	for text = strings.TrimLeft(text, " \t\n"); text != ""; text = strings.TrimLeft(text, " \t\n") {
		switch text[0] {
		case '#', ';':
			_, text, _ = strings.Cut(text, "\n")
		case '[':
			section, text = parseSection(text[1:])
		default:
			end := strings.IndexAny(text, "=\n#;")
			if end < 0 {
				end = len(text)
			}
			key, value := strings.TrimSpace(text[:end]), "true"
			text = text[end:]
			if rest, ok := strings.CutPrefix(text, "="); ok {
				value, text = parseValue(rest)
			}
			if section != "" {
				vars[section+"."+strings.ToLower(key)] = value
			}
		}
	}
	return vars
}

// parseSection takes what follows a "[". The name is empty if there is a subsection.
func parseSection(text string) (name, rest string) {
	quoted, sub := false, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '\n':
			return "", text[i:]
		case c == '\\':
			i++
		case c == '"':
			quoted, sub = !quoted, true
		case c == ']' && !quoted:
			if sub {
				return "", text[i+1:]
			}
			return strings.ToLower(strings.TrimSpace(text[:i])), text[i+1:]
		}
	}
	return "", ""
}

// parseValue takes what follows a "=", up to the end of its line.
func parseValue(text string) (value, rest string) {
	var b strings.Builder
	solid := 0 // the length without trailing blanks
	quoted := false
	i := 0
	for ; i < len(text) && text[i] != '\n'; i++ {
		c := text[i]
		switch {
		case c == '"':
			quoted = !quoted
			solid = b.Len()
			continue
		case c == '\\' && i+1 < len(text):
			i++
			if text[i] == '\n' {
				continue
			}
			b.WriteByte(escaped(text[i]))
			solid = b.Len()
			continue
		case !quoted && (c == '#' || c == ';'):
			_, rest, _ = strings.Cut(text[i:], "\n")
			return b.String()[:solid], rest
		case !quoted && (c == ' ' || c == '\t'):
			if b.Len() > 0 {
				b.WriteByte(c)
			}
			continue
		}
		b.WriteByte(c)
		solid = b.Len()
	}
	return b.String()[:solid], text[i:]
}

func escaped(c byte) byte {
	switch c {
	case 'n':
		return '\n'
	case 't':
		return '\t'
	case 'b':
		return '\b'
	}
	return c
}
