package driver

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// MaxFreezeReason is the length of the longest reason of a [Freeze], in bytes.
const MaxFreezeReason = 500

// freezeRule is the first word of the line, before all rules of a project, that records its freeze.
// A program that does not know freezes takes the line for a rule of an unknown kind, and refuses
// all pushes to the project.
const freezeRule = "frozen"

// A Freeze says that no ref of a project may be moved, and why. The zero Freeze is that of a project
// that is not frozen.
//
// The database holds it in [ProjectRequest].Rules, as their first line, because every request that
// moves a ref has to read it: see [WithFreeze] and [CutFreeze].
type Freeze struct {
	Reason string    `json:"reason"`
	By     string    `json:"by,omitempty"` // who froze the project; "" if unknown
	Since  time.Time `json:"since,omitzero"`
}

// String returns the reason with who froze the project, and since when.
func (f Freeze) String() string {
	var more []string
	if f.By != "" {
		more = append(more, "by "+f.By)
	}
	if !f.Since.IsZero() {
		more = append(more, "since "+f.Since.UTC().Format("2006-01-02 15:04 UTC"))
	}
	if more == nil {
		return f.Reason
	}
	return f.Reason + " (" + strings.Join(more, " ") + ")"
}

// CheckFreezeReason returns an error wrapping [ErrInvalid] unless reason can be that of a [Freeze]: a
// line of text, for people.
func CheckFreezeReason(reason string) error {
	var fault string
	switch i := strings.IndexFunc(reason, unprintable); {
	case strings.TrimSpace(reason) == "":
		fault = "it is empty"
	case !utf8.ValidString(reason):
		fault = "it is not UTF-8"
	case i >= 0:
		r, _ := utf8.DecodeRuneInString(reason[i:])
		fault = fmt.Sprintf("it holds the character %q", r)
	case len(reason) > MaxFreezeReason:
		fault = fmt.Sprintf("it is %d bytes long, at most %d are allowed", len(reason), MaxFreezeReason)
	default:
		return nil
	}
	return fmt.Errorf("%w reason for a freeze: %s", ErrInvalid, fault)
}

// unprintable reports whether r would do more to a pusher's terminal than show a character.
func unprintable(r rune) bool { return !unicode.IsGraphic(r) }

// WithFreeze returns rules with the line of f before them, as the database stores them. The argument
// rules must not contain such a line.
func WithFreeze(f Freeze, rules string) string {
	if f == (Freeze{}) {
		return rules
	}
	var line bytes.Buffer
	encoder := json.NewEncoder(&line)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(f) // which is text and a time; it ends the line
	if rules == "" {
		line.Truncate(line.Len() - 1)
	}
	return freezeRule + " " + line.String() + rules
}

// CutFreeze is the reverse of [WithFreeze]: it returns the rules without the line of a freeze, and
// whether there was one. A project whose line can't be read is frozen all the same: the reason is
// then the text of the line, or says that there is none. So f is never zero if frozen.
func CutFreeze(stored string) (f Freeze, rules string, frozen bool) {
	line, rules, _ := strings.Cut(stored, "\n")
	kind, text, _ := strings.Cut(line, " ")
	if kind != freezeRule {
		return Freeze{}, stored, false
	}
	if err := json.Unmarshal([]byte(text), &f); err != nil || CheckFreezeReason(f.Reason) != nil {
		f = Freeze{Reason: strings.TrimSpace(strings.Map(printable, text))}
	}
	f.By, f.Since = strings.Map(printable, f.By), f.Since.UTC()
	if f.Reason == "" {
		f.Reason = "no reason is recorded"
	}
	if len(f.Reason) > MaxFreezeReason {
		f.Reason = strings.ToValidUTF8(f.Reason[:MaxFreezeReason], "")
	}
	return f, rules, true
}

// printable returns r, or a question mark if a terminal can't show it.
func printable(r rune) rune {
	if unprintable(r) {
		return '?'
	}
	return r
}
